"""`manage.py launch spec.json`: launch a run through the API, and follow it to its end if asked to."""

import secrets
from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from console.command_line.api_client import ApiClient
from console.command_line.api_command import ApiCommand, read_spec
from console.command_line.environment import add_environment_arguments, with_environment


class Command(ApiCommand):
    """Launch a spec; exit code 0 finished (or queued), 1 failed, 2 stopped, 3 refused, 4 the console is away."""

    help = "Launch a run from a spec file through the API"

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Say what it takes."""
        parser.add_argument("spec", help="path of a JSON file with the run spec, or - for standard input")
        parser.add_argument("--wait", action="store_true", help="follow the run to its end and print its table")
        self.add_console_arguments(parser)
        parser.add_argument("--project", help="slug of the project; else your first one")
        parser.add_argument("--key", help="idempotency key: the same key launches the same run only once")
        parser.add_argument("--parent", help="id of the run that this one is a clone of")
        add_environment_arguments(parser)

    def handle(self, *_args: Any, **options: Any) -> None:
        """Launch, and leave with the exit code of what became of it."""
        spec = with_environment(read_spec(options["spec"]), options)
        self.ask(options, lambda client: self._launch(client, spec, options))

    def _launch(self, client: ApiClient, spec: Any, options: Mapping[str, Any]) -> int:
        key = options["key"] or secrets.token_hex(16)
        launched = client.launch(spec, key=key, project=options["project"], parent=options["parent"])
        outcome = "queued" if launched.is_new else "was launched before with this key"
        self.stdout.write(f"{launched.id} {outcome}: {launched.url}")
        if launched.note:
            self.stdout.write(launched.note)
        if not options["wait"]:
            return 0
        return self.follow_run(client, launched.id, page=launched.url)
