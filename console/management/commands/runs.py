"""`manage.py runs 'state:failed lr>1e-4'`: list runs through the API, and do something to all that match."""

from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from console.command_line.api_client import ApiClient
from console.command_line.api_command import REFUSED, ApiCommand
from profiling.counted import counted

VERBS = ("tag", "untag", "archive", "restore", "stop", "delete")


class Command(ApiCommand):
    """List or change runs; exit code 0 done, 3 refused (by any run), 4 the console is away."""

    help = "List the runs that a filter finds, or do something to all of them"

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Say what it takes."""
        parser.add_argument("filter", nargs="?", default="", help="the filter line, as on the page (docs/use/runs.md)")
        parser.add_argument("--sort", default="-created", help="a field, knob or metric; - first for descending")
        parser.add_argument("--archived", action="store_true", help="the archived runs instead of the others")
        parser.add_argument("--limit", type=int, default=50, help="list at most so many, up to 500 (%(default)s)")
        parser.add_argument("--do", choices=VERBS, help="do this to all that match, 500 at most")
        parser.add_argument("--tag", action="append", default=[], metavar="TAG", help="for --do tag and untag")
        parser.add_argument("--project", help="slug of the project; else your first one")
        self.add_console_arguments(parser)

    def handle(self, *_args: Any, **options: Any) -> None:
        """List or change, and leave with the exit code of what became of it."""
        self.ask(options, lambda client: (self._change if options["do"] else self._list)(client, options))

    def _list(self, client: ApiClient, options: Mapping[str, Any]) -> int:
        page = client.runs(
            options["filter"],
            sort=options["sort"],
            is_archived=options["archived"],
            limit=options["limit"],
            project=options["project"],
        )
        for row in page["runs"]:
            run = row["run"]
            tags = "".join(f" #{tag}" for tag in run["tags"])
            self.stdout.write(
                f"{run['id']}  {run['state']:<9} {run['step']:>6}/{run['num_steps']:<6} {run['name']}{tags}"
            )
        more = "" if page["is_counted"] else "more than "
        self.stdout.write(counted(f"{len(page['runs'])} of {more}{page['total']} runs"))
        return 0

    def _change(self, client: ApiClient, options: Mapping[str, Any]) -> int:
        body = {"verb": options["do"], "q": options["filter"], "tags": options["tag"], "archived": options["archived"]}
        done = client.change_runs(body, project=options["project"])
        for run in done["refused"]:
            self.stderr.write(f"{run['id']} {run['name']}: {run['message']}")
        self.stdout.write(counted(f"{options['do']}: {len(done['done'])} runs changed"))
        return REFUSED if done["refused"] else 0
