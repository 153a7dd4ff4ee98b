"""Read what is stored of many series of many runs: from chunks at the level asked for, and from the newest frames.

However many series are asked for, the number of statements is that of their batches, of a few million points each.
"""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from django.db.models import Max, Min, Q, Sum

from jobs.models import Chunk, Metric
from jobs.telemetry.chunks import (
    CHUNK_POINTS,
    CHUNK_ROWS,
    POINTS_PER_ROW,
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
from jobs.telemetry.frame_log import RunTail, WasFolded, read_tails, read_until_whole

T = TypeVar("T")
Key = tuple[int, int]  # metric id, attempt
_Stretch = tuple[int, int, int, int | None]  # attempt, level, first and last chunk (None: all that follow)

BATCH_ROWS = 4_000_000
"""Points, or rows of a roll-up, that one statement gives at most, one series apart."""
_STRETCHES = 200  # in one statement


@dataclass(frozen=True, slots=True, kw_only=True)
class StockRequest:
    """What is read of each series: whole, or `low` to `high` with `reach` points before and after.

    At the coarsest level that has `least_rows` rows; None: every point.
    """

    least_rows: int | None = None
    low: int | None = None
    high: int | None = None
    reach: tuple[int, int] = (0, 0)

    @property
    def is_open(self) -> bool:
        """Whether everything is asked for."""
        return self.low is None and self.high is None

    def chunks(self) -> Q:
        """Return the condition for chunks that may hold points of the window."""
        condition = Q()
        if self.low is not None:
            condition &= Q(x1__gte=self.low)
        if self.high is not None:
            condition &= Q(x0__lte=self.high)
        return condition


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


def read_stocks(
    *,
    run_ids: Collection[str],
    metrics: Mapping[int, Metric],
    request: StockRequest,
    use: Callable[[Metric, Mapping[int, Stock]], T],
    last_steps: Mapping[Key, int] | None = None,
    check: Callable[[], None] = lambda: None,
) -> tuple[list[T], dict[str, int]]:
    """Return what `use` makes of each series of these runs and what is stored of its attempts, and run id -> through
    which frame.

    Series and attempts with a last step come as single points, whatever the window, with no chunk that begins after
    that step. `check` is called before each batch, and may raise to end the work.
    """
    return read_until_whole(lambda: _read(run_ids, metrics, request, use, last_steps or {}, check))


def _read(
    run_ids: Collection[str],
    metrics: Mapping[int, Metric],
    request: StockRequest,
    use: Callable[[Metric, Mapping[int, Stock]], T],
    cuts: Mapping[Key, int],
    check: Callable[[], None],
) -> tuple[list[T], dict[str, int]]:
    tails = read_tails(run_ids)
    fresh = fresh_points(metrics, tails)
    made = []
    for batch in _batches(metrics, _planned(list(metrics), request, cuts)):
        check()
        stocks = _read_batch(batch, metrics, tails)
        for pk in batch:
            own = stocks.get(pk, {})
            for attempt, data in fresh.get(pk, {}).items():
                own.setdefault(attempt, Stock()).data.append(data)
            made.append(use(metrics[pk], own))
    return made, {run_id: tail.through_seq for run_id, tail in tails.items()}


def fresh_points(metrics: Mapping[int, Metric], tails: Mapping[str, RunTail]) -> dict[int, dict[int, Points]]:
    """Return metric id -> attempt -> the points that are in frames only."""
    if not any(tail.frames for tail in tails.values()):
        return {}
    by_key = {(m.run_id, (m.kind, m.name, m.role, m.rank)): pk for pk, m in metrics.items()}
    names = frozenset(m.name for m in metrics.values())
    fresh: dict[int, dict[int, Points]] = {}
    for run_id, tail in tails.items():
        for attempt in {frame["attempt"] for frame in tail.frames}:
            frames = [frame for frame in tail.frames if frame["attempt"] == attempt]
            for key, data in collect(frames, wanted=names).items():
                if (pk := by_key.get((run_id, key))) is not None:
                    fresh.setdefault(pk, {})[attempt] = data
    return fresh


def _planned(
    metric_ids: Sequence[int], request: StockRequest, cuts: Mapping[Key, int]
) -> dict[int, list[tuple[_Stretch, int]]]:
    """Return metric id -> the stretches of its chunks to read, each with about how many rows that gives."""
    chunks = Chunk.objects.filter(metric_id__in=metric_ids)
    ends = chunks.filter(level=0).values_list("metric_id", "attempt").annotate(Max("seq")).order_by()
    newest = {(metric_id, attempt): seq for metric_id, attempt, seq in ends}
    if request.is_open:  # the index alone answers
        extents = [(*key, 0, seq, (seq + 1) * CHUNK_POINTS) for key, seq in newest.items()]
    else:
        inside = chunks.filter(request.chunks(), level=0).values_list("metric_id", "attempt")
        extents = list(inside.annotate(Min("seq"), Max("seq"), Sum("n")).order_by())
    levels = {
        (metric_id, attempt): _level(num, request.least_rows, sealed=newest[metric_id, attempt])
        for metric_id, attempt, _first, _last, num in extents
    }
    tops = _tops([key for key, level in levels.items() if level and key not in cuts])
    plan: dict[int, list[tuple[_Stretch, int]]] = {}
    for metric_id, attempt, first, last, num in extents:
        if (metric_id, attempt) not in cuts:
            level = levels[metric_id, attempt]
            own = plan.setdefault(metric_id, [])
            if level:
                own += _rolled_up(attempt, level, tops[metric_id, attempt], num)
            else:
                before, after = (math.ceil(reach / CHUNK_POINTS) for reach in request.reach)
                stretch = (attempt, 0, max(0, first - before), None if request.is_open else last + after)
                own.append((stretch, num))
    for (metric_id, attempt), last in _begun(cuts).items():
        plan.setdefault(metric_id, []).append(((attempt, 0, 0, last), (last + 1) * CHUNK_POINTS))
    return plan


def _level(num: int, least_rows: int | None, *, sealed: int) -> int:
    """Return the coarsest level that still has so many rows and of which there are chunks."""
    if least_rows is None:
        return 0
    for level in sorted(POINTS_PER_ROW, reverse=True):
        has_chunks = level == 0 or sealed * CHUNK_POINTS >= CHUNK_ROWS * POINTS_PER_ROW[level]
        if has_chunks and num // POINTS_PER_ROW[level] >= least_rows:
            return level
    return 0


def _tops(keys: Sequence[Key]) -> dict[Key, dict[int, int]]:
    """Return the newest chunk of each level above 0."""
    tops: dict[Key, dict[int, int]] = {key: {} for key in keys}
    if keys:
        rolled = Chunk.objects.filter(metric_id__in={key[0] for key in keys}, level__gte=1)
        newest = rolled.values_list("metric_id", "attempt", "level").annotate(Max("seq")).order_by()
        for metric_id, attempt, level, seq in newest:
            if (metric_id, attempt) in tops:
                tops[metric_id, attempt][level] = seq
    return tops


def _rolled_up(attempt: int, level: int, tops: Mapping[int, int], num: int) -> Iterator[tuple[_Stretch, int]]:
    """Yield the chunks of `level`, and of each finer one those that no coarser one covers yet."""
    yield (attempt, level, 0, None), num // POINTS_PER_ROW[level]
    for finer in range(level):
        covered = (tops.get(finer + 1, -1) + 1) * _children(finer + 1)
        yield (attempt, finer, covered, None), CHUNK_POINTS


def _children(level: int) -> int:
    """Return how many chunks of the level below make one of `level`."""
    rows_below = CHUNK_POINTS if level == 1 else CHUNK_ROWS
    return CHUNK_ROWS * POINTS_PER_ROW[level] // (rows_below * POINTS_PER_ROW[level - 1])


def _begun(cuts: Mapping[Key, int]) -> dict[Key, int]:
    """Return the newest chunk of each series that begins at its last step or before; those without are left out."""
    by_cut: dict[tuple[int, int], list[int]] = {}
    for (metric_id, attempt), step in cuts.items():
        by_cut.setdefault((attempt, step), []).append(metric_id)
    begun: dict[Key, int] = {}
    for some in _some(list(by_cut.items())):
        before = Q()
        for (attempt, step), metric_ids in some:
            before |= Q(metric_id__in=metric_ids, attempt=attempt, level=0, x0__lte=step)
        rows = Chunk.objects.filter(before).values_list("metric_id", "attempt").annotate(Max("seq")).order_by()
        begun |= {(metric_id, attempt): seq for metric_id, attempt, seq in rows}
    return begun


def _batches(
    metrics: Mapping[int, Metric], plan: Mapping[int, Sequence[tuple[_Stretch, int]]]
) -> Iterator[dict[int, list[_Stretch]]]:
    """Yield metric id -> what to read of it, every series once, as many at a time as one statement may give."""
    batch: dict[int, list[_Stretch]] = {}
    rows, stretches = 0, set[_Stretch]()
    for pk in sorted(metrics):
        planned = plan.get(pk, ())
        own = [stretch for stretch, _rows in planned]
        num = sum(rows for _stretch, rows in planned)
        if batch and (rows + num > BATCH_ROWS or len(stretches.union(own)) > _STRETCHES):
            yield batch
            batch, rows, stretches = {}, 0, set()
        batch[pk] = own
        rows += num
        stretches.update(own)
    if batch:
        yield batch


def _read_batch(
    batch: Mapping[int, Sequence[_Stretch]], metrics: Mapping[int, Metric], tails: Mapping[str, RunTail]
) -> dict[int, dict[int, Stock]]:
    """Return what the chunks hold. Raises: WasFolded if one holds more than the run did when its tail was read."""
    by_stretch: dict[_Stretch, list[int]] = {}
    for pk, stretches in batch.items():
        for stretch in stretches:
            by_stretch.setdefault(stretch, []).append(pk)
    if not by_stretch:
        return {}
    wanted = Q()
    for (attempt, level, first, last), ids in by_stretch.items():
        within = Q(seq__gte=first) if last is None else Q(seq__range=(first, last))
        wanted |= Q(within, metric_id__in=ids, attempt=attempt, level=level)
    columns = Chunk.objects.filter(wanted).values_list("metric_id", "attempt", "level", "seq", "through_seq", "blob")
    blobs: dict[tuple[int, int, int], list[tuple[int, bytes | memoryview]]] = {}
    for pk, attempt, level, seq, through, blob in columns.iterator(chunk_size=2000):
        if through > tails[metrics[pk].run_id].folded:
            raise WasFolded
        blobs.setdefault((pk, attempt, level), []).append((seq, blob))
    stocks: dict[int, dict[int, Stock]] = {}
    for pk, attempt, level in sorted(blobs):
        parts = [blob for _seq, blob in sorted(blobs.pop((pk, attempt, level)), key=lambda part: part[0])]
        stock = stocks.setdefault(pk, {}).setdefault(attempt, Stock())
        if level:
            stock.levels[level] = [decode_rows(part) for part in parts]
        else:
            stock.data.append(decode_all(parts))
    return stocks


def _some(items: list[T]) -> Iterator[list[T]]:
    for start in range(0, len(items), _STRETCHES):
        yield items[start : start + _STRETCHES]
