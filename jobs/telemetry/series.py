"""Read series: chunks of the coarsest level that still has two rows a pixel, then the newest frames, then down-sampled.

Everything a picture shows is a real point of the series; smoothing is computed before points are left out.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from jobs.catalog.metric import current_name
from jobs.models import Metric
from jobs.telemetry.chunks import Floats, Ints, PointRows
from jobs.telemetry.downsampling import sample, sort_rows
from jobs.telemetry.smoothing import Smoothing, smooth
from jobs.telemetry.stocks import Stock, StockRequest, read_stocks

ROWS_PER_PIXEL = 2
MAX_NAMES = 100
MIN_POINTS, MAX_POINTS = 8, 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesName:
    """That a series exists."""

    kind: str
    name: str
    role: str
    rank: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One series of one attempt, `n` points standing for `of`. Columns are [n].

    `x` is the step (kind metric) or Unix ns (kind system). `low` and `high` are the extremes of the point's stretch of
    the series; `row_points` says how many points each row read stood for. `smooth` is the smoothed value at the point,
    of every single point; None if none was asked for.
    """

    kind: str
    name: str
    role: str
    rank: int
    attempt: int
    of: int
    row_points: int
    x: Ints
    y: Floats
    low: Floats
    high: Floats
    smooth: Floats | None

    @property
    def n(self) -> int:
        """Number of points returned."""
        return len(self.x)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesAnswer:
    """Series complete through frame `through_seq`."""

    through_seq: int
    series: tuple[Series, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesWindow:
    """What part is asked for, both ends included, in the unit of x; None: open."""

    low: int | None = None
    high: int | None = None

    def rows(self, rows: PointRows) -> np.ndarray:
        """Return which rows touch the window."""
        keep = np.ones(len(rows), bool)
        if self.low is not None:
            keep &= rows.x1 >= self.low
        if self.high is not None:
            keep &= rows.x0 <= self.high
        return keep

    @property
    def is_open(self) -> bool:
        """Whether everything is asked for."""
        return self.low is None and self.high is None


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesRequest:
    """What is asked of some series: at most `num_points` points each, smoothed like this, of this window."""

    num_points: int
    smoothing: Smoothing | None
    window: SeriesWindow

    def check(self) -> None:
        """Raise ValueError if a number is out of its range."""
        if not MIN_POINTS <= self.num_points <= MAX_POINTS:
            raise ValueError(f"points: {self.num_points} is not between {MIN_POINTS} and {MAX_POINTS}.")

    def stocks(self) -> StockRequest:
        """Return what has to be read for it: every point where it is smoothed, so that no zoom changes a value."""
        is_smooth = self.smoothing is not None and not self.smoothing.is_none
        return StockRequest(
            least_rows=None if is_smooth else ROWS_PER_PIXEL * self.num_points,
            low=self.window.low,
            high=self.window.high,
            reach=self.smoothing.reach if self.smoothing else (0, 0),
        )


def series_names(*, run_id: str) -> tuple[SeriesName, ...]:
    """Return the run's series, spans apart."""
    rows = Metric.objects.filter(run_id=run_id).exclude(kind="span").order_by("kind", "name", "role", "rank")
    return tuple(
        SeriesName(kind=kind, name=name, role=role, rank=rank)
        for kind, name, role, rank in rows.values_list("kind", "name", "role", "rank")
    )


def read_series(
    *,
    run_id: str,
    names: Collection[str],
    num_points: int = 1000,
    smoothing: Smoothing | None = None,
    window: SeriesWindow | None = None,
) -> SeriesAnswer:
    """Return at most `num_points` points of each series with one of these names, all roles, ranks and attempts.

    `num_points` is the width in pixels; `smoothing` may be None.
    Raises: ValueError if a number is out of its range.
    """
    request = SeriesRequest(num_points=num_points, smoothing=smoothing, window=window or SeriesWindow())
    request.check()
    metrics = series_rows(run_ids=[run_id], names=names)

    def drawn(metric: Metric, stocks: Mapping[int, Stock]) -> list[Series | None]:
        return [make_series(metric, attempt, *stock.rows(), request) for attempt, stock in stocks.items()]

    made, through = read_stocks(run_ids=[run_id], metrics=metrics, request=request.stocks(), use=drawn)
    series = [one for own in made for one in own if one is not None]
    return SeriesAnswer(through_seq=through[run_id], series=tuple(sorted(series, key=_place)))


def series_rows(*, run_ids: Collection[str], names: Collection[str]) -> dict[int, Metric]:
    """Return the runs' series of these names, spans apart, by number; a former name stands for the present one."""
    wanted = {current_name(name) for name in names}
    return {m.pk: m for m in Metric.objects.filter(run_id__in=run_ids, name__in=wanted).exclude(kind="span")}


def _place(series: Series) -> tuple[str, str, str, int, int]:
    return series.kind, series.name, series.role, series.rank, series.attempt


def make_series(
    metric: Metric, attempt: int, rows: PointRows, row_points: int, request: SeriesRequest
) -> Series | None:
    """Return the series of these rows as it was asked for: smoothed, cut to the window, down-sampled; None if empty."""
    rows = sort_rows(rows)
    averages = smooth(rows, request.smoothing) if request.smoothing is not None else None
    if not request.window.is_open:
        keep = request.window.rows(rows)
        rows = rows.take(keep)
        averages = averages[keep] if averages is not None else None
    if not len(rows):
        return None
    drawn = sample(rows, num_points=request.num_points)
    return Series(
        kind=metric.kind,
        name=metric.name,
        role=metric.role,
        rank=metric.rank,
        attempt=attempt,
        of=int(rows.n.sum()),
        row_points=row_points,
        x=drawn.x,
        y=drawn.y,
        low=drawn.low,
        high=drawn.high,
        smooth=averages[drawn.place] if averages is not None else None,
    )
