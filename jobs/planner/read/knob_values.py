"""The knobs of a run as the planner reads them: only those that mean something count, and those never read are named.

A knob that changes memory or time (its effects say so), that somebody changed, and that no reader asked for is not
priced; `Knobs.unpriced` names it, so that nothing is left out without a word.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

from jobs.catalog.knob import applicable, default_values, is_live
from jobs.catalog.spec.runspec import RunSpec
from jobs.catalog.value import Value
from jobs.planner.job import Attention, Compute

_NOT_PLANNED = {"checkpoint", "data", "eval", "logging", "models", "placement", "profiling", "skip", "trace", "wandb"}
"""Groups that are no part of a training step (disk, the host's data loading, measuring), and that of the placement,
which jobs.catalog.spec.placement reads."""

_NEGLIGIBLE = {
    "algorithm.correction": "one comparison of numbers that are there",
    "algorithm.correction_type": "one comparison of numbers that are there",
    "algorithm.kl_coefficient": "whether there is a reference, which the spec says",
    "memory.load_through_shared_memory": "only at the start",
    "optimizer.critic_learning_rate": "changes what is learned alone",
    "optimizer.learning_rate": "changes what is learned alone",
    "optimizer.warmup_steps": "changes what is learned alone",
    "parallel.ring_head_stride": "how a ring is cut, not how much goes over it",
    "reward.manager": "the reward's own seconds are given",
    "reward.num_workers": "the reward's own seconds are given",
    "reward.overlong_buffer_tokens": "changes what is learned alone",
    "reward.timeout_seconds": "the reward's own seconds are given",
    "rollout.load_format": "only at the start",
}
"""Knobs whose effect on memory and time is none of a step's, or too small to be estimated, and why."""

_NO_EFFECT = ("none", "tiny", "small", "disk", "about the same", "host memory", "no ")

ATTENTION: Mapping[str, Attention] = {
    "eager": "eager",
    "sdpa": "sdpa",
    "flash_attention_2": "flash2",
    "flash_attention_3": "flash3",
}
COMPUTE: Mapping[str, Compute] = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
ELEMENT_BYTES: Mapping[str, float] = {"float32": 4.0, "bfloat16": 2.0, "float16": 2.0}
"""What choices of the knobs of attention and precision are in a job."""


class Knobs:
    """The values of a spec's knobs; one that does not apply, or means nothing beside the others, has none."""

    def __init__(self, spec: RunSpec) -> None:
        self._spec = spec
        self._values: Mapping[str, Any] = spec.values()
        self._read: set[str] = set()

    @property
    def values(self) -> Mapping[str, Any]:
        """The values of all knobs, live or not, as jobs.catalog.spec.placement takes them."""
        return self._values

    def get(self, knob_id: str) -> Any:
        """Return the value, None if there is none."""
        self._read.add(knob_id)
        value = self._values.get(knob_id)
        return value if value is not None and is_live(knob_id, self._values) else None

    def whole(self, knob_id: str, default: int = 0) -> int:
        """Return a whole number."""
        value = self.get(knob_id)
        return default if value is None else int(value)

    def number(self, knob_id: str, default: float = 0.0) -> float:
        """Return a number."""
        value = self.get(knob_id)
        return default if value is None else float(value)

    def flag(self, knob_id: str) -> bool:
        """Return True if the knob is on."""
        return bool(self.get(knob_id))

    def text(self, knob_id: str, default: str = "") -> str:
        """Return a choice or a text."""
        value = self.get(knob_id)
        return default if value is None else str(value)

    def unpriced(self) -> tuple[str, ...]:
        """Return the knobs that change memory or time, were changed, and were not read, in the catalogue's order."""
        spec, values = self._spec, self._values
        defaults = _defaults(spec.algorithm, spec.trainer.name, spec.trainer.version)
        return tuple(
            knob_id
            for knob_id, default in defaults.items()
            if values.get(knob_id) != default and knob_id not in self._read and is_live(knob_id, values)
        )


@cache
def _defaults(algorithm: str, trainer: str, version: str) -> Mapping[str, Value]:
    """Return the default of every knob that does something to memory or time in a training step."""
    return {
        knob_id: default_values(algorithm, trainer, version)[knob_id]
        for knob_id, knob in applicable(algorithm, trainer, version).items()
        if knob.group not in _NOT_PLANNED
        and knob_id not in _NEGLIGIBLE
        and any(not knob.effects.get(what, "none").startswith(_NO_EFFECT) for what in ("memory", "speed"))
    }
