"""`manage.py delete r-12ab34cd r-56ef78ab`: move runs to the trash through the API."""

from argparse import ArgumentParser
from collections.abc import Sequence
from typing import Any

from console.command_line.api_client import ApiClient
from console.command_line.api_command import REFUSED, ApiCommand
from console.labels.numbers import size


class Command(ApiCommand):
    """Delete runs; exit code 0 if all went (or will, once stopped), 3 if any was refused, 4 the console is away."""

    help = "Move runs to the trash, from where `manage.py trash` takes them back"

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Say what it takes."""
        parser.add_argument("runs", nargs="+", metavar="run", help="ids of runs, like r-12ab34cd")
        parser.add_argument("--stop", action="store_true", help="stop live ones first; they go when they have ended")
        parser.add_argument("--dry-run", action="store_true", help="change nothing, and say what would become of each")
        self.add_console_arguments(parser)

    def handle(self, *_args: Any, **options: Any) -> None:
        """Delete, and leave with the exit code of what became of it."""
        self.ask(options, lambda client: self._delete(client, options["runs"], options["stop"], options["dry_run"]))

    def _delete(self, client: ApiClient, runs: Sequence[str], stop: bool, is_dry_run: bool) -> int:
        done = client.delete(runs, stop=stop, is_dry_run=is_dry_run)
        for run in done:
            if run["outcome"] == "refused":
                self.stderr.write(f"{run['id']}: {run['message']}")
                continue
            what = "would go" if is_dry_run else "stops, then goes" if run["outcome"] == "stopping" else "went"
            taken = f"{size(run['bytes_here'])} here, {size(run['bytes_cluster'])} on the cluster"
            until = f", until {run['purge_at'][:10]}" if run["purge_at"] else ""
            self.stdout.write(f"{run['id']} {run['name']}: {what} to the trash{until} ({taken})")
        return REFUSED if any(run["outcome"] == "refused" for run in done) else 0
