"""Conditions of metrics as data: a statistic of a metric's values, and the number it must be above or below.

    { metric = "kl/reference", statistic = "median", window = 10, above = 0.5 }
    { metric = "time/rollout_seconds", over = "time/step_seconds", statistic = "mean", window = 10, above = 0.7 }
    { metric = "reward/mean", statistic = "fell", window = 10, above = 0.5 }

| statistic | of the window's values |
|---|---|
| `mean`, `median`, `min`, `max` | these |
| `spread` | the largest less the smallest |
| `growth` | mean of the later half divided by that of the earlier half |
| `not_finite` | how many are nan or infinite |
| `told` | how many there are, also none |
| `repeats` | the share of those that are the same as their median: what it is at least, by how many there are |
| `trend` | Mann and Kendall's z: how surely they rise (above 2) or fall (below -2) |

| statistic | of all values, the newest level being that of the window ([course](course.py)) |
|---|---|
| `fell`, `climbed` | how much of what was gained is lost again, better high, or low; in wider windows, too |
| `above_lowest` | the newest level over the lowest one, less 1 |
| `times_start` | the newest level over that of the first values |
| `gain` | the rise since the start, in standard errors |
| `flat` | how many values there are without a rise, or a fall if low is better; 0 before `PATIENCE` and 3/4 of a run |
| `outburst` | the third largest of the newest 20 over what was usual before |
| `share` | of a share of groups: what it is at least, by how many groups there were |

With `over`, each value is divided by the other metric's at the same place, counted from the end. A window that is not
full says nothing yet: at the start of a run everything moves. `not_finite` and `told` are exceptions. `least` asks for
more values than the window has.
"""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jobs.catalog.metric import metric, metrics
from jobs.catalog.rules import course

Numbers = Mapping[str, Sequence[float | None]]
"""Values by canonical name, in the order of steps; None where the trainer reported what is no number."""

Say = Callable[[str], str]
_NOTHING = (math.nan, math.nan, math.nan)
DEFAULT_WINDOW = 10
PATIENCE = 30  # values before a metric can be called flat
_APART = 2  # steps from one value to the next of a trainer that reports now and then: each tells of all of them
_PATIENCE_APART = 2 / 3  # of the values that are asked for otherwise: noise alone is called flat as seldom
_PATIENCE_OF_RUN = 3 / 4  # what is hardly ever earned at first may begin to rise after more than half of a run
_MOST_PATIENCE = 1000  # of a run that is to be very long: rewards that rise late may lie still for a third of it
_KEYS = {"metric", "over", "statistic", "window", "least", "above", "below"}


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _growth(values: Sequence[float]) -> float:
    half = len(values) // 2
    early, late = _mean(values[:half]), _mean(values[-half:])
    return late / early if early > 0 else math.nan


_STATISTICS: Mapping[str, Callable[[list[float]], float]] = {
    "mean": _mean,
    "median": statistics.median,
    "min": min,
    "max": max,
    "spread": lambda values: max(values) - min(values),
    "growth": _growth,
    "repeats": course.repeats,
    "trend": course.trend,
}
_Levels = Callable[[Sequence[float], int], tuple[float, float, float]]
_COURSES: Mapping[str, _Levels] = {
    "fell": course.fell,
    "climbed": course.climbed,
    "above_lowest": course.above_lowest,
    "times_start": course.times_start,
    "gain": course.gain,
    "outburst": lambda values, _window: course.outburst(values),
    "share": course.share,
}
_FLAT = "flat"
_FLAT_LOW = "flat_low"  # the sentence of a metric that is better low
_NOT_FINITE = "not_finite"
_TOLD = "told"
_SHARE = "share"  # told in percent
_NO_RISE = "no_rise"  # the sentence of a trend that is below its bound
_ONE_ABOVE, _ONE_BELOW = "one_above", "one_below"  # the sentences of a single value

TEXTS: Mapping[str, str] = {
    "above": "{metric}: {statistic} of the last {window} values is {value}, above {bound}",
    "below": "{metric}: {statistic} of the last {window} values is {value}, below {bound}",
    _NOT_FINITE: "{metric}: not a number in {value} of its last {window} values",
    _TOLD: "{metric}: {value} of the last {window} values are there",
    "mean": "the mean",
    "median": "the median",
    "min": "the smallest",
    "max": "the largest",
    "spread": "the spread",
    "growth": "the growth from the earlier to the later half",
    "repeats": "the fraction with the same value",
    "trend": "the trend (z)",
    "fell": "{metric}: fell from {before} to {now} (levels of {window} values or more)",
    "climbed": "{metric}: climbed from {before} to {now} (levels of {window} values or more)",
    "above_lowest": "{metric}: climbed from {before}, its lowest, to {now} (levels of {window} values)",
    "times_start": "{metric}: from {before} at the start to {now} (level of {window} values)",
    "gain": "{metric}: from {before} at the start to {now} (level of {window} values)",
    "flat": "{metric}: no rise within {value} values, now {now}",
    "flat_low": "{metric}: no fall within {value} values, now {now}",
    "outburst": "{metric}: jumps to {now} within its last 20 values, where up to {before} was usual",
    "share": "{metric}: {now} on average of the last {before} values, surely above {bound}",
    _NO_RISE: "{metric}: no sure rise in the last {window} values (z = {value}, below {bound})",
    _ONE_ABOVE: "{metric}: {value}, above {bound}",
    _ONE_BELOW: "{metric}: {value}, below {bound}",
}
"""The sentences of evidence and the words for statistics, for whoever translates them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One condition; `above` and `below` are exclusive bounds, one of them is None. `least` values have to be there."""

    metric: str
    over: str
    statistic: str
    window: int
    least: int
    above: float | None
    below: float | None

    def evidence(self, numbers: Numbers, *, planned: int = 0, step: int = 0, say: Say = str) -> str:
        """Return a sentence with the numbers if the condition holds; "" if not, or if there is too little to say.

        `planned` are the steps that the run is to have, 0 where nobody knows, `step` the one that it has reached, 0
        where each value is one. `say` gives a text in the reader's language.
        """
        value, before, now = self._value(numbers, planned, step)
        bound, word = (self.above, "above") if self.above is not None else (self.below or 0.0, "below")
        if math.isnan(value) or not (value > bound if word == "above" else value < bound):
            return ""
        labels = [say(metric(name).label) for name in (self.metric, self.over) if name]
        text = self._text(word)
        return say(TEXTS[text]).format(
            metric=" / ".join(labels),
            statistic=say(TEXTS[self.statistic]),
            window=self.window,
            value=f"{value:.4g}",
            bound=f"{100 * bound:g} %" if text == _SHARE else f"{bound:g}",
            before=f"{before:.4g}",
            now=f"{100 * now:.3g} %" if text == _SHARE else f"{now:.4g}",
        )

    def _text(self, word: str) -> str:
        """Return the key of the sentence; `word`: the bound is "above" or "below"."""
        if self.statistic == _FLAT:
            return _FLAT_LOW if self.is_better_low else _FLAT
        if self.statistic in (_NOT_FINITE, _TOLD, *_COURSES):
            return self.statistic
        if self.statistic == "trend" and word == "below":
            return _NO_RISE
        if self.window == 1:
            return _ONE_ABOVE if word == "above" else _ONE_BELOW
        return word

    def _value(self, numbers: Numbers, planned: int, step: int) -> tuple[float, float, float]:
        """Return the statistic, the level before and the newest one; nan where there is nothing to say."""
        values = numbers.get(self.metric, ())
        if self.statistic == _NOT_FINITE:
            return float(sum(not _is_finite(value) for value in values[-self.window :])), math.nan, math.nan
        if self.statistic == _TOLD:
            return float(len(values[-self.window :])), math.nan, math.nan
        if self.statistic in _COURSES or self.statistic == _FLAT:
            numbers_alone = [value for value in values if value is not None and math.isfinite(value)]
            return self._course(numbers_alone, planned, step or len(numbers_alone))
        finite = [value for value in values[-self.window :] if value is not None and math.isfinite(value)]
        if len(finite) < self.window or len(values) < self.least:
            return _NOTHING
        if self.over:
            others = list(numbers.get(self.over, ()))[-self.window :]
            pairs = [(a, b) for a, b in zip(finite, others, strict=False) if b is not None and b > 0]
            if len(pairs) < self.window:
                return _NOTHING
            finite = [a / b for a, b in pairs]
        return _STATISTICS[self.statistic](finite), math.nan, math.nan

    def _course(self, values: Sequence[float], planned: int, step: int) -> tuple[float, float, float]:
        if self.statistic == _FLAT:
            least = self.least * (_PATIENCE_APART if step >= _APART * len(values) else 1.0)
            is_long = len(values) >= least and step >= min(_MOST_PATIENCE, planned * _PATIENCE_OF_RUN)
            gains = [-value for value in values] if self.is_better_low else values
            is_flat = is_long and course.is_flat(gains)
            return (float(len(values)), math.nan, values[-1]) if is_flat else _NOTHING
        return _COURSES[self.statistic](values, self.window) if len(values) >= self.least else _NOTHING

    @property
    def is_better_low(self) -> bool:
        """True where a rise of the metric is no gain, but a loss."""
        return metric(self.metric).better == "lower"


def condition(name: str, table: Mapping[str, Any]) -> Condition:
    """Return the condition of a table; `name` is whose it is.

    Raises: ValueError, with that name, for a key, metric or statistic that is not known, or without one bound.
    """
    if strange := sorted(set(table) - _KEYS):
        raise ValueError(f"{name}: a condition has no key {strange[0]!r}. Known: {', '.join(sorted(_KEYS))}.")
    for key in ("metric", "over"):
        if key in table and table[key] not in metrics():
            raise ValueError(f"{name}: there is no metric {table[key]!r} in the dictionary.")
    statistic = table["statistic"]
    names = (*_STATISTICS, *_COURSES, _FLAT, _NOT_FINITE, _TOLD)
    if statistic not in names:
        raise ValueError(f"{name}: {statistic!r} is no statistic. Use {', '.join(names)}.")
    if ("above" in table) == ("below" in table):
        raise ValueError(f"{name}: a condition has one bound, above or below.")
    return Condition(
        metric=table["metric"],
        over=table.get("over", ""),
        statistic=statistic,
        window=(window := table.get("window", DEFAULT_WINDOW)),
        least=table.get("least", _least(statistic, window)),
        above=table.get("above"),
        below=table.get("below"),
    )


def _least(statistic: str, window: int) -> int:
    """Return how many values there have to be: a course has a start besides its newest level."""
    if statistic == _FLAT:
        return PATIENCE
    return window + max(1, window // 2) if statistic in _COURSES else window


def _is_finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)
