"""`manage.py can_it_run qwen2.5-7b --method grpo --on h100 l40s`: ask through the API what trains a model."""

import json
from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from django.core.management.base import CommandError

from console.api_client import ApiClient
from console.api_command import REFUSED, ApiCommand, read_spec
from console.plan_text import can_it_run_text

RUNS_NOWHERE = 1
_NUMBERS = {
    "devices": "number of devices to judge; else the fewest are looked for",
    "max-prompt": "tokens of the longest prompt",
    "max-response": "tokens of the longest answer",
    "prompts": "of a step with rollouts",
    "samples-per-prompt": "of a step with rollouts",
    "batch-size": "samples of a step without rollouts",
}


class Command(ApiCommand):
    """Can it run? Exit code 0 it does somewhere, 1 nowhere for sure, 3 refused, 4 the console is away."""

    help = "Say whether a model can be trained by a method, on which hardware, on how few devices and how fast"

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Say what it takes."""
        parser.add_argument("model", nargs="?", default="", help="id, hub repository, or folder that the console sees")
        parser.add_argument("--config", help="config.json of a model that the console does not know")
        parser.add_argument("--method", default="grpo", help="sft, sft-lora, grpo, ppo and more; a wrong one names all")
        parser.add_argument("--on", nargs="+", default=["h100-sxm"], help="accelerators, side by side")
        for name, says in _NUMBERS.items():
            parser.add_argument(f"--{name}", type=int, help=says)
        parser.add_argument("--json", action="store_true", help="print the API's answer instead of a table")
        self.add_console_arguments(parser)
        parser.add_argument("--project", help="slug of the project; else your first one")

    def handle(self, *_args: Any, **options: Any) -> None:
        """Ask, print, and leave with the exit code."""
        asked: dict[str, Any] = {"model": options["model"], "method": options["method"], "on": options["on"]}
        if options["config"]:
            asked["config"] = read_spec(options["config"])
            if not isinstance(asked["config"], dict):
                raise CommandError(f"{options['config']} is not a JSON object.", returncode=REFUSED)
        names = (name.replace("-", "_") for name in _NUMBERS)
        asked |= {name: options[name] for name in names if options[name] is not None}
        self.ask(options, lambda client: self._answer(client, asked, options))

    def _answer(self, client: ApiClient, asked: Mapping[str, Any], options: Mapping[str, Any]) -> int:
        project = options["project"] or client.first_project()
        answer = client.plan(project, asked, part="can-it-run")
        self.stdout.write(json.dumps(answer, indent=2) if options["json"] else can_it_run_text(answer))
        return 0 if any(each["answer"] == "yes" for each in answer["options"]) else RUNS_NOWHERE
