"""`manage.py openapi`: the API's schema on standard output, as `/api/openapi.json` gives it."""

import json
from typing import Any

from django.core.management.base import BaseCommand


class Command(BaseCommand):
    help = "Print the API's schema (OpenAPI), to make clients from."
    requires_system_checks = []

    def handle(self, *_: Any, **__: Any) -> None:
        from console.api.api import api

        self.stdout.write(json.dumps(api.get_openapi_schema()))
