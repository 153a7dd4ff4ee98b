"""What is known of whole series without reading them: the statistics of clean histories, of many runs at once.

Kept statistics answer wherever an attempt counts whole. Only where a run was resumed from before the end of an attempt,
or two attempts meet, are points read, of those series alone.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from django.db.models import Max, Q

from jobs.models import Chunk, Metric
from jobs.telemetry import history
from jobs.telemetry.chunks import Points, decode_points, join, points
from jobs.telemetry.clean_series import clean_line, cuts_of
from jobs.telemetry.frame_log import WasFolded, read_tails, read_until_whole
from jobs.telemetry.kept_statistics import read_kept
from jobs.telemetry.statistics import PlacedValue, Statistics, merged, newest_at, statistics_of
from jobs.telemetry.stocks import Key, Stock, StockRequest, fresh_points, read_stocks

Limits = Mapping[str, Mapping[int, int | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesFacts:
    """A series' statistics, and its newest point at or before the x that was asked for; None without one."""

    statistics: Statistics
    at: PlacedValue | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _AttemptFacts:
    """What one attempt adds to a series: all of it, `fresh` of its points not in chunks yet."""

    statistics: Statistics
    fresh: Points | None


def read_facts(
    *, run_ids: Collection[str], metrics: Mapping[int, Metric], at: int | Mapping[str, int] | None = None
) -> dict[int, SeriesFacts]:
    """Return metric id -> the facts of its clean history (jobs.telemetry.clean_series); those without a point left out.

    A handful of statements, however many series. `at` is an x, or run id -> its own; the newest point before it is
    found exactly unless points came late by more than a chunk of a thousand.
    """
    ends = at if isinstance(at, Mapping) else {} if at is None else dict.fromkeys(run_ids, at)
    limits = history.limits_of(run_ids)
    return read_until_whole(lambda: _read(run_ids, metrics, limits, ends))


def _read(
    run_ids: Collection[str], metrics: Mapping[int, Metric], limits: Limits, ends: Mapping[str, int]
) -> dict[int, SeriesFacts]:
    cuts = cuts_of(metrics, limits)
    parts = _parts(run_ids, metrics)
    facts: dict[int, SeriesFacts] = {}
    cut_up: dict[int, Metric] = {}
    sought: dict[int, dict[int, int]] = {}  # metric id -> attempt -> the last x that may be taken of it
    for pk, own in parts.items():
        counting = {attempt: part for attempt, part in own.items() if cuts.get((pk, attempt), 0) >= 0}
        if not _is_whole(pk, counting, cuts, kind=metrics[pk].kind):
            cut_up[pk] = metrics[pk]
            continue
        whole = None
        for attempt in sorted(counting):
            whole = merged(whole, counting[attempt].statistics)
        if whole is None:
            continue
        facts[pk] = SeriesFacts(statistics=whole, at=None)
        at = ends.get(metrics[pk].run_id)
        if at is not None:
            sought[pk] = {attempt: min(at, cuts.get((pk, attempt), at)) for attempt in counting}
    for pk, spot in _spots(parts, sought).items():
        facts[pk] = SeriesFacts(statistics=facts[pk].statistics, at=spot)
    return facts | _facts_of_points(cut_up, cuts, ends)


def _parts(run_ids: Collection[str], metrics: Mapping[int, Metric]) -> dict[int, dict[int, _AttemptFacts]]:
    """Return metric id -> attempt -> what there is of it. Raises: WasFolded if the run was compacted meanwhile."""
    tails = read_tails(run_ids)
    fresh = fresh_points(metrics, tails)
    stored, through = read_kept(list(metrics))
    if any(seq > tails[metrics[pk].run_id].folded for pk, seq in through.items()):
        raise WasFolded
    keys = {*stored, *((pk, attempt) for pk, own in fresh.items() for attempt in own)}
    parts: dict[int, dict[int, _AttemptFacts]] = {}
    for pk, attempt in keys:
        more = fresh.get(pk, {}).get(attempt)
        whole = merged(stored.get((pk, attempt)), statistics_of(more) if more is not None else None)
        if whole is not None:
            parts.setdefault(pk, {})[attempt] = _AttemptFacts(statistics=whole, fresh=more)
    return parts


def _is_whole(pk: int, parts: Mapping[int, _AttemptFacts], cuts: Mapping[Key, int], *, kind: str) -> bool:
    """Return True if the series is its attempts one after the other, every point of each."""
    if kind != "metric":
        return True
    next_x = None
    for attempt in sorted(parts, reverse=True):
        own = parts[attempt].statistics
        if own.last.x > cuts.get((pk, attempt), own.last.x) or (next_x is not None and own.last.x >= next_x):
            return False
        next_x = own.first_x if next_x is None else min(next_x, own.first_x)
    return True


def _spots(
    parts: Mapping[int, Mapping[int, _AttemptFacts]], sought: Mapping[int, Mapping[int, int]]
) -> dict[int, PlacedValue]:
    """Return metric id -> the point of the greatest x within the ends of its attempts, of equal ones the latest's."""
    by_key: dict[Key, PlacedValue | None] = {}
    inside: dict[Key, int] = {}
    for pk, ends in sought.items():
        for attempt, end in ends.items():
            own = parts[pk][attempt].statistics
            if own.last.x <= end:
                by_key[pk, attempt] = own.last
            elif own.first_x <= end:
                inside[pk, attempt] = end
    stored = _stored_before(inside)
    for (pk, attempt), end in inside.items():
        fresh = parts[pk][attempt].fresh
        data = join([part for part in (stored.get((pk, attempt)), fresh) if part is not None])
        by_key[pk, attempt] = newest_at(data, end)
    newest: dict[int, PlacedValue] = {}
    for (pk, _attempt), spot in sorted(by_key.items(), key=lambda one: one[0]):
        if spot is not None and (pk not in newest or spot.x >= newest[pk].x):
            newest[pk] = spot
    return newest


def _stored_before(ends: Mapping[Key, int]) -> dict[Key, Points]:
    """Return the points of the chunks in which each series reaches its end, or of the last chunk before it."""
    across = _chunks((key, Q(x0__lte=end, x1__gte=end)) for key, end in ends.items())
    gaps = [(key, Q(x1__lt=end)) for key, end in ends.items() if key not in across]
    if not gaps:
        return across
    newest = Chunk.objects.filter(_condition(gaps)).values_list("metric_id", "attempt").annotate(Max("seq")).order_by()
    return across | _chunks(((metric_id, attempt), Q(seq=seq)) for metric_id, attempt, seq in newest)


def _chunks(wanted: Iterable[tuple[Key, Q]]) -> dict[Key, Points]:
    conditions = list(wanted)
    by_key: dict[Key, list[Points]] = {}
    if conditions:
        rows = Chunk.objects.filter(_condition(conditions)).order_by("seq")
        for metric_id, attempt, blob in rows.values_list("metric_id", "attempt", "blob"):
            by_key.setdefault((metric_id, attempt), []).append(decode_points(blob, with_t=False))
    return {key: join(parts) for key, parts in by_key.items()}


def _condition(wanted: Iterable[tuple[Key, Q]]) -> Q:
    """Return the condition of chunks with points that fulfil any of these; equal ones are asked once for all series."""
    by_condition: dict[tuple[Q, int], list[int]] = {}
    for (metric_id, attempt), condition in wanted:
        by_condition.setdefault((condition, attempt), []).append(metric_id)
    either = Q()
    for (condition, attempt), metric_ids in by_condition.items():
        either |= Q(condition, metric_id__in=metric_ids, attempt=attempt, level=0)
    return either


def _facts_of_points(
    metrics: Mapping[int, Metric], cuts: Mapping[Key, int], ends: Mapping[str, int]
) -> dict[int, SeriesFacts]:
    """Return the facts of series whose attempts overlap, from every point of them."""

    def of(metric: Metric, stocks: Mapping[int, Stock]) -> tuple[int, SeriesFacts | None]:
        line = clean_line(metric, stocks, cuts)
        if line is None:
            return metric.pk, None
        _attempt, rows, _points = line
        data = points(rows.x0, rows.t0, rows.y0)
        whole = statistics_of(data)
        assert whole is not None, metric.pk  # a line has points
        at = ends.get(metric.run_id)
        return metric.pk, SeriesFacts(statistics=whole, at=None if at is None else newest_at(data, at))

    if not metrics:
        return {}
    run_ids = {metric.run_id for metric in metrics.values()}
    made, _through = read_stocks(run_ids=run_ids, metrics=metrics, request=StockRequest(), use=of, last_steps=cuts)
    return {pk: facts for pk, facts in made if facts is not None}
