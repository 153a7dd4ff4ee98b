"""`manage.py diffusion flux.1-dev --on h100`: ask the planner through the API whether a diffusion model trains."""

from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any, ClassVar

from console.command_line.api_client import ApiClient
from console.command_line.api_json import DiffusionJson
from console.command_line.plan_question import PlanQuestion


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

    def answer(self, client: ApiClient, project: str, body: Mapping[str, object]) -> DiffusionJson:
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


def diffusion_text(answer: DiffusionJson) -> str:
    """Return the answer as a table, a line per accelerator, and what was assumed."""
    lines = [
        f"{answer['model']}: {answer['parameters']:,} parameters, {answer['latent_tokens']:,} latent and"
        f" {answer['text_tokens']:,} text tokens a sample"
    ]
    for each in answer["options"]:
        pool, step = each["pool"], each["step"]
        fewest = " / ".join(str(need["devices"] or "-") for need in each["needs"])
        line = f"{each['accelerator']:<14} {each['answer']:<8} fewest GPUs {fewest}"
        if pool is not None and step is not None:
            peak = max(phase["total"] for phase in pool["phases"])
            line += f"; on {pool['num_devices']}: {peak / 2**30:.1f} of {pool['limit'] / 2**30:.1f} GiB"
            line += f", step {step['middle']:,.0f} s ({step['low']:,.0f} to {step['high']:,.0f})"
        lines.append(line)
    lines.append("fewest GPUs: nothing on the host / states between phases / the optimizer and its step")
    notes = dict.fromkeys(note for each in answer["options"] for note in each["notes"])
    return "\n".join([*lines, *(f"note: {note}" for note in notes)])
