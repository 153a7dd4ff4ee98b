"""What the commands that ask the planner share: `can_it_run` of language models, `diffusion`."""

import json
from abc import ABC, abstractmethod
from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any, ClassVar, Generic, TypeVar

from django.core.management.base import CommandError

from console.command_line.api_client import ApiClient
from console.command_line.api_command import REFUSED, ApiCommand, read_spec
from console.command_line.local_planner import LocalPlanner
from console.command_line.planner_json import CanItRunJson, DiffusionJson

RUNS_NOWHERE = 1

Answer = TypeVar("Answer", CanItRunJson, DiffusionJson)


class PlanQuestion(ApiCommand, ABC, Generic[Answer]):
    """Does a model train, and where? Exit code 0 it does somewhere, 1 nowhere (nor where it is possible and no more),
    3 refused, 4 the console that was named is away. Answered here, by what is shipped, unless a console is named.

    `numbers` are the fields of the request that are whole numbers, with what they mean.
    """

    methods: ClassVar[str]
    method: ClassVar[str]
    numbers: ClassVar[Mapping[str, str]]

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Say what every question takes."""
        parser.add_argument(
            "model", nargs="?", default="", help="id or hub repository of a known model, or a folder with a config.json"
        )
        parser.add_argument("--config", help="config.json of a model that is not known")
        parser.add_argument("--method", default=self.method, help=self.methods)
        parser.add_argument("--on", nargs="+", default=["h100-sxm"], help="accelerators, side by side")
        for name, help_text in self.numbers.items():
            parser.add_argument(f"--{name}", type=int, help=help_text)
        parser.add_argument("--json", action="store_true", help="print the API's answer instead of a table")
        parser.add_argument("--within-hours", type=float, help="that a practical step takes at most; else one hour")
        parser.add_argument("--host-gb", type=float, help="RAM of a node, GB; else 250 for each device that is used")
        self.add_planner_arguments(parser)

    @abstractmethod
    def answer(self, client: ApiClient | LocalPlanner, project: str, body: Mapping[str, object]) -> Answer:
        """Return what the console answers."""

    @abstractmethod
    def text(self, answer: Answer) -> str:
        """Return the answer as people read it in a terminal."""

    def body(self, options: Mapping[str, Any]) -> dict[str, object]:
        """Return the body of the request. Raises: CommandError for a config that is no JSON object."""
        body: dict[str, object] = {"model": options["model"], "method": options["method"], "on": options["on"]}
        if options["config"]:
            body["config"] = read_spec(options["config"])
            if not isinstance(body["config"], dict):
                raise CommandError(f"{options['config']} is not a JSON object.", returncode=REFUSED)
        names = (name.replace("-", "_") for name in (*self.numbers, "within-hours", "host-gb"))
        return body | {name: options[name] for name in names if options[name] is not None}

    def handle(self, *_args: Any, **options: Any) -> None:
        """Ask, print, and leave with the exit code."""
        body = self.body(options)

        def ask(client: ApiClient | LocalPlanner) -> int:
            answer = self.answer(client, options["project"] or client.first_project(), body)
            self.stdout.write(json.dumps(answer, indent=2) if options["json"] else self.text(answer))
            return 0 if any(each["answer"] == "yes" for each in answer["options"]) else RUNS_NOWHERE

        self.ask_planner(options, ask)
