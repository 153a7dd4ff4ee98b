"""`manage.py profile r-12ab34cd`: record steps of a running run through the API, save them, or take that back."""

from argparse import ArgumentParser
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError

from console.command_line.api_client import ApiClient
from console.command_line.api_command import REFUSED, ApiCommand
from console.command_line.api_json import CaptureJson
from profiling.config import TOOLS, WHATS, names_of, ranks_of

FAILED = 1
WITHDRAWN = 2


class Command(ApiCommand):
    """Record steps; exit code 0 ready (or asked for), 1 the capture failed, 2 it was withdrawn, 3 refused, 4 the
    console is away. With --withdraw: 0 withdrawn, 1 recording had begun.
    """

    help = "Record steps of a running run through the API"

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Say what it takes."""
        parser.add_argument("run", help="id of the run, like r-12ab34cd")
        parser.add_argument("--what", default="", help=f"{', '.join(WHATS[:-1])} or {WHATS[-1]}; else kernels")
        parser.add_argument(
            "--tool", default="", help=f"{', '.join(TOOLS[:-1])} or {TOOLS[-1]}; else picked for --what"
        )
        parser.add_argument("--steps", type=int, default=2, metavar="N", help="how many steps to record")
        parser.add_argument("--seconds", type=float, default=0, metavar="S", help="record at once, by time, not steps")
        parser.add_argument("--from-step", type=int, default=0, metavar="N", help="the first step; else the next one")
        parser.add_argument("--roles", default="", help="like policy,vllm; else all")
        parser.add_argument("--ranks", default="", help="like 0,2 or 0-3; else all")
        parser.add_argument("--out", metavar="FOLDER", help="wait until it is ready and save it there as a zip")
        parser.add_argument(
            "--withdraw", metavar="ID", help="take this capture back while it is armed; records nothing"
        )
        self.add_console_arguments(parser)

    def handle(self, *_args: Any, **options: Any) -> None:
        """Ask, follow if there is a folder to save to, and leave with the exit code of what became of it."""
        if withdrawn := options["withdraw"]:
            self.ask(options, lambda client: self._withdraw(client, options["run"], withdrawn))
            return
        folder = Path(options["out"]) if options["out"] else None
        if folder is not None and not folder.is_dir():
            raise CommandError(f"{folder} is no folder. Make it first, or name another.", returncode=REFUSED)
        try:
            ranks = ranks_of(options["ranks"])
        except ValueError as error:
            raise CommandError(f"--ranks: {error}", returncode=REFUSED) from error
        body = {
            "what": options["what"],
            "tool": options["tool"],
            "first_step": options["from_step"],
            "num_steps": options["steps"],
            "seconds": options["seconds"],
            "roles": names_of(options["roles"]),
            "ranks": ranks,
        }
        self.ask(options, lambda client: self._profile(client, options["run"], body, folder))

    def _profile(self, client: ApiClient, run_id: str, body: Mapping[str, object], folder: Path | None) -> int:
        capture = client.profile(run_id, body)
        what = f"{capture['seconds']:g} s" if capture["seconds"] else f"{capture['num_steps']} steps"
        self.stdout.write(f"{capture['id']} asked for: {capture['what']} of {what} with {capture['tool']}")
        if folder is None:
            return 0
        printed = ""

        def tell(now: CaptureJson) -> None:
            nonlocal printed
            if now["state"] != printed:
                printed = now["state"]
                self.stdout.write(printed)

        try:
            ended = client.follow_capture(run_id, capture["id"], tell=tell)
        except KeyboardInterrupt:
            self.stdout.write("\nNo longer following; the capture goes on")
            return 0
        if ended["state"] == "withdrawn":
            return WITHDRAWN
        if ended["state"] == "failed":
            self.stderr.write(ended["problem"])
            return FAILED
        self.stdout.write(str(client.save_capture(run_id, capture["id"], folder)))
        return 0

    def _withdraw(self, client: ApiClient, run_id: str, capture_id: str) -> int:
        capture = client.withdraw_capture(run_id, capture_id)
        if capture["state"] == "armed":
            self.stdout.write(f"{capture_id}: withdrawal asked for. The trainer takes it before its next step")
            try:
                capture = client.follow_withdrawal(run_id, capture_id)
            except KeyboardInterrupt:
                self.stdout.write("\nNo longer following; the withdrawal stays asked for")
                return 0
        if capture["state"] == "withdrawn":
            self.stdout.write(f"{capture_id} withdrawn; nothing was recorded")
            return 0
        if capture["state"] == "failed":
            self.stderr.write(capture["problem"])
        else:
            self.stderr.write(f"{capture_id} goes on ({capture['state']}): recording had begun")
        return FAILED
