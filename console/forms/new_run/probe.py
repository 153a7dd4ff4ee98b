"""A probe of a run: the same run for a few steps at its greatest lengths, to hold the plan against what is measured.

Only what has no part in the memory or the time of a step changes: how many steps there are, checkpoints and evaluation
on the way, retries. Answers go on to the longest one where the trainer can have them do so, and none of them is
filtered out: noise behind an answer's end is rewarded alike.
"""

from jobs.catalog.algorithm import is_in
from jobs.catalog.spec.parse import parse_spec
from jobs.catalog.spec.runspec import RunPolicy, RunSpec, to_json
from jobs.catalog.value import Value

PROBE_TAG = "probe"
PROBE_STEPS = 4
_MAX_NAME = 120

_SETS: dict[str, Value] = {
    "checkpoint.every_steps": 0,
    "checkpoint.save_hf": False,
    "eval.every_steps": 0,
    "eval.num_prompts": 0,
    "eval.before_training": False,
    "rollout.ignore_eos": True,
    "algorithm.dynamic_sampling": False,
}
"""What a probe sets where the run has the knob."""


def probe_of(spec: RunSpec, name: str) -> RunSpec:
    """Return the probe of a run called `name`. Raises: SpecInvalid for one that its trainer does not take."""
    values = {knob_id: value for knob_id, value in {**_SETS, **_length(spec)}.items() if knob_id in spec.knobs}
    raw = to_json(spec.model_copy(update={"policy": RunPolicy()}))
    for knob_id, value in values.items():
        if value != spec.knob(knob_id):
            raw["knobs"][knob_id] = {"value": value, "origin": "you"}
    raw["name"] = f"{name[: _MAX_NAME - len(PROBE_TAG) - 1].rstrip()} {PROBE_TAG}"
    return parse_spec(raw)


def _length(spec: RunSpec) -> dict[str, Value]:
    """Return what makes the run so few steps: their number, or where only the data decides, so many samples once."""
    if "train.num_steps" in spec.knobs:
        return {"train.num_steps": min(spec.num_steps or PROBE_STEPS, PROBE_STEPS)}
    batch = spec.int_knob("rollout.prompts_per_step" if is_in(spec.algorithm, "rl") else "train.batch_size")
    wanted, most = PROBE_STEPS * batch, spec.knobs["data.max_samples"].value
    return {"train.num_epochs": 1, "data.max_samples": min(wanted, int(most)) if most else wanted}
