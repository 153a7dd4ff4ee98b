"""`manage.py retention team checkpoints:days=14,keep_last=2`: what ended runs of a project keep, through the API."""

from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from typing import Any

from django.core.management.base import CommandError

from console.command_line.api_client import ApiClient
from console.command_line.api_command import REFUSED, ApiCommand
from console.command_line.api_json import RetentionJson
from console.labels.numbers import size
from profiling.counted import counted


class Command(ApiCommand):
    """Show, try or set the rules; exit code 0 done, 3 refused, 4 the console is away. An admin's token sets them."""

    help = "Show, try or set how long a project keeps logs, samples, captures and checkpoints of ended runs"

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Say what it takes."""
        parser.add_argument("project", help="slug of the project")
        about = "like checkpoints:days=14,keep_last=2,keep_best=1, or logs:none to keep them for good; others stay"
        parser.add_argument("rules", nargs="*", metavar="kind:rule", help=about)
        parser.add_argument("--trash-days", type=int, help="for how many days what went can be taken back")
        parser.add_argument("--dry-run", action="store_true", help="say what would go now, and change nothing")
        self.add_console_arguments(parser)

    def handle(self, *_args: Any, **options: Any) -> None:
        """Show, try or set, and leave with the exit code of what became of it."""
        changes = _read(options["rules"])
        self.ask(options, lambda client: self._act(client, options["project"], changes, options))

    def _act(
        self, client: ApiClient, project: str, changes: Mapping[str, dict[str, int] | None], options: Mapping[str, Any]
    ) -> int:
        policy = client.retention(project)
        choices: Mapping[str, Mapping[str, object] | None] = {**policy["rules"], **changes}
        rules = {kind: rule for kind, rule in choices.items() if rule is not None}
        if options["dry_run"]:
            self._show_going(client, project, rules)
            return 0
        if changes or options["trash_days"] is not None:
            days = policy["trash_days"] if options["trash_days"] is None else options["trash_days"]
            policy = client.set_retention(project, rules, trash_days=days)
        self._show(policy)
        return 0

    def _show(self, policy: RetentionJson) -> None:
        for kind, rule in policy["rules"].items():
            self.stdout.write(f"{kind:<12} " + ", ".join(f"{k} {v}" for k, v in rule.items() if v is not None))
        if not policy["rules"]:
            self.stdout.write("Everything is kept for good.")
        days = policy["trash_days"] if policy["trash_days"] is not None else policy["console_trash_days"]
        self.stdout.write(counted(f"{'trash':<12} {days} days"))

    def _show_going(self, client: ApiClient, project: str, rules: Mapping[str, object]) -> None:
        preview = client.preview_retention(project, rules)
        for each in preview["going"]:
            taken = f"{size(each['bytes_here'])} here, {size(each['bytes_cluster'])} on the cluster"
            self.stdout.write(f"{each['run_id']} {each['run_name']}: {each['num_things']} × {each['kind']}, {taken}")
        total = f"{size(preview['bytes_here'])} here, {size(preview['bytes_cluster'])} on the cluster"
        self.stdout.write(f"{preview['total']} would go now: {total}. Nothing was changed.")


def _read(arguments: Sequence[str]) -> dict[str, dict[str, int] | None]:
    """Return kind -> rule, None for none, of `kind:name=number,...`. Raises: CommandError naming what is none."""
    rules: dict[str, dict[str, int] | None] = {}
    for argument in arguments:
        kind, _colon, text = argument.partition(":")
        parts = [part.partition("=") for part in text.split(",")]
        if text == "none":
            rules[kind] = None
        elif all(number.isdecimal() for _name, _sign, number in parts):
            rules[kind] = {name: int(number) for name, _sign, number in parts}
        else:
            said = f"{argument!r} is not of the form kind:days=30,keep_last=5,keep_best=1 or kind:none."
            raise CommandError(said, returncode=REFUSED)
    return rules
