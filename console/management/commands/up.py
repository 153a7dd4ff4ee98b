"""`manage.py up`: the embedded console, everything it needs started and supervised by this one process."""

import sys
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from console.embedded.console import run_console
from console.embedded.data_dir import AlreadyRunning, TooLittleDisk
from console.embedded.ports import PortTaken
from console.embedded.redis_server import NoRedisServer


class Command(BaseCommand):
    help = "Run the embedded console: Valkey, Ray, web, ingest, worker and reconcile, until Ctrl-C."
    requires_system_checks = []  # they cost a second; `make check` runs them

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--host", default=settings.HOST, help="address to listen on; 0.0.0.0 for all (default: %(default)s)"
        )
        parser.add_argument("--port", type=int, default=settings.PORT, help="of the web page (default: %(default)s)")
        parser.add_argument(
            "--demo", action="store_true", help="queue the demo run: GRPO on the bundled model and word problems"
        )
        parser.add_argument(
            "--set", action="append", default=[], metavar="KNOB=VALUE", help="change a knob of the demo run"
        )

    def handle(self, *_: Any, **options: Any) -> None:
        port = options["port"]
        if not 1 <= port <= 65535:
            raise CommandError(f"--port {port} is not a port; choose a number from 1024 to 65535.")
        changes = tuple(f"--set={change}" for change in options["set"])
        try:
            code = run_console(host=options["host"], port=port, demo=changes if options["demo"] else None)
        except (AlreadyRunning, PortTaken, NoRedisServer, TooLittleDisk) as error:
            raise CommandError(str(error)) from error
        sys.exit(code)
