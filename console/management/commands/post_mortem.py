"""`manage.py post_mortem r-12ab34cd`: what of memory a run died, and the smallest change that fits, through the API."""

import json
from argparse import ArgumentParser
from typing import Any

from console.command_line.api_client import ApiClient
from console.command_line.api_command import ApiCommand
from jobs.catalog.value import value_text


class Command(ApiCommand):
    """Hold a run that died of memory against its plan; exit code 0, 3 refused, 4 the console is away."""

    help = "Say where a run ran out of memory, which part was too large, and the smallest change that fits"

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Say what it takes."""
        parser.add_argument("run", help="id of the run, like r-12ab34cd")
        parser.add_argument("--json", action="store_true", help="print the API's answer instead of sentences")
        self.add_console_arguments(parser)

    def handle(self, *_args: Any, **options: Any) -> None:
        """Ask, print, and leave with the exit code."""
        self.ask(options, lambda client: self._say(client, options["run"], as_json=options["json"]))

    def _say(self, client: ApiClient, run: str, *, as_json: bool) -> int:
        report = client.post_mortem(run)
        if as_json:
            self.stdout.write(json.dumps(report, indent=2))
        elif report is None:
            self.stdout.write(f"{run} did not die of memory.")
        else:
            for sentence in report["says"]:
                self.stdout.write(sentence)
            if report["changes"]:
                self.stdout.write(f"The smallest change that fits: {report['change']}.")
                knobs = " ".join(f"{knob}={value_text(value)}" for knob, value in report["changes"].items())
                self.stdout.write(f"Launch it again with {knobs}")
        return 0
