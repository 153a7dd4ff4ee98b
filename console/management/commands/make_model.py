"""`manage.py make_model r-12ab34cd 40`: make a model of the checkpoint of a step through the API."""

from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from django.core.management.base import CommandError

from console.command_line.api_client import ApiClient
from console.command_line.api_command import REFUSED, ApiCommand

EXIT_CODES = {"finished": 0, "failed": 1, "canceled": 2}


class Command(ApiCommand):
    """Make a model; exit code 0 made (or queued), 1 failed, 2 canceled, 3 refused, 4 the console is away."""

    help = "Make a model of a checkpoint of a run through the API"

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Say what it takes."""
        parser.add_argument("run", help="id of the run, like r-12ab34cd")
        parser.add_argument("step", type=int, help="step of the checkpoint")
        parser.add_argument("--attempt", type=int, metavar="A", help="whose checkpoint, where several saved that step")
        parser.add_argument("--wait", action="store_true", help="wait until the model is there")
        self.add_console_arguments(parser)

    def handle(self, *_args: Any, **options: Any) -> None:
        """Ask for it, and leave with the exit code of what became of it."""
        self.ask(options, lambda client: self._make(client, options["run"], options))

    def _make(self, client: ApiClient, run_id: str, options: Mapping[str, Any]) -> int:
        step, attempt = options["step"], options["attempt"]
        if attempt is None:
            attempt = next((c["attempt"] for c in client.checkpoints(run_id) if c["step"] == step), None)
        if attempt is None:
            raise CommandError(f"{run_id} has no checkpoint of step {step}.", returncode=REFUSED)
        merge = client.make_model(run_id, attempt, step)
        self.stdout.write(f"A model of checkpoint {step} of attempt {attempt} of {run_id} is asked for")
        if not options["wait"]:
            return 0
        merge = client.follow_merge(run_id, merge["id"])
        self.stdout.write(merge["problem"] or f"{run_id}: the model of checkpoint {step} is {merge['state']}")
        return EXIT_CODES[merge["state"]]
