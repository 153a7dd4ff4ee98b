"""`manage.py launch spec.json`: launch a run through the API, and follow it to its end if asked to."""

import json
import os
import secrets
import sys
from argparse import ArgumentParser
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from console.api_client import ApiClient, ConsoleAway, RequestRefused
from console.run_table import run_table, wanted

EXIT_CODES = {"finished": 0, "failed": 1, "stopped": 2}
REFUSED = 3
AWAY = 4
TOKEN_VARIABLE = "PITWALL_API_TOKEN"  # noqa: S105 - the name of the variable


class Command(BaseCommand):
    """Launch a spec; exit code 0 finished (or queued), 1 failed, 2 stopped, 3 refused, 4 the console is away."""

    help = "Launch a run from a spec file through the API"
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Say what it takes."""
        parser.add_argument("spec", help="path of a JSON file with the run spec, or - for standard input")
        parser.add_argument("--wait", action="store_true", help="follow the run to its end and print its table")
        parser.add_argument(
            "--url", default=os.environ.get("PITWALL_URL", settings.PUBLIC_URL), help="address of the console"
        )
        parser.add_argument("--token-file", help=f"file with the API token; else {TOKEN_VARIABLE} is read")
        parser.add_argument("--project", help="slug of the project; else your first one")
        parser.add_argument("--key", help="idempotency key: the same key launches the same run only once")

    def handle(self, *_args: Any, **options: Any) -> None:
        """Launch, and leave with the exit code of what became of it."""
        spec = read_spec(options["spec"])
        client = ApiClient(options["url"], read_token(options["token_file"]))
        try:
            code = self._launch(client, spec, options)
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

    def _launch(self, client: ApiClient, spec: Any, options: Mapping[str, Any]) -> int:
        key = options["key"] or secrets.token_hex(16)
        launched = client.launch(spec, key=key, project=options["project"])
        said = "queued" if launched.is_new else "was launched before with this key"
        self.stdout.write(f"{launched.id} {said}: {launched.url}")
        if not options["wait"]:
            return 0
        progress = Progress(self)
        try:
            header = client.follow(launched.id, tell=progress.tell)
        except KeyboardInterrupt:
            self.stdout.write(f"\nNo longer following; the run goes on: {launched.url}")
            return 0
        known = set(client.metric_names(launched.id))
        names = [name for name in wanted() if name in known]
        series = client.series(launched.id, names) if names else []
        self.stdout.write(run_table(header, series))
        return EXIT_CODES[header["state"]]


class Progress:
    """Prints a line when the state, the step or the reason to wait changes."""

    def __init__(self, command: BaseCommand) -> None:
        self._command = command
        self._said = ""

    def tell(self, header: Mapping[str, Any]) -> None:
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
        if line != self._said:
            self._said = line
            self._command.stdout.write(line)


def read_spec(path: str) -> Any:
    """Return the JSON of the file. Raises: CommandError naming the file, and line and column of a mistake."""
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise CommandError(f"Cannot read the spec {path}: {why}. Name a JSON file.", returncode=REFUSED) from error
    try:
        return json.loads(text)
    except ValueError as error:
        raise CommandError(f"{path} is not JSON: {error}.", returncode=REFUSED) from error


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
