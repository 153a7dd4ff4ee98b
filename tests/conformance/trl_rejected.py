"""Specs that TRL's own configuration refuses: a drawn one each, broken in one respect, as the oracle of our own rules.

Its parser knows one process here, so each is for one. The check stands in the `__post_init__` of GRPOConfig and
RLOOConfig; what else they say no to (one sample a prompt, two sizes of a rollout, parts of groups) no spec can say, and
the configurations of fine-tuning refuse nothing that one can.
"""

import random
from collections.abc import Iterator

from jobs.catalog.spec.parse import parse_spec
from jobs.catalog.spec.runspec import RunSpec, to_json
from jobs.catalog.value import Value
from tests.conformance.rejected import Rejection
from tests.conformance.trl_specs import drawn

NUMBER = 12  # drawn specs that each check is tried on
ALONE: dict[str, Value] = {
    "placement.policy_gpus_per_node": 1,
    "placement.rollout_tensor_parallel": 1,
    "train.updates_per_rollout": 1,
    "eval.every_steps": 0,
}


def rejected(version: str) -> Iterator[Rejection]:
    """Yield the broken specs of a version."""
    for place in range(NUMBER):
        rng = random.Random(f"rejected {version} {place}")
        spec = drawn(version, ("grpo", "rloo")[place % 2], rng)
        micro = rng.choice([3, 4, 8])
        odd: dict[str, Value] = {"rollout.prompts_per_step": 5, "rollout.samples_per_prompt": 2 * micro + 1}
        yield Rejection(
            rule="division",
            spec=_with(spec, {**odd, "train.micro_batch_size": micro}),
            says="must be divisible by the global batch size",
            fields=("rollout.prompts_per_step", "rollout.samples_per_prompt", "train.micro_batch_size"),
        )
        too_many = micro * 2 * int(spec.knob("rollout.samples_per_prompt") or 2)
        yield Rejection(
            rule="too few for one",
            spec=_with(spec, {"rollout.prompts_per_step": 1, "train.micro_batch_size": too_many}),
            says="must be divisible by the global batch size",
            fields=("rollout.prompts_per_step", "rollout.samples_per_prompt", "train.micro_batch_size"),
        )


def _with(spec: RunSpec, knobs: dict[str, Value]) -> RunSpec:
    raw = to_json(spec)
    return parse_spec({**raw, "knobs": {**raw["knobs"], **ALONE, **knobs}})
