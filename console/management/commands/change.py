"""`manage.py change r-12ab34cd optimizer.learning_rate=1e-4`: change knobs of a running run through the API."""

from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from typing import Any

from django.core.management.base import CommandError

from console.command_line.api_client import ApiClient
from console.command_line.api_command import REFUSED, ApiCommand
from jobs.catalog.value import value_text


class Command(ApiCommand):
    """Change knobs while a run trains; exit code 0 done, 3 refused, 4 the console is away."""

    help = "Change knobs of a running run through the API, or list those that can change"

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Say what it takes."""
        parser.add_argument("run", help="id of the run, like r-12ab34cd")
        parser.add_argument("knobs", nargs="*", metavar="knob=value", help="what to change; nothing lists what can")
        self.add_console_arguments(parser)

    def handle(self, *_args: Any, **options: Any) -> None:
        """Change or list, and leave with the exit code of what became of it."""
        wanted = _read(options["knobs"])
        self.ask(options, lambda client: self._change(client, options["run"], wanted))

    def _change(self, client: ApiClient, run_id: str, wanted: Mapping[str, str]) -> int:
        if not wanted:
            return self._list(client, run_id)
        answer = client.change_knobs(run_id, wanted)
        if answer["is_changed"]:
            self.stdout.write(f"{run_id} goes on with {', '.join(map('='.join, wanted.items()))} from its next step on")
        else:
            self.stdout.write("Nothing changes: it is so already, or was asked for")
        return 0

    def _list(self, client: ApiClient, run_id: str) -> int:
        settings = client.live_settings(run_id)
        if settings["problem"]:
            self.stdout.write(settings["problem"])
        for knob in settings["knobs"]:
            pending = f", {value_text(knob['pending'])} was asked for" if knob["pending"] is not None else ""
            self.stdout.write(f"{knob['id']}={value_text(knob['value'])}{pending} ({knob['allowed']})")
        return 0


def _read(arguments: Sequence[str]) -> dict[str, str]:
    """Return id -> value of `knob=value`. Raises: CommandError naming what is none."""
    wanted = {}
    for argument in arguments:
        name, sign, value = argument.partition("=")
        if not sign or not name:
            raise CommandError(f"{argument!r} is not of the form knob=value.", returncode=REFUSED)
        wanted[name] = value
    return wanted
