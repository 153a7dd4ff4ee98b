"""What all points of a series come to, kept so that nobody has to read them again. Pure arithmetic."""

import math
from dataclasses import dataclass

import numpy as np

from jobs.telemetry.chunks import Points


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedValue:
    """A value and where it was measured: at a step (kind metric), or at a moment in Unix ns (kind system)."""

    x: int
    y: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """`n` points of one series from `first_x` on, `finite` of them finite numbers.

    `last` is the point of the greatest x, of several there the one that came last; it may be NaN or infinite. `low` and
    `high` are the extremes of the finite points, of equal ones the first by x, and `mean` is theirs; None without any.
    """

    n: int
    finite: int
    first_x: int
    last: PlacedValue
    low: PlacedValue | None
    high: PlacedValue | None
    mean: float | None

    @property
    def num_odd(self) -> int:
        """How many points are NaN or infinite."""
        return self.n - self.finite


def statistics_of(data: Points) -> Statistics | None:
    """Return the statistics of the points; None if there is none."""
    if not len(data):
        return None
    x, y = data.x, data.y
    last = len(x) - 1 - int(np.argmax(x[::-1]))
    finite = np.flatnonzero(np.isfinite(y))
    low = high = mean = None
    if len(finite):
        own_x, own_y = x[finite], y[finite]
        low, high = _first(own_x, own_y, own_y.min()), _first(own_x, own_y, own_y.max())
        mean = _mean(own_y)
    return Statistics(
        n=len(x),
        finite=len(finite),
        first_x=int(x.min()),
        last=PlacedValue(x=int(x[last]), y=float(y[last])),
        low=low,
        high=high,
        mean=mean,
    )


def newest_at(data: Points, x: int) -> PlacedValue | None:
    """Return the newest point at or before `x`, of several at one x the one that came last; None before the first."""
    places = np.flatnonzero(data.x <= x)
    if not len(places):
        return None
    before = data.x[places]
    place = places[len(places) - 1 - int(np.argmax(before[::-1]))]
    return PlacedValue(x=int(data.x[place]), y=float(data.y[place]))


def _first(x: np.ndarray, y: np.ndarray, value: float) -> PlacedValue:
    return PlacedValue(x=int(x[y == value].min()), y=float(value))


def _mean(y: np.ndarray) -> float:
    with np.errstate(over="ignore"):
        mean = float(y.mean())
    return mean if math.isfinite(mean) else float((y / len(y)).sum())  # where the sum is more than a float holds


def merged(one: Statistics | None, later: Statistics | None) -> Statistics | None:
    """Return the statistics of both parts together; the points of `later` came after those of `one`."""
    if one is None or later is None:
        return one or later
    finite = one.finite + later.finite
    if one.mean is None or later.mean is None:
        mean = later.mean if one.mean is None else one.mean
    else:
        mean = one.mean * (one.finite / finite) + later.mean * (later.finite / finite)
    return Statistics(
        n=one.n + later.n,
        finite=finite,
        first_x=min(one.first_x, later.first_x),
        last=later.last if later.last.x >= one.last.x else one.last,
        low=_extreme(one.low, later.low, sign=1),
        high=_extreme(one.high, later.high, sign=-1),
        mean=mean,
    )


def _extreme(one: PlacedValue | None, other: PlacedValue | None, *, sign: int) -> PlacedValue | None:
    if one is None or other is None:
        return one or other
    return min(one, other, key=lambda spot: (sign * spot.y, spot.x))
