"""How random specs of TRL are drawn: the parts that are no knobs, plausible texts, and what has to fit."""

import random
from collections.abc import Sequence
from typing import Any

from jobs.adapters.trl.options import PROCESSES, SCRIPTS
from jobs.catalog.algorithm import is_in
from jobs.catalog.knob import Knob
from jobs.catalog.spec.runspec import RunSpec
from jobs.catalog.trainer import trainers
from tests.conformance.specs import Drawing, Values, draw, num_reachable, specs_in_turn

VERSIONS = trainers()["trl"].versions
BOUNDS = {
    "placement.policy_gpus_per_node": (1, 8),
    "placement.rollout_tensor_parallel": (1, 4),
    "train.micro_batch_size": (1, 16),
    "train.updates_per_rollout": (1, 8),
    "train.epochs_per_rollout": (1, 4),
    "rollout.samples_per_prompt": (2, 32),
    "eval.samples_per_prompt": (1, 16),
    "lora.rank": (0, 256),
}
TEXTS = {
    "lora.target_modules": ("q_proj,k_proj,v_proj", "down_proj"),
    "logging.project": ("sums", "it's one"),
    "logging.services": ("wandb", "mlflow,trackio"),
    "checkpoint.resume_from": ("/srv/runs/a run/checkpoint-20", "--odd"),
}
REWARDS: tuple[dict[str, str], ...] = (
    {"kind": "file", "location": "my_package.rewards.score"},
    {"kind": "file", "location": "accuracy_reward"},
    {"kind": "model", "location": "Skywork/Skywork-Reward-V2-Qwen3-0.6B"},
    {"kind": "math"},
    {"kind": "exact_match"},
    {"kind": "format"},
)
MODELS = (
    {"kind": "hub", "id": "Qwen/Qwen2.5-0.5B-Instruct"},
    {"kind": "path", "id": "/srv/models/it's mine"},
    {"kind": "bundled"},
)
DATA: tuple[dict[str, str], ...] = (
    {"kind": "bundled"},
    {"kind": "hub", "id": "trl-lib/Capybara"},
    {"kind": "hub", "id": "a/b", "split": "train[:90%]", "eval_split": "test"},
    {"kind": "path", "id": "/srv/data/one two", "eval_split": "held out"},
)


def drawn(version: str, algorithm: str, rng: random.Random, wanted: Sequence[str] = ()) -> RunSpec:
    """Return a random spec that TRL takes. Raises: SpecInvalid if the repair missed something."""
    return draw(_drawing(algorithm, rng), version=version, algorithm=algorithm, rng=rng, wanted=wanted)


def specs_of(version: str, number: int) -> list[RunSpec]:
    """Return random specs of every algorithm."""
    return specs_in_turn("trl", version, tuple(SCRIPTS), number, drawn)


def reachable(knob: Knob) -> int:
    """Return how many values that are not its default a knob has to be seen with."""
    return num_reachable(knob, len(TEXTS.get(knob.id, ())))


def _drawing(algorithm: str, rng: random.Random) -> Drawing:
    data = dict(rng.choice(DATA))
    if algorithm == "sft" and data["kind"] != "bundled":
        data["response_column"] = "completion"
    if is_in(algorithm, "labeled") and data["kind"] != "bundled" and rng.random() < 0.5:
        data |= {"response_column": "completion", "label_column": "label"}
    sections: dict[str, Any] = {
        "model": rng.choice(MODELS),
        "data": data,
        "name": rng.choice(["", "first run", "it's #2", "größer", "--odd"]),
    }
    if is_in(algorithm, "rl"):
        sections["reward"] = rng.choice(REWARDS)

    def repair(algorithm: str, values: Values, rng: random.Random) -> None:
        _repair_numbers(values)
        if is_in(algorithm, "rl") and _whole(values, PROCESSES) % _whole(values, "placement.rollout_tensor_parallel"):
            values[PROCESSES] = values["placement.rollout_tensor_parallel"]
        if is_in(algorithm, "labeled"):
            values["train.micro_batch_size"] = max(_whole(values, "train.micro_batch_size"), 2)
            for weight in ("pairs.desirable_weight", "pairs.undesirable_weight"):
                values[weight] = values[weight] or 1.5
        at_once = _whole(values, "train.micro_batch_size") * _whole(values, PROCESSES)
        if not is_in(algorithm, "rl"):
            values["train.batch_size"] = at_once * max(_whole(values, "train.batch_size") // at_once, 1)
            return
        _repair_rollout(values, at_once, rng)

    return Drawing(trainer="trl", sections=lambda _: sections, texts=TEXTS, repair=repair, bounds=BOUNDS)


def _whole(values: Values, knob_id: str) -> int:
    return int(values.get(knob_id) or 0)


def _repair_numbers(values: Values) -> None:
    """Leave out what TRL's parser takes and a run does not."""
    if values["quantization.load_in_4bit"] and not values["lora.rank"]:
        values["quantization.load_in_4bit"] = False
    if values["memory.master_precision"] == "bfloat16" and values["memory.precision"] == "float16":
        values["memory.precision"] = "bfloat16"


def _repair_rollout(values: Values, at_once: int, rng: random.Random) -> None:
    """Make a rollout a whole number of updates, each of whole micro-batches on every process."""
    values["rollout.prompts_per_step"] = at_once * _whole(values, "train.updates_per_rollout") * rng.choice([1, 1, 2])
