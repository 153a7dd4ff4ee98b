"""Down-sampling that keeps every spike and every NaN. Pure arithmetic on NumPy arrays."""

from dataclasses import dataclass

import numpy as np

from jobs.telemetry.chunks import Floats, Ints, PointRows, extremes, first_nans


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledSeries:
    """Points that stand for a series. All columns [n], x rising where the series' is.

    `low` and `high` are the smallest and largest number of the point's bin, `place` the row it came from.
    """

    x: Ints
    y: Floats
    low: Floats
    high: Floats
    place: Ints
    is_whole: bool  # every point is here


def sample(rows: PointRows, *, num_points: int) -> SampledSeries:
    """Return at most `num_points` real points of the rows: first, last, and each bin's smallest, largest and first NaN.

    Bins hold equally many rows. Single points that all fit are returned as they are.
    Raises: ValueError if `num_points` is below 8.
    """
    if num_points < 8:
        raise ValueError(f"num_points is {num_points}; use at least 8.")
    n = len(rows)
    if n <= num_points and bool((rows.n == 1).all()):
        place = np.arange(n, dtype=np.int64)
        return SampledSeries(x=rows.x0, y=rows.y0, low=rows.y0, high=rows.y0, place=place, is_whole=True)
    has_nan = bool(rows.nan.any())
    width = -(-n // ((num_points - 2) // (3 if has_nan else 2)))
    starts = np.arange(0, n, width, dtype=np.int64)
    lowest, highest = extremes(rows, width=width)
    low, high = rows.ymin[lowest], rows.ymax[highest]
    has_number = ~np.isnan(low)
    places = [np.array([0, n - 1]), lowest[has_number], highest[has_number]]
    xs = [np.array([rows.x0[0], rows.x1[-1]]), rows.xmin[lowest[has_number]], rows.xmax[highest[has_number]]]
    ys = [np.array([rows.y0[0], rows.y1[-1]]), low[has_number], high[has_number]]
    if has_nan:
        first = first_nans(rows, starts=starts)
        places.append(first)
        xs.append(rows.xnan[first])
        ys.append(np.full(len(first), np.nan))
    return _in_order(np.concatenate(places), np.concatenate(xs), np.concatenate(ys), low, high, width)


def _in_order(place: Ints, x: Ints, y: Floats, low: Floats, high: Floats, width: int) -> SampledSeries:
    """Return the points in the order of their rows, each once; within a row by x."""
    order = np.lexsort((x, place))
    place, x, y = place[order], x[order], y[order]
    is_same = (x[1:] == x[:-1]) & (place[1:] == place[:-1]) & ((y[1:] == y[:-1]) | (np.isnan(y[1:]) & np.isnan(y[:-1])))
    keep = np.concatenate([[True], ~is_same])
    place, x, y = place[keep], x[keep], y[keep]
    return SampledSeries(x=x, y=y, low=low[place // width], high=high[place // width], place=place, is_whole=False)


def sort_rows(rows: PointRows) -> PointRows:
    """Return the rows by rising x0; what came first stands first among equals."""
    is_rising = len(rows) < 2 or bool((rows.x0[1:] >= rows.x0[:-1]).all())
    return rows if is_rising else rows.take(np.argsort(rows.x0, kind="stable"))
