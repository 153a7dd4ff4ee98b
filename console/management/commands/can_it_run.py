"""`manage.py can_it_run qwen2.5-7b --method grpo --on h100 l40s`: ask through the API what trains a model."""

from typing import Any, ClassVar

from console.command_line.plan_question import PlanQuestion
from console.command_line.plan_text import can_it_run_text


class Command(PlanQuestion):
    """Can it run? The model may also be a folder that the console sees."""

    help = "Say whether a model can be trained by a method, on which hardware, on how few devices and how fast"
    part = "can-it-run"
    method = "grpo"
    methods = "sft, sft-lora, grpo, ppo and more; a wrong one names all"
    numbers: ClassVar = {
        "devices": "number of devices to plan for; else the fewest are looked for",
        "max-prompt": "tokens of the longest prompt",
        "max-response": "tokens of the longest answer",
        "prompts": "of a step with rollouts",
        "samples-per-prompt": "of a step with rollouts",
        "batch-size": "samples of a step without rollouts",
    }

    def text(self, answer: dict[str, Any]) -> str:
        """Return the table."""
        return can_it_run_text(answer)
