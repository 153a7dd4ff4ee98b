"""`manage.py openapi`: the API's schema on standard output, as `/api/openapi.json` gives it."""

import json
import os
import signal
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from console.api.openapi import keep_document, kept_document, make_document
from console.embedded.process_tree import die_with_parent

_NICENESS = 10  # behind what starts beside it


class Command(BaseCommand):
    help = "Print the API's schema (OpenAPI), to make clients from."
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--keep", action="store_true", help="also keep it for the consoles of this installation")
        parser.add_argument("--parent", type=int, help="process that this one ends with")

    def handle(self, *_: Any, **options: Any) -> None:
        if options["parent"]:
            die_with_parent(signal.SIGKILL, options["parent"])
            os.nice(_NICENESS)
        document = kept_document()
        if document is None:
            from console.api.api import api

            document = make_document(api)
            if options["keep"]:
                keep_document(document)
        self.stdout.write(json.dumps(document))
