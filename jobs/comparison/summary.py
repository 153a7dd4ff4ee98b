"""Six numbers of a series: last, best, mean, smallest, largest, and at a chosen step. Pure arithmetic."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from jobs.telemetry.clean_statistics import SeriesFacts
from jobs.telemetry.statistics import PlacedValue

Better = Literal["higher", "lower", ""]
STATISTICS = ("last", "best", "mean", "low", "high", "at")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """A value and the step that it was measured at; a mean has none."""

    step: int | None
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesSummary:
    """What a table says of one series. `last` and `at` may be NaN or infinite, as measured; the others are finite.

    `best` is None where neither direction is better; `at` is the newest value at or before the chosen step, None
    without a step or before the first value; `has_odd` says that some value is NaN or infinite.
    """

    last: Spot | None
    best: Spot | None
    mean: Spot | None
    low: Spot | None
    high: Spot | None
    at: Spot | None
    has_odd: bool

    def spot(self, statistic: str) -> Spot | None:
        """Return the statistic by name (one of `STATISTICS`)."""
        at: Spot | None = getattr(self, statistic)
        return at


NOTHING = SeriesSummary(last=None, best=None, mean=None, low=None, high=None, at=None, has_odd=False)


def summary_of(facts: SeriesFacts, *, better: Better) -> SeriesSummary:
    """Return the summary of a series of which these facts are known.

    Of equal extremes the first counts: that is when the run got there.
    """
    own = facts.statistics
    low, high = _spot(own.low), _spot(own.high)
    return SeriesSummary(
        last=_spot(own.last),
        best={"higher": high, "lower": low}.get(better),
        mean=Spot(step=None, value=own.mean) if own.mean is not None else None,
        low=low,
        high=high,
        at=_spot(facts.at),
        has_odd=own.num_odd > 0,
    )


def _spot(point: PlacedValue | None) -> Spot | None:
    return Spot(step=point.x, value=point.y) if point else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """How a value stands to the base's. `share` is the difference over the base's size, None where that is zero.

    `word` is better or worse where the metric has a direction, else higher or lower; same where they are equal.
    """

    difference: float
    share: float | None
    word: Literal["better", "worse", "higher", "lower", "same"]


def delta(value: float, base: float, *, better: Better) -> Delta | None:
    """Return how `value` stands to `base`; None if either is not finite."""
    if not (np.isfinite(value) and np.isfinite(base)):
        return None
    difference = value - base
    share = difference / abs(base) if base else None
    word: Literal["better", "worse", "higher", "lower", "same"]
    if difference == 0:
        word = "same"
    elif not better:
        word = "higher" if difference > 0 else "lower"
    else:
        word = "better" if (difference > 0) == (better == "higher") else "worse"
    return Delta(difference=difference, share=share, word=word)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupValue:
    """Mean, smallest and largest of a statistic over the `n` runs of a group that have it."""

    mean: float
    low: float
    high: float
    n: int


def over_group(spots: Sequence[Spot | None]) -> GroupValue | None:
    """Return what a group's runs have in common; None if none of them has a finite value."""
    values = [spot.value for spot in spots if spot is not None and np.isfinite(spot.value)]
    if not values:
        return None
    return GroupValue(mean=float(np.mean(values)), low=min(values), high=max(values), n=len(values))
