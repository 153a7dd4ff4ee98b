"""`manage.py diffusion flux.1-dev --on h100`: ask the planner whether a diffusion model trains."""

from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any, ClassVar

from console.command_line.api_client import ApiClient
from console.command_line.local_planner import LocalPlanner
from console.command_line.plan_question import PlanQuestion
from console.command_line.plan_text import diffusion_text
from console.command_line.planner_json import DiffusionJson


class Command(PlanQuestion[DiffusionJson]):
    """Can it run? of a diffusion transformer."""

    help = "Say whether a diffusion transformer can be trained, on how few GPUs, and how long a step takes"
    method = "sft"
    methods = "sft, sft-lora, grpo or grpo-lora"
    numbers: ClassVar = {
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

    def answer(self, client: ApiClient | LocalPlanner, project: str, body: Mapping[str, object]) -> DiffusionJson:
        """Return what the console answers."""
        return client.diffusion(project, body)

    def text(self, answer: DiffusionJson) -> str:
        """Return the table."""
        return diffusion_text(answer)

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Say what it takes besides."""
        super().add_arguments(parser)
        parser.add_argument("--keep-activations", action="store_true", help="recompute nothing")
        parser.add_argument("--encoders", action="store_true", help="text encoders and VAE stay on the GPUs")

    def body(self, options: Mapping[str, Any]) -> dict[str, object]:
        """Return the body of the request."""
        more = {"recomputes": not options["keep_activations"], "encoders": options["encoders"]}
        return super().body(options) | more
