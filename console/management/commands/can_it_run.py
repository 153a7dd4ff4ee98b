"""`manage.py can_it_run qwen2.5-7b --method grpo --on h100 l40s`: ask the planner what trains a model."""

from collections.abc import Mapping
from typing import ClassVar

from console.command_line.api_client import ApiClient
from console.command_line.local_planner import LocalPlanner
from console.command_line.plan_question import PlanQuestion
from console.command_line.plan_text import can_it_run_text
from console.command_line.planner_json import CanItRunJson


class Command(PlanQuestion[CanItRunJson]):
    """Can it run? The model may also be a folder."""

    help = "Say whether a model can be trained by a method, on which hardware, on how few devices and how fast"
    method = "grpo"
    methods = "sft, sft-lora, grpo, ppo and more; a wrong one names all"
    numbers: ClassVar = {
        "devices": "number of devices to plan for; else the fewest are looked for",
        "max-prompt": "tokens of the longest prompt",
        "max-response": "tokens of the longest answer",
        "mean-prompt": "mean tokens of prompts, where they are known",
        "mean-response": "mean tokens of answers, where they are known",
        "prompts": "of a step with rollouts",
        "samples-per-prompt": "of a step with rollouts",
        "batch-size": "samples of a step without rollouts",
    }

    def answer(self, client: ApiClient | LocalPlanner, project: str, body: Mapping[str, object]) -> CanItRunJson:
        """Return what the console answers."""
        return client.can_it_run(project, body)

    def text(self, answer: CanItRunJson) -> str:
        """Return the table."""
        return can_it_run_text(answer)
