"""Read series: chunks of the coarsest level that still has two rows a pixel, then the newest frames, then down-sampled.

Everything a picture shows is a real point of the series; smoothing is computed before points are left out.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from django.db.models import Max, Min, Q, QuerySet, Sum

from jobs.catalog.metric import current_name
from jobs.models import Chunk, Metric
from jobs.telemetry.chunks import (
    CHUNK_POINTS,
    CHUNK_ROWS,
    POINTS_PER_ROW,
    Floats,
    Ints,
    PointRows,
    Points,
    decode_all,
    decode_rows,
    join,
    join_rows,
    points,
    roll_up,
    rows_of_points,
)
from jobs.telemetry.columns import collect
from jobs.telemetry.downsampling import sample, smooth, sort_rows
from jobs.telemetry.frame_log import read_with_tail

ROWS_PER_PIXEL = 2
MAX_NAMES = 100
MIN_POINTS, MAX_POINTS = 8, 20_000

_FORGOTTEN = 1e-9  # what the points before the window still weigh in a smoothed value, at most

Key = tuple[int, int]  # metric id, attempt


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
    the series. `smooth` is the moving average at the point, over single points or, if `row_points` is above 1, over the
    means of so many points each; None if none was asked for.
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

    def chunks(self) -> Q:
        """Return the condition for chunks that may hold points of the window."""
        condition = Q()
        if self.low is not None:
            condition &= Q(x1__gte=self.low)
        if self.high is not None:
            condition &= Q(x0__lte=self.high)
        return condition

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


@dataclass(slots=True)
class Stock:
    """What chunks and newest frames gave of one series: `levels[k]` are the rows of level k; points of level 0."""

    data: list[Points] = field(default_factory=list)
    levels: dict[int, list[PointRows]] = field(default_factory=dict)

    def rows(self) -> tuple[PointRows, int]:
        """Return rows that all stand for equally many points (the last perhaps for fewer), and for how many."""
        level = max(self.levels, default=0)
        rest = rows_of_points(join(self.data) if self.data else points([], [], []))
        if level == 0:
            return rest, 1
        parts = []
        for k in range(level, 0, -1):
            if k in self.levels:
                parts.append(roll_up(join_rows(self.levels[k]), width=POINTS_PER_ROW[level] // POINTS_PER_ROW[k]))
        parts.append(roll_up(rest, width=POINTS_PER_ROW[level]))
        return join_rows([part for part in parts if len(part)]), POINTS_PER_ROW[level]


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesRequest:
    """What is asked of some series: at most `num_points` points each, smoothed with this weight, of this window."""

    num_points: int
    smoothing: float | None
    window: SeriesWindow

    def check(self) -> None:
        """Raise ValueError if a number is out of its range."""
        if not MIN_POINTS <= self.num_points <= MAX_POINTS:
            raise ValueError(f"points: {self.num_points} is not between {MIN_POINTS} and {MAX_POINTS}.")
        if self.smoothing is not None and not 0 <= self.smoothing < 1:
            raise ValueError(f"smooth: {self.smoothing} is not in 0 (off) to below 1.")


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
    smoothing: float | None = None,
    window: SeriesWindow | None = None,
) -> SeriesAnswer:
    """Return at most `num_points` points of each series with one of these names, all roles, ranks and attempts.

    `num_points` is the width in pixels; `smoothing` the weight in [0, 1) of what came before (None: no smoothing).
    Raises: ValueError if a number is out of its range.
    """
    request = SeriesRequest(num_points=num_points, smoothing=smoothing, window=window or SeriesWindow())
    request.check()
    metrics = series_rows(run_id=run_id, names=names)
    stocks, through = read_stocks(run_id=run_id, metrics=metrics, request=request)
    series = [make_series(metrics[pk], attempt, *stock.rows(), request) for (pk, attempt), stock in stocks.items()]
    return SeriesAnswer(through_seq=through, series=tuple(sorted((s for s in series if s is not None), key=_place)))


def series_rows(*, run_id: str, names: Collection[str]) -> dict[int, Metric]:
    """Return the run's series of these names, spans apart, by number; a former name stands for the present one."""
    wanted = {current_name(name) for name in names}
    return {m.pk: m for m in Metric.objects.filter(run_id=run_id, name__in=wanted).exclude(kind="span")}


def read_stocks(
    *, run_id: str, metrics: Mapping[int, Metric], request: SeriesRequest, last_steps: Mapping[Key, int] | None = None
) -> tuple[dict[Key, Stock], int]:
    """Return what there is of each series and attempt, at the level that the request needs, and through which frame.

    Those with a last step come as single points, whatever the window, with no chunk that begins after that step.
    """
    cuts = last_steps or {}
    stored = read_with_tail(run_id, lambda: _read_chunks(list(metrics), request, cuts))
    stocks = stored.chunks
    by_key = {(m.kind, m.name, m.role, m.rank): pk for pk, m in metrics.items()}
    names = frozenset(m.name for m in metrics.values())
    for attempt in {frame["attempt"] for frame in stored.frames}:
        frames = [frame for frame in stored.frames if frame["attempt"] == attempt]
        for key, data in collect(frames, wanted=names).items():
            if key in by_key:
                stocks.setdefault((by_key[key], attempt), Stock()).data.append(data)
    return stocks, stored.through_seq


def _place(series: Series) -> tuple[str, str, str, int, int]:
    return series.kind, series.name, series.role, series.rank, series.attempt


def _read_chunks(
    metric_ids: Sequence[int], request: SeriesRequest, cuts: Mapping[Key, int]
) -> tuple[dict[Key, Stock], int]:
    """Return what is in chunks, each series at its level, and the highest frame that is in them."""
    stocks: dict[Key, Stock] = {}
    through = 0
    for level, keys in _levels(metric_ids, request.num_points, request.window, cuts).items():
        for some in _queries(keys, level, request.smoothing, request.window):
            rows = some.order_by("metric_id", "attempt", "level", "seq")
            blobs: dict[tuple[Key, int], list[bytes | memoryview]] = {}
            for metric_id, attempt, chunk_level, chunk_through, blob in rows.values_list(
                "metric_id", "attempt", "level", "through_seq", "blob"
            ).iterator(chunk_size=2000):
                if (metric_id, attempt) in keys:
                    blobs.setdefault(((metric_id, attempt), chunk_level), []).append(blob)
                    through = max(through, chunk_through)
            for (key, chunk_level), parts in blobs.items():
                stock = stocks.setdefault(key, Stock())
                if chunk_level:
                    stock.levels[chunk_level] = [decode_rows(part) for part in parts]
                else:
                    stock.data.append(decode_all(parts))
    return stocks, through


def _levels(
    metric_ids: Sequence[int], num_points: int, window: SeriesWindow, cuts: Mapping[Key, int]
) -> dict[int, dict[Key, tuple[int, int]]]:
    """Return level -> series to be read at it -> first and last chunk in the window."""
    by_level: dict[int, dict[Key, tuple[int, int]]] = {}
    chunks = Chunk.objects.filter(metric_id__in=metric_ids, level=0)
    ends = chunks.values_list("metric_id", "attempt").annotate(Max("seq")).order_by()
    newest = {(metric_id, attempt): seq for metric_id, attempt, seq in ends}
    if window.is_open:  # the index alone answers
        extents = [(*key, 0, seq, (seq + 1) * CHUNK_POINTS) for key, seq in newest.items()]
    else:
        inside = chunks.filter(window.chunks()).values_list("metric_id", "attempt")
        extents = list(inside.annotate(Min("seq"), Max("seq"), Sum("n")).order_by())
    for metric_id, attempt, first, last, num in extents:
        if (metric_id, attempt) in cuts:
            continue
        level = _level(num, num_points, sealed=newest[metric_id, attempt])
        by_level.setdefault(level, {})[metric_id, attempt] = (first, last)
    for (metric_id, attempt), step in cuts.items():
        begun = chunks.filter(metric_id=metric_id, attempt=attempt, x0__lte=step).aggregate(Max("seq"))["seq__max"]
        if begun is not None:
            by_level.setdefault(0, {})[metric_id, attempt] = (0, begun)
    return by_level


def _level(num: int, num_points: int, *, sealed: int) -> int:
    """Return the coarsest level that still has two rows a pixel and of which there are chunks."""
    for level in sorted(POINTS_PER_ROW, reverse=True):
        has_chunks = level == 0 or sealed * CHUNK_POINTS >= CHUNK_ROWS * POINTS_PER_ROW[level]
        if has_chunks and num // POINTS_PER_ROW[level] >= ROWS_PER_PIXEL * num_points:
            return level
    return 0


def _queries(
    keys: dict[Key, tuple[int, int]], level: int, smoothing: float | None, window: SeriesWindow
) -> Iterable[QuerySet[Chunk]]:
    """Yield the chunks to read: those of `level`, and of each finer level those that no coarser one covers yet."""
    if level == 0 and window.is_open:
        ids, attempts = ({key[i] for key in keys} for i in (0, 1))
        yield Chunk.objects.filter(metric_id__in=ids, attempt__in=attempts, level=0)
        return
    warm_up = _warm_up_chunks(smoothing) if level == 0 else 0
    for (metric_id, attempt), (first, last) in keys.items():
        chunks = Chunk.objects.filter(metric_id=metric_id, attempt=attempt)
        if level == 0:
            yield chunks.filter(level=0, seq__gte=first - warm_up, seq__lte=last)
            continue
        tops = dict(chunks.filter(level__range=(1, level)).values_list("level").annotate(Max("seq")).order_by())
        wanted = Q(level=level)
        for finer in range(level):
            covered = (tops.get(finer + 1, -1) + 1) * _children(finer + 1)
            wanted |= Q(level=finer, seq__gte=covered)
        yield chunks.filter(wanted)


def _children(level: int) -> int:
    """Return how many chunks of the level below make one of `level`."""
    rows_below = CHUNK_POINTS if level == 1 else CHUNK_ROWS
    return CHUNK_ROWS * POINTS_PER_ROW[level] // (rows_below * POINTS_PER_ROW[level - 1])


def _warm_up_chunks(smoothing: float | None) -> int:
    """Return how many chunks before the window still weigh in its smoothed values."""
    if not smoothing:
        return 0
    return math.ceil(math.log(_FORGOTTEN) / math.log(smoothing) / CHUNK_POINTS)


def make_series(
    metric: Metric, attempt: int, rows: PointRows, row_points: int, request: SeriesRequest
) -> Series | None:
    """Return the series of these rows as it was asked for: smoothed, cut to the window, down-sampled; None if empty."""
    rows = sort_rows(rows)
    averages = smooth(rows, weight=request.smoothing) if request.smoothing is not None else None
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
