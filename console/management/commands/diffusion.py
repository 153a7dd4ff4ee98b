"""`manage.py diffusion flux.1-dev --on h100`: ask the planner through the API whether a diffusion model trains."""

import json
from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from django.core.management.base import CommandError

from console.api_client import ApiClient
from console.api_command import REFUSED, ApiCommand, read_spec
from console.diffusion_text import diffusion_text

DOES_NOT_FIT = 1
_NUMBERS = {
    "devices": "number of GPUs; else the fewest are looked for",
    "width": "pixels",
    "height": "pixels",
    "frames": "of a clip",
    "text-tokens": "of a prompt",
    "prompts": "of a step of GRPO",
    "samples-per-prompt": "of a step of GRPO",
    "batch-size": "samples of a step of SFT",
    "denoising-steps": "of the rollout",
    "trained-steps": "of them that the update learns from",
    "zero": "stage of sharding, 0 to 3",
}


class Command(ApiCommand):
    """Plan a diffusion model; exit code 0 it fits somewhere, 1 nowhere, 3 refused, 4 the console is away."""

    help = "Say whether a diffusion transformer can be trained, on how few GPUs, and how long a step takes"

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Say what it takes."""
        parser.add_argument("model", nargs="?", default="", help="id or hub repository of a known model")
        parser.add_argument("--config", help="config.json of a transformer that the console does not know")
        parser.add_argument("--method", default="sft", help="sft, sft-lora, grpo or grpo-lora")
        parser.add_argument("--on", nargs="+", default=["h100-sxm"], help="accelerators, side by side")
        for name, says in _NUMBERS.items():
            parser.add_argument(f"--{name}", type=int, help=says)
        parser.add_argument("--keep-activations", action="store_true", help="recompute nothing")
        parser.add_argument("--encoders", action="store_true", help="text encoders and VAE stay on the GPUs")
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
        asked |= {"recomputes": not options["keep_activations"], "encoders": options["encoders"]}
        self.ask(options, lambda client: self._plan(client, asked, options))

    def _plan(self, client: ApiClient, asked: Mapping[str, Any], options: Mapping[str, Any]) -> int:
        project = options["project"] or client.first_project()
        answer = client.plan(project, asked, part="diffusion")
        self.stdout.write(json.dumps(answer, indent=2) if options["json"] else diffusion_text(answer))
        return 0 if any(each["answer"] == "yes" for each in answer["options"]) else DOES_NOT_FIT
