"""Values of a step as metric events. What belongs to one step is told in one event where it arrives together."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from jobs.adapters.logs.names import canonical
from profiling.events import metric

Step = tuple[int, dict[str, float]]
"""A step's number, and its values under the trainer's names."""

NOBODY = 0  # an attempt's number: the runner puts its own in


@dataclass(slots=True, kw_only=True)
class Steps:
    """Gathers values by step until a later one has begun, or nothing more has come since the last look."""

    trainer: str
    algorithm: str
    _values: dict[int, dict[str, float]] = field(default_factory=dict)
    _at: dict[int, int] = field(default_factory=dict)
    _newest: int = -1
    _is_new: bool = False

    def add(self, step: int, values: Mapping[str, float], *, t: int) -> None:
        """Take in values of a step under the trainer's names; `t` is when they were written, in Unix ns."""
        if values:
            self._values.setdefault(step, {}).update(values)
            self._at[step] = t
            self._newest = max(self._newest, step)
            self._is_new = True

    def events(self) -> Iterator[Mapping[str, Any]]:
        """Yield the steps that are over, in their order."""
        for step in sorted(self._values):
            if step < self._newest or not self._is_new:
                values = canonical(self.trainer, self.algorithm, self._values.pop(step))
                yield metric(values, attempt=NOBODY, step=step, t=self._at.pop(step))
        self._is_new = False
