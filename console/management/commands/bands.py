"""`manage.py bands kl/reference=0:0.3`: show or set where the metrics of a project usually are, through the API."""

from argparse import ArgumentParser
from collections.abc import Sequence
from typing import Any

from django.core.management.base import CommandError

from console.command_line.api_client import ApiClient
from console.command_line.api_command import REFUSED, ApiCommand
from console.command_line.planner_json import BandJson


class Command(ApiCommand):
    """Show or set healthy bands; exit code 0 done, 3 refused, 4 the console is away. Setting is for admins."""

    help = "Show the healthy bands of a project's charts, or set its own"

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Say what it takes."""
        about = "as in kl/reference=0:0.3; none for no band, default for that of the metric dictionary; nothing lists"
        parser.add_argument("bands", nargs="*", metavar="metric=least:most", help=about)
        self.add_console_arguments(parser)
        parser.add_argument("--algorithm", default="", help="for runs of this algorithm alone; else for all")
        parser.add_argument("--project", help="slug of the project; else your first one")

    def handle(self, *_args: Any, **options: Any) -> None:
        """Show or set, and leave with the exit code."""
        wanted = read_bands(options["bands"])
        self.ask(options, lambda client: self._act(client, options, wanted))

    def _act(self, client: ApiClient, options: dict[str, Any], wanted: dict[str, list[float] | None]) -> int:
        home = options["project"] or client.first_project()
        algorithm = options["algorithm"]
        bands = client.set_bands(home, wanted, algorithm) if wanted else client.bands(home, algorithm)
        for band in bands:
            if not wanted or band["metric"] in wanted:
                self.stdout.write(_line(band))
        return 0


def read_bands(arguments: Sequence[str]) -> dict[str, list[float] | None]:
    """Return metric -> [least, most], [] for no band, None for the dictionary's. Raises: CommandError."""
    bands: dict[str, list[float] | None] = {}
    for argument in arguments:
        metric, _sign, text = argument.rpartition("=")
        try:
            bands[metric] = {"none": [], "default": None}[text] if text in ("none", "default") else _ends(text)
        except ValueError:
            metric = ""
        if not metric:
            said = f"{argument!r} is not of the form metric=least:most, metric=none or metric=default."
            raise CommandError(said, returncode=REFUSED)
    return bands


def _ends(text: str) -> list[float]:
    least, most = text.split(":")
    return [float(least), float(most)]


def _line(band: BandJson) -> str:
    ends = "no band" if band["low"] is None else f"{band['low']:g} to {band['high']:g}"
    return f"{band['metric']:<32} {ends:<18} {'own' if band['is_own'] else band['source']}".rstrip()
