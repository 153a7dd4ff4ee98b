"""A series as a screen shows it: by columns of equal width in x, each with the extremes of every point in it.

What stands side by side on a chart shares one grid, so that many lines have the same x. Pure arithmetic.
"""

from dataclasses import dataclass

import numpy as np

from jobs.telemetry.chunks import Floats, Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenGrid:
    """Columns from `low` on: column k holds low + k * width up to, but not with, the next one's; k may be negative.

    Over steps a width is a whole number of them: at 1 a column is a step.
    """

    low: float
    width: float

    def places(self, x: Ints | Floats) -> Ints:
        """Return the columns of these x. [n]"""
        return np.floor((x - self.low) / self.width).astype(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenColumns:
    """One series on a grid: only columns that hold points, all fields [m].

    `y` is the mean of a column's finite points, `low` and `high` are their extremes, NaN without any; `smooth` is the
    smoothed value at its last point, None if none was asked for. `odd` are the columns with values that are not finite,
    with the first of them; `of` counts the points.
    """

    column: Ints
    y: Floats
    low: Floats
    high: Floats
    smooth: Floats | None
    odd: tuple[tuple[int, float], ...]
    of: int


def step_grid(*, low: int, high: int, num_columns: int) -> ScreenGrid:
    """Return the grid of the steps `low` to `high`, both included, in at most so many columns."""
    return ScreenGrid(low=low, width=max(1, -(-(high - low + 1) // num_columns)))


def columns_of(x: Ints | Floats, y: Floats, smooth: Floats | None, *, grid: ScreenGrid) -> ScreenColumns:
    """Return the columns of points with `x` rising. No point is left out: each is within its column's extremes."""
    column, starts = _columns(x, grid)
    is_finite = np.isfinite(y)
    odd: tuple[tuple[int, float], ...] = ()
    if is_finite.all():
        counts = np.diff(starts, append=len(y))
        low, high = _reduced(np.minimum, y, starts), _reduced(np.maximum, y, starts)
        mean = _reduced(np.add, y, starts) / counts
    else:
        places, first = np.unique(grid.places(x[~is_finite]), return_index=True)
        odd = tuple(zip(places.tolist(), y[~is_finite][first].tolist(), strict=True))
        finite = np.where(is_finite, y, np.nan)
        low, high = _reduced(np.fmin, finite, starts), _reduced(np.fmax, finite, starts)
        with np.errstate(invalid="ignore"):
            mean = _reduced(np.add, np.where(is_finite, y, 0.0), starts) / _reduced(np.add, is_finite, starts)
    last = None if smooth is None else smooth[np.append(starts[1:], len(y)) - 1] if len(y) else smooth
    return ScreenColumns(column=column, y=mean, low=low, high=high, smooth=last, odd=odd, of=len(y))


def _columns(x: Ints | Floats, grid: ScreenGrid) -> tuple[Ints, Ints]:
    """Return which columns hold points, and the first point of each."""
    if len(x) and x.dtype.kind == "i":  # of whole steps an edge is found without looking at each
        first, last = grid.places(x[[0, -1]]).tolist()
        if last - first < len(x) // 8:
            column = np.arange(first, last + 1)
            starts = np.searchsorted(x, int(grid.low) + column * int(grid.width))
            holds = np.diff(starts, append=len(x)) > 0
            return column[holds], starts[holds]
    place = grid.places(x)
    starts = np.flatnonzero(np.diff(place, prepend=place[:1] - 1))
    return place[starts], starts


def _reduced(function: np.ufunc, values: np.ndarray, starts: Ints) -> Floats:
    if not len(starts):
        return np.empty(0)
    return np.asarray(function.reduceat(values, starts, dtype=np.float64))
