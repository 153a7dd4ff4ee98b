"""What both learn: three algorithms, and of each the settings of both sides and the metrics that are the same."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.bench.engine.workloads import COMMON, WORKLOADS, demo_spec

SEEDS = (1, 2, 3, 4, 5)
BATCH, LONGEST = 64, 128
PROMPTS, SAMPLES = 16, 8
SFT_RATE, DPO_RATE, BETA = 1e-3, 1e-4, 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """An algorithm: knobs of the built-in trainer, `config` of TRL, and metrics by our name with TRL's.

    `num_rows` is what a step takes. `is_drawn`: each side learns from responses that it drew itself, with random
    numbers of its own; else both learn the same tokens, and what differs between them is rounding.
    """

    id: str
    label: str
    num_steps: int
    num_rows: int
    knobs: Mapping[str, Any]
    config: Mapping[str, Any]
    metrics: Mapping[str, str]
    is_drawn: bool


def spec_of(part: Part, seed: int) -> dict[str, Any]:
    """Return the spec of the built-in trainer: nothing lies between its steps."""
    spec = demo_spec(part.num_steps, seed)
    return spec | {"algorithm": part.id, "profile": {"nsys_ready": "off"}, "knobs": {**spec["knobs"], **part.knobs}}


_SUPERVISED = {
    "per_device_train_batch_size": BATCH,
    "gradient_accumulation_steps": 1,
    "max_length": LONGEST,
    "train_sampling_strategy": "sequential",
}
_KNOBS = {"train.batch_size": BATCH, "train.max_sequence_tokens": LONGEST, "optimizer.schedule": "constant"}

PARTS: Mapping[str, Part] = {
    part.id: part
    for part in (
        Part(
            id="sft",
            label="SFT",
            num_steps=24,
            num_rows=BATCH,
            knobs={**_KNOBS, "optimizer.learning_rate": SFT_RATE, "optimizer.warmup_steps": 0},
            config={**COMMON, **_SUPERVISED, "learning_rate": SFT_RATE},
            metrics={"loss/sft": "loss", "policy/entropy": "entropy"},
            is_drawn=False,
        ),
        Part(
            id="dpo",
            label="DPO",
            num_steps=24,
            num_rows=BATCH,
            knobs={**_KNOBS, "optimizer.learning_rate": DPO_RATE, "pairs.beta": BETA},
            config={**COMMON, **_SUPERVISED, "learning_rate": DPO_RATE, "beta": BETA},
            metrics={
                "loss/pairs": "loss",
                "pairs/accuracy": "rewards/accuracies",
                "pairs/margin": "rewards/margins",
            },
            is_drawn=False,
        ),
        Part(
            id="grpo",
            label="GRPO",
            num_steps=24,
            num_rows=PROMPTS,
            knobs={"rollout.prompts_per_step": PROMPTS, "rollout.samples_per_prompt": SAMPLES},
            config={
                **WORKLOADS["grpo-demo"].config,
                "per_device_train_batch_size": PROMPTS * SAMPLES,
                "gradient_accumulation_steps": 1,
            },
            metrics={"reward/mean": "reward", "kl/reference": "kl"},
            is_drawn=True,
        ),
    )
}
