"""`manage.py openapi`: the API's schema on standard output, as `/api/openapi.json` gives it."""

import json
import signal
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from console.embedded.process_tree import die_with_parent


class Command(BaseCommand):
    help = "Print the API's schema (OpenAPI), to make clients from."
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--parent", type=int, help="process that this one ends with")

    def handle(self, *_: Any, **options: Any) -> None:
        if options["parent"]:
            die_with_parent(signal.SIGKILL, options["parent"])
        from console.api.api import api

        self.stdout.write(json.dumps(api.get_openapi_schema()))
