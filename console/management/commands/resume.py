"""`manage.py resume r-12ab34cd`: start an ended run again through the API, and follow it to its end if asked to."""

import os
import sys
from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from console.api_client import ApiClient, ConsoleAway, RequestRefused
from console.management.commands.launch import (
    AWAY,
    EXIT_CODES,
    REFUSED,
    TOKEN_VARIABLE,
    Progress,
    read_token,
)
from console.run_table import run_table, wanted


class Command(BaseCommand):
    """Resume a run; exit code 0 finished (or queued), 1 failed, 2 stopped, 3 refused, 4 the console is away."""

    help = "Start an ended run again from a checkpoint through the API"
    requires_system_checks: list[str] = []

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
        parser.add_argument(
            "--url", default=os.environ.get("PITWALL_URL", settings.PUBLIC_URL), help="address of the console"
        )
        parser.add_argument("--token-file", help=f"file with the API token; else {TOKEN_VARIABLE} is read")

    def handle(self, *_args: Any, **options: Any) -> None:
        """Resume, and leave with the exit code of what became of it."""
        if options["from_start"] and (options["step"] is not None or options["attempt"] is not None):
            raise CommandError("--from-start takes no checkpoint: leave out --step and --attempt.", returncode=REFUSED)
        client = ApiClient(options["url"], read_token(options["token_file"]))
        try:
            code = self._resume(client, options["run"], options)
        except RequestRefused as refused:
            self.stderr.write(f"The console refused this ({refused.status}):")
            for field, text in refused.problems:
                self.stderr.write(f"  {field or 'request'}: {text}")
            code = REFUSED
        except ConsoleAway as away:
            self.stderr.write(f"{away} Start it with `make up`, or name its address with --url.")
            code = AWAY
        finally:
            client.close()
        if code:
            sys.exit(code)

    def _resume(self, client: ApiClient, run_id: str, options: Mapping[str, Any]) -> int:
        about: dict[str, Any] = {"step": None if options["from_start"] else self._step(client, run_id, options)}
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
        try:
            header = client.follow(run_id, tell=Progress(self).tell)
        except KeyboardInterrupt:
            self.stdout.write("\nNo longer following; the run goes on")
            return 0
        known = set(client.metric_names(run_id))
        names = [name for name in wanted() if name in known]
        self.stdout.write(run_table(header, client.series(run_id, names) if names else []))
        return EXIT_CODES[header["state"]]

    def _step(self, client: ApiClient, run_id: str, options: Mapping[str, Any]) -> int:
        """Return the step asked for, else that of the newest checkpoint of the run's history."""
        if options["step"] is not None:
            return int(options["step"])
        found = [c for c in client.checkpoints(run_id) if c["attempt"] == (options["attempt"] or c["attempt"])]
        shown = [c for c in found if c["is_visible"]] or found
        if not shown:
            text = f"{run_id} has no checkpoint to go on from. Start it again with --from-start, or launch a clone."
            raise CommandError(text, returncode=REFUSED)
        return int(shown[0]["step"])
