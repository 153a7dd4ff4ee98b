"""`manage.py resume r-12ab34cd`: start an ended run again through the API, and follow it to its end if asked to."""

from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from django.core.management.base import CommandError

from console.command_line.api_client import ApiClient
from console.command_line.api_command import REFUSED, ApiCommand


class Command(ApiCommand):
    """Resume a run; exit code 0 finished (or queued), 1 failed, 2 stopped, 3 refused, 4 the console is away."""

    help = "Start an ended run again from a checkpoint through the API"

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Say what it takes."""
        parser.add_argument("run", help="id of the run, like r-12ab34cd")
        parser.add_argument("--step", type=int, metavar="N", help="step of the checkpoint; else the newest there is")
        parser.add_argument(
            "--from-start", action="store_true", help="start again from the start, without a checkpoint"
        )
        parser.add_argument("--attempt", type=int, metavar="A", help="whose checkpoint, where several saved that step")
        parser.add_argument("--ranks", type=int, metavar="K", help="policy ranks; else as many as before")
        parser.add_argument("--steps", type=int, metavar="N", help="train to this step; else to the same as before")
        parser.add_argument("--wait", action="store_true", help="follow the run to its end and print its table")
        self.add_console_arguments(parser)

    def handle(self, *_args: Any, **options: Any) -> None:
        """Resume, and leave with the exit code of what became of it."""
        if options["from_start"] and (options["step"] is not None or options["attempt"] is not None):
            raise CommandError("--from-start takes no checkpoint: leave out --step and --attempt.", returncode=REFUSED)
        self.ask(options, lambda client: self._resume(client, options["run"], options))

    def _resume(self, client: ApiClient, run_id: str, options: Mapping[str, Any]) -> int:
        about: dict[str, object] = {"step": None if options["from_start"] else self._step(client, run_id, options)}
        if options["attempt"] is not None:
            about["attempt"] = options["attempt"]
        if options["ranks"] is not None:
            about["hardware"] = {"policy_ranks": options["ranks"]}
        if options["steps"] is not None:
            about["num_steps"] = options["steps"]
        resumed = client.resume(run_id, about)
        origin = "the start" if about["step"] is None else f"checkpoint {about['step']}"
        self.stdout.write(f"{run_id} queued again from {origin}, attempt {resumed['attempt']}")
        if not options["wait"]:
            return 0
        return self.follow_run(client, run_id)

    def _step(self, client: ApiClient, run_id: str, options: Mapping[str, Any]) -> int:
        """Return the step asked for, else that of the newest checkpoint of the run's history that is not lost."""
        if options["step"] is not None:
            return int(options["step"])
        listed = [c for c in client.checkpoints(run_id) if c["attempt"] == (options["attempt"] or c["attempt"])]
        usable = [c for c in listed if not c["problem"]]
        usable = [c for c in usable if not c["is_after_divergence"]] or usable
        shown = [c for c in usable if c["is_visible"]] or usable
        if not shown:
            text = f"{run_id} has no checkpoint to go on from. Start it again with --from-start, or launch a clone."
            if listed:
                last = listed[0]
                text = f"{text} If the node of a lost one is back, name it: --step {last['step']} ({last['problem']})."
            raise CommandError(text, returncode=REFUSED)
        return int(shown[0]["step"])
