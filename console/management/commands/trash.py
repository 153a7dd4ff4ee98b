"""`manage.py trash`: list what was deleted, take it back, or delete it for good, through the API."""

from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from django.core.management.base import CommandError

from console.command_line.api_client import ApiClient
from console.command_line.api_command import REFUSED, ApiCommand
from console.command_line.api_json import TrashEntryJson
from console.labels.numbers import size


class Command(ApiCommand):
    """List or change the trash; exit code 0 done, 3 refused, 4 the console is away."""

    help = "List what is in the trash, take something back, or delete it for good"

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Say what it takes."""
        parser.add_argument("--project", help="slug of the project; without it, your first one")
        verbs = parser.add_mutually_exclusive_group()
        verbs.add_argument("--restore", type=int, metavar="N", help="take entry N back")
        verbs.add_argument("--purge", type=int, metavar="N", help="delete entry N for good, now")
        parser.add_argument("--name", help="with --purge: the run's name, to say that it is meant")
        self.add_console_arguments(parser)

    def handle(self, *_args: Any, **options: Any) -> None:
        """List or change, and leave with the exit code of what became of it."""
        if options["purge"] is not None and not options["name"]:
            raise CommandError("--purge needs --name with the name of the run.", returncode=REFUSED)
        self.ask(options, lambda client: self._act(client, options))

    def _act(self, client: ApiClient, options: Mapping[str, Any]) -> int:
        if options["restore"] is not None:
            entry = client.restore(options["restore"])
            self.stdout.write(f"{entry['kind']} of {entry['run_id']} {entry['run_name']}: back")
        elif options["purge"] is not None:
            entry = client.purge(options["purge"], name=options["name"])
            self.stdout.write(f"{entry['kind']} of {entry['run_id']} {entry['run_name']}: being deleted for good")
        else:
            entries = client.trash(options["project"])
            for entry in entries:
                self.stdout.write(_line(entry))
            if not entries:
                self.stdout.write("The trash is empty.")
        return 0


def _line(entry: TrashEntryJson) -> str:
    who = "retention" if entry["is_by_rule"] else entry["author"] or "-"
    until = f"until {entry['purge_at'][:10]}" if entry["state"] == "kept" else entry["state"]
    taken = f"{size(entry['bytes_here'])} here, {size(entry['bytes_cluster'])} on the cluster"
    what = f"{entry['kind']} of {entry['run_id']} {entry['run_name']}"
    return f"{entry['id']:>6}  {what}: {taken}, by {who}, {entry['problem'] or until}"
