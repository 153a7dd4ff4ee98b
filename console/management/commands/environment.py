"""`manage.py environment team --secret HF_TOKEN`: what runs of a project are given, through the API."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from console.command_line.api_client import ApiClient
from console.command_line.api_command import REFUSED, ApiCommand
from console.command_line.api_json import EnvironmentJson
from console.command_line.environment import add_environment_arguments, read_secret, read_variable


class Command(ApiCommand):
    """Show, set or remove; exit code 0 done, 3 refused, 4 the console is away. An admin's token sets and removes."""

    help = "Show, set or remove environment variables and secrets of a project"

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Say what it takes."""
        parser.add_argument("project", help="slug of the project")
        add_environment_arguments(parser)
        parser.add_argument("--remove", action="append", default=[], metavar="NAME", help="a variable or secret to end")
        self.add_console_arguments(parser)

    def handle(self, *_args: Any, **options: Any) -> None:
        """Set and remove, show what there is then, and leave with the exit code of what became of it."""
        wanted = [(name, value, False) for name, value in map(read_variable, options["env"])]
        for name, value in map(read_secret, options["secret"]):
            if not value:
                said = f"{name} is not set here. Set it in the environment, or write --secret {name}=@FILE."
                raise CommandError(said, returncode=REFUSED)
            wanted.append((name, value, True))
        self.ask(options, lambda client: self._act(client, options["project"], wanted, options["remove"]))

    def _act(self, client: ApiClient, project: str, wanted: list[tuple[str, str, bool]], gone: list[str]) -> int:
        for name, value, is_secret in wanted:
            client.set_variable(project, name, value, is_secret=is_secret)
        for name in gone:
            client.remove_variable(project, name)
        self._show(client.environment(project))
        return 0

    def _show(self, answer: EnvironmentJson) -> None:
        for each in answer["variables"]:
            shown = "(secret)" if each["is_secret"] else each["value"]
            self.stdout.write(f"{each['name']:<32} {shown}")
        if not answer["variables"]:
            self.stdout.write("No variables and no secrets.")
