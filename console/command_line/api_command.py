"""What the commands that go through the API share: where the console is, who asks, what a refusal looks like."""

import json
import os
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from console.command_line.api_client import ApiClient, ConsoleAway, RequestRefused
from console.command_line.api_json import RunJson
from console.command_line.local_planner import LocalPlanner
from console.command_line.run_table import run_table, wanted
from console.labels.json_error import why_not_json

EXIT_CODES = {"finished": 0, "failed": 1, "stopped": 2}
REFUSED = 3
AWAY = 4
TOKEN_VARIABLE = "PITWALL_API_TOKEN"  # noqa: S105 - the name of the variable


Client = TypeVar("Client", bound=ApiClient | LocalPlanner)


def console_url() -> str:
    """Return the address of the console that is asked where none is named."""
    return os.environ.get("PITWALL_URL", settings.PUBLIC_URL)


class ApiCommand(BaseCommand):
    """A command that asks a console over HTTP, on this machine or elsewhere."""

    requires_system_checks: list[str] = []

    def add_console_arguments(self, parser: ArgumentParser) -> None:
        """Take where the console is and the token."""
        parser.add_argument("--url", default=console_url(), help="address of the console")
        parser.add_argument("--token-file", help=f"file with the API token; else {TOKEN_VARIABLE} is read")

    def ask(self, options: Mapping[str, Any], act: Callable[[ApiClient], int]) -> None:
        """Leave with the exit code that `act` returns, or with that of a refusal or of a console that is away.

        Raises: CommandError if there is no token.
        """
        self._leave(ApiClient(options["url"], read_token(options["token_file"])), act)

    def _leave(self, client: Client, act: Callable[[Client], int]) -> None:
        try:
            code = act(client)
        except RequestRefused as refused:
            is_here = isinstance(client, LocalPlanner)
            who = "The planner refused this" if is_here else f"The console refused this ({refused.status})"
            self.stderr.write(f"{who}:")
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

    def add_planner_arguments(self, parser: ArgumentParser) -> None:
        """Take which console to ask instead of planning here."""
        parser.add_argument("--url", help="address of a console to ask: its prices, constants and cluster")
        parser.add_argument("--token-file", help=f"file with the API token of a console; else {TOKEN_VARIABLE} is read")
        parser.add_argument("--project", help="slug of the console's project to plan in; else your first one")

    def ask_planner(self, options: Mapping[str, Any], act: Callable[[ApiClient | LocalPlanner], int]) -> None:
        """Act as `ask` does, here where no console is named: by what is shipped, without a token."""
        if not (options["url"] or options["token_file"] or options["project"]):
            self._leave(LocalPlanner(), act)
            return
        self.ask({**options, "url": options["url"] or console_url()}, act)

    def follow_run(self, client: ApiClient, run_id: str, *, page: str = "") -> int:
        """Print what changes until the run has ended, then its table; return the exit code of its state.

        Ctrl-C stops following, not the run: 0, with a line that names its `page`.
        """
        progress = ProgressPrinter(self.stdout.write)
        try:
            header = client.follow(run_id, tell=progress.tell)
        except KeyboardInterrupt:
            self.stdout.write("\nNo longer following; the run goes on" + (f": {page}" if page else ""))
            return 0
        reported = set(client.metric_names(run_id))
        names = [name for name in wanted() if name in reported]
        self.stdout.write(run_table(header, client.series(run_id, names) if names else []))
        return EXIT_CODES[header["state"]]


class ProgressPrinter:
    """Says a line when the state, the step or the reason to wait changes."""

    def __init__(self, say: Callable[[str], object]) -> None:
        self._say = say
        self._printed = ""

    def tell(self, header: RunJson) -> None:
        """Say what is new."""
        parts = [header["state"]]
        if header["state"] == "queued":
            parts.append(f"place {header['queue_position']}" if header["queue_position"] else "")
            parts.append(header["wait_reason"])
        elif header["step"]:
            parts.append(f"step {header['step']} of {header['num_steps']}")
        else:
            parts.append(header["activity"])
        line = ", ".join(part for part in parts if part)
        if line != self._printed:
            self._printed = line
            self._say(line)


def read_spec(path: str) -> Any:
    """Return the JSON of the file. Raises: CommandError naming the file, and line and column of a mistake."""
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise CommandError(f"Cannot read {path}: {why}. Name a JSON file.", returncode=REFUSED) from error
    try:
        return json.loads(text)
    except ValueError as error:
        raise CommandError(f"{path} is not JSON: {why_not_json(text, error)}.", returncode=REFUSED) from error


def read_token(path: str | None) -> str:
    """Return the API token from the file or the environment. Raises: CommandError saying how to make one."""
    if path:
        try:
            token = Path(path).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise CommandError(f"Cannot read the token file {path}: {error.strerror}.", returncode=REFUSED) from error
    else:
        token = os.environ.get(TOKEN_VARIABLE, "").strip()
    if not token:
        text = f"No API token. Make one on the console's account page and set {TOKEN_VARIABLE}, or name a --token-file."
        raise CommandError(text, returncode=REFUSED)
    if not token.isascii() or any(c.isspace() for c in token):
        raise CommandError("The API token holds characters that no token has. Copy it again.", returncode=REFUSED)
    return token
