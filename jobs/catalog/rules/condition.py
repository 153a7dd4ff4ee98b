"""Conditions of metrics as data: a statistic of a metric's last values, and the number it must be above or below.

    { metric = "kl/reference", statistic = "mean", window = 10, above = 0.5 }
    { metric = "time/rollout_seconds", over = "time/step_seconds", statistic = "mean", window = 10, above = 0.7 }

| statistic | of the window's values |
|---|---|
| `mean`, `median`, `min`, `max` | these |
| `spread` | the largest less the smallest |
| `growth` | mean of the later half divided by that of the earlier half |
| `not_finite` | how many are nan or infinite |

With `over`, each value is divided by the other metric's at the same place, counted from the end. A window that is not
full says nothing yet: at the start of a run everything moves. `not_finite` is the exception.
"""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jobs.catalog.metric import metric, metrics

Numbers = Mapping[str, Sequence[float | None]]
"""Values by canonical name, in the order of steps; None where the trainer reported what is no number."""

Say = Callable[[str], str]
DEFAULT_WINDOW = 10
_KEYS = {"metric", "over", "statistic", "window", "above", "below"}


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _growth(values: Sequence[float]) -> float:
    half = len(values) // 2
    early, late = _mean(values[:half]), _mean(values[-half:])
    return late / early if early > 0 else math.nan


_STATISTICS: Mapping[str, Callable[[Sequence[float]], float]] = {
    "mean": _mean,
    "median": statistics.median,
    "min": min,
    "max": max,
    "spread": lambda values: max(values) - min(values),
    "growth": _growth,
}
_NOT_FINITE = "not_finite"

TEXTS: Mapping[str, str] = {
    "above": "{metric}: {statistic} of the last {window} values is {value}, above {bound}",
    "below": "{metric}: {statistic} of the last {window} values is {value}, below {bound}",
    _NOT_FINITE: "{metric} is not a number in {value} of its last {window} values",
    "mean": "the mean",
    "median": "the median",
    "min": "the smallest",
    "max": "the largest",
    "spread": "the spread",
    "growth": "the growth from the earlier to the later half",
}
"""The sentences of evidence and the words for statistics, for whoever translates them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One condition; `above` and `below` are exclusive bounds, one of them is None."""

    metric: str
    over: str
    statistic: str
    window: int
    above: float | None
    below: float | None

    def evidence(self, numbers: Numbers, *, say: Say = str) -> str:
        """Return a sentence with the numbers if the condition holds; "" if not, or if there is too little to say.

        `say` gives a text in the reader's language.
        """
        value = self._value(numbers)
        if value is None or math.isnan(value):
            return ""
        bound, word = (self.above, "above") if self.above is not None else (self.below or 0.0, "below")
        if not (value > bound if word == "above" else value < bound):
            return ""
        labels = [say(metric(name).label) for name in (self.metric, self.over) if name]
        return say(TEXTS[_NOT_FINITE if self.statistic == _NOT_FINITE else word]).format(
            metric=" / ".join(labels),
            statistic=say(TEXTS[self.statistic]),
            window=self.window,
            value=f"{value:.4g}",
            bound=f"{bound:g}",
        )

    def _value(self, numbers: Numbers) -> float | None:
        values = list(numbers.get(self.metric, ()))[-self.window :]
        if self.statistic == _NOT_FINITE:
            return float(sum(not _is_finite(value) for value in values))
        finite = [value for value in values if value is not None and math.isfinite(value)]
        if len(finite) < self.window:
            return None
        if self.over:
            others = list(numbers.get(self.over, ()))[-self.window :]
            pairs = [(a, b) for a, b in zip(finite, others, strict=False) if b is not None and b > 0]
            if len(pairs) < self.window:
                return None
            finite = [a / b for a, b in pairs]
        return _STATISTICS[self.statistic](finite)


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
    if statistic not in (*_STATISTICS, _NOT_FINITE):
        raise ValueError(f"{name}: {statistic!r} is no statistic. Use {', '.join((*_STATISTICS, _NOT_FINITE))}.")
    if ("above" in table) == ("below" in table):
        raise ValueError(f"{name}: a condition has one bound, above or below.")
    return Condition(
        metric=table["metric"],
        over=table.get("over", ""),
        statistic=statistic,
        window=table.get("window", DEFAULT_WINDOW),
        above=table.get("above"),
        below=table.get("below"),
    )


def _is_finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)
