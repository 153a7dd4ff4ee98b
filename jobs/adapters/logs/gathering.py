"""Values of a step as metric events. What belongs to one step is told in one event where it arrives together.

A trainer's names of metrics become the dictionary's: `names` of a metric in jobs/catalog/metrics.toml lists what a
trainer calls it, the best first: of two that say the same only the first is taken, the other keeps its own name. What
the dictionary does not know keeps its name, too.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache

from jobs.catalog.metric import metrics
from profiling.events import Event, metric

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

    def events(self) -> Iterator[Event]:
        """Yield the steps that are over, in their order."""
        for step in sorted(self._values):
            if step < self._newest or not self._is_new:
                values = canonical(self.trainer, self.algorithm, self._values.pop(step))
                yield metric(values, attempt=NOBODY, step=step, t=self._at.pop(step))
        self._is_new = False


@cache
def dictionary(trainer: str, algorithm: str) -> Mapping[str, tuple[int, str]]:
    """Return the trainer's name -> (place in the list, canonical name)."""
    names: dict[str, tuple[int, str]] = {}
    for whose in (trainer, f"{trainer}/{algorithm}"):
        for name, info in metrics().items():
            names |= {theirs: (place, name) for place, theirs in enumerate(info.names.get(whose, ()))}
    return names


def canonical(trainer: str, algorithm: str, values: Mapping[str, float]) -> dict[str, float]:
    """Return one step's values by canonical name, in their order."""
    names = dictionary(trainer, algorithm)
    best: dict[str, tuple[int, str]] = {}
    for theirs in values:
        if theirs in names:
            place, name = names[theirs]
            best[name] = min(best.get(name, (place, theirs)), (place, theirs))
    chosen = {theirs: name for name, (_, theirs) in best.items()}
    return {chosen.get(theirs, _own(theirs)): value for theirs, value in values.items()}


def _own(name: str) -> str:
    """Return a name as a batch may carry it (docs/develop/protocol.md)."""
    return "".join(c if c.isprintable() and c != "," else "_" for c in name)[:120]
