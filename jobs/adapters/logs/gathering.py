"""Values of a step as metric events, and the phases that they time as spans. What belongs to one step is told in one
event where it arrives together.

A trainer's names of metrics become the dictionary's: `names` of a metric in jobs/catalog/metrics.toml lists what a
trainer calls it, the best first: of two that say the same only the first is taken, the other keeps its own name. What
the dictionary does not know keeps its name, too. `means` there are what a trainer tells of each held-out set apart:
their mean is told besides.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache

from jobs.adapters.logs.step_phases import step_spans, whole_seconds
from jobs.catalog.metric import metrics
from profiling.events import MAX_INT32, Event, metric

Step = tuple[int, dict[str, float]]
"""A step's number, and its values under the trainer's names."""

NOBODY = 0  # an attempt's number: the runner puts its own in


@dataclass(slots=True, kw_only=True)
class Steps:
    """Gathers values by step until a later one has begun, or nothing more has come since the last look.

    With `has_timers` the trainer tells how long the phases of a step took, and they become a timeline.
    """

    trainer: str
    algorithm: str
    has_timers: bool = False
    _values: dict[int, dict[str, float]] = field(default_factory=dict)
    _at: dict[int, int] = field(default_factory=dict)
    _newest: int = -1
    _is_new: bool = False

    def add(self, step: int, values: Mapping[str, float], *, t: int) -> None:
        """Take in values of a step under the trainer's names; `t` is when they were written, in Unix ns.

        What no event may carry as a step is none, and passed over.
        """
        if values and 0 <= step <= MAX_INT32:
            self._values.setdefault(step, {}).update(values)
            self._at[step] = t
            self._newest = max(self._newest, step)
            self._is_new = True

    def join(self, step: int, values: Mapping[str, float]) -> None:
        """Take in further values of a step that is being gathered; it was written when its own were."""
        if step in self._values:
            self._values[step].update(values)

    def events(self) -> Iterator[Event]:
        """Yield the steps that are over, in their order."""
        by_step = {step: canonical(self.trainer, self.algorithm, self._values[step]) for step in sorted(self._values)}
        ends = self._ends(by_step) if self.has_timers else {}
        for step, values in by_step.items():
            if step < self._newest or not self._is_new:
                del self._values[step]
                yield metric(values, attempt=NOBODY, step=step, t=self._at.pop(step))
                if self.has_timers:
                    yield from step_spans(values, step=step, end=ends[step])
        self._is_new = False

    def _ends(self, by_step: Mapping[int, Mapping[str, float]]) -> dict[int, int]:
        """Return when each step was over: when it was read, or before a later one began that was read with it."""
        ends: dict[int, int] = {}
        latest = 0
        for step in sorted(by_step, reverse=True):
            end = min(self._at[step], latest) if latest else self._at[step]
            ends[step], latest = end, end - round(whole_seconds(by_step[step]) * 1e9)
        return ends


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
    renamed = {chosen.get(theirs, _own(theirs)): value for theirs, value in values.items()}
    return renamed | dict(_means(values, patterns_of_sets(trainer, algorithm)))


@cache
def patterns_of_sets(trainer: str, algorithm: str) -> Mapping[str, tuple[re.Pattern[str], ...]]:
    """Return canonical name -> the patterns of the trainer's names for each held-out set, of which it is the mean."""
    whose = (trainer, f"{trainer}/{algorithm}")
    texts = {name: [text for key in whose for text in info.means.get(key, ())] for name, info in metrics().items()}
    return {name: tuple(map(_pattern_of_sets, theirs)) for name, theirs in texts.items() if theirs}


def _pattern_of_sets(text: str) -> re.Pattern[str]:
    pattern = re.escape(text).replace(r"\{set\}", "(?P<set>.+)").replace(r"\{samples\}", r"(?P<samples>\d{1,9})")
    return re.compile(pattern)


def _means(
    values: Mapping[str, float], patterns: Mapping[str, tuple[re.Pattern[str], ...]]
) -> Iterator[tuple[str, float]]:
    """Yield each mean over held-out sets that the values tell."""
    for name, of_sets in patterns.items():
        by_set: dict[str, tuple[int, float]] = {}
        for theirs, value in values.items():
            for match in filter(None, (pattern.fullmatch(theirs) for pattern in of_sets)):
                num_samples = int(match.groupdict().get("samples", 0))
                if num_samples >= by_set.get(match["set"], (0, value))[0]:
                    by_set[match["set"]] = (num_samples, value)
        if by_set:
            yield name, sum(value for _, value in by_set.values()) / len(by_set)


def _own(name: str) -> str:
    """Return a name as a batch may carry it (docs/develop/protocol.md)."""
    return "".join(c if c.isprintable() and c != "," else "_" for c in name)[:120]
