"""`manage.py calibrate`: what finished runs say of the planner, through the API; taking it over, and undoing that."""

import json
from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from console.command_line.api_client import ApiClient
from console.command_line.api_command import ApiCommand
from console.command_line.calibration_text import calibration_text


class Command(ApiCommand):
    """Calibrate the planner; exit code 0, 3 refused, 4 the console is away."""

    help = "Say how far finished runs are from their plans, and let the planner use what they measured"

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Say what it takes."""
        change = parser.add_mutually_exclusive_group()
        change.add_argument("--take", metavar="ACCELERATOR", help="take over what runs on it propose, as in h200-sxm")
        change.add_argument("--undo", metavar="ACCELERATOR", help="take the last of that back")
        change.add_argument("--joining", choices=("on", "off"), help="whether finished runs join by themselves")
        parser.add_argument("--json", action="store_true", help="print the API's answer instead of tables")
        self.add_console_arguments(parser)
        parser.add_argument("--project", help="slug of the project; else your first one")

    def handle(self, *_args: Any, **options: Any) -> None:
        """Ask, print, and leave with the exit code."""
        self.ask(options, lambda client: self._calibrate(client, options))

    def _calibrate(self, client: ApiClient, options: Mapping[str, Any]) -> int:
        project = options["project"] or client.first_project()
        if options["take"]:
            answer = client.take_calibration(project, options["take"])
        elif options["undo"]:
            answer = client.undo_calibration(project, options["undo"])
        elif options["joining"]:
            answer = client.set_joining(project, is_on=options["joining"] == "on")
        else:
            answer = client.calibration(project)
        self.stdout.write(json.dumps(answer, indent=2) if options["json"] else calibration_text(answer))
        return 0
