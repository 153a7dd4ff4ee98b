"""Read the timeline of a run: spans of a window by lane; where there are too many, the longest or whole steps stay."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from django.db.models import Max, Q

from jobs.models import Chunk, Metric
from jobs.telemetry.chunks import Spans, decode_spans, join_spans
from jobs.telemetry.columns import collect_spans
from jobs.telemetry.frame_log import read_with_tail
from profiling.evidence import PhaseSpans, phase_spans

MAX_LIMIT = 200_000
_NO_STEP = 2**62

Lane = tuple[str, int, int]  # role, rank, attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanLane:
    """Spans of one role and rank in one attempt, by start."""

    role: str
    rank: int
    attempt: int
    spans: Spans


@dataclass(frozen=True, slots=True, kw_only=True)
class SpansAnswer:
    """Lanes complete through frame `through_seq`; `n` spans of the `of` that touch the window."""

    through_seq: int
    n: int
    of: int
    lanes: tuple[SpanLane, ...]


def read_spans(
    *, run_id: str, from_ns: int | None = None, to_ns: int | None = None, limit: int = 20_000, depth: int | None = None
) -> SpansAnswer:
    """Return the spans that touch [from_ns, to_ns] (Unix ns; None: open), at most `limit` of them.

    Where there are more, the longest stay: at any zoom those are the ones that can be seen. With `depth` only those
    that are nested no deeper. Raises: ValueError if `limit` is out of its range.
    """
    if not 1 <= limit <= MAX_LIMIT:
        raise ValueError(f"limit: {limit} is not between 1 and {MAX_LIMIT}.")
    through, inside = _inside(run_id, from_ns, to_ns)
    if depth is not None:
        inside = {lane: spans.take(spans.depth <= depth) for lane, spans in inside.items()}
    total = sum(len(spans) for spans in inside.values())
    if total > limit:
        inside = _longest(inside, limit)
    return _answer(through, inside, total)


def read_steps(
    *,
    run_id: str,
    attempt: int,
    first_step: int = 1,
    from_ns: int | None = None,
    to_ns: int | None = None,
    near_ns: int | None = None,
    limit: int = 20_000,
) -> SpansAnswer:
    """Return the spans of one attempt in [from_ns, to_ns] (Unix ns; None: open) by whole steps: `limit`, or one step.

    Where there are more, the newest steps stay, or those nearest to `near_ns`, so that nothing of a step is missing.
    The step in which a window begins is left out too, unless it is the attempt's first one.
    """
    through, inside = _inside(run_id, from_ns, to_ns)
    inside = {lane: spans for lane, spans in inside.items() if lane[2] == attempt and len(spans)}
    total = sum(len(spans) for spans in inside.values())
    if from_ns is not None:
        cut = min((int(spans.step[spans.step > 0].min(initial=_NO_STEP)) for spans in inside.values()), default=0)
        if cut != first_step:
            inside = {lane: spans.take(spans.step != cut) for lane, spans in inside.items()}
    if total > limit:
        inside = _whole_steps(inside, limit, near_ns)
    return _answer(through, inside, total)


def _inside(run_id: str, from_ns: int | None, to_ns: int | None) -> tuple[int, dict[Lane, Spans]]:
    """Return the spans that touch a window, complete through the frame that is named first."""
    lanes = {pk: (role, rank) for pk, role, rank in _span_metrics(run_id)}

    def read() -> tuple[dict[Lane, list[Spans]], int]:
        rows = Chunk.objects.filter(metric_id__in=list(lanes), level=0)
        if from_ns is not None:
            rows = rows.filter(Q(x1__gte=from_ns))
        if to_ns is not None:
            rows = rows.filter(Q(x0__lte=to_ns))
        parts: dict[Lane, list[Spans]] = {}
        through = 0
        columns = rows.order_by("metric_id", "attempt", "seq").values_list(
            "metric_id", "attempt", "through_seq", "blob"
        )
        for metric_id, attempt, chunk_through, blob in columns:
            parts.setdefault((*lanes[metric_id], attempt), []).append(decode_spans(blob))
            through = max(through, chunk_through)
        return parts, through

    stored = read_with_tail(run_id, read)
    parts = stored.chunks
    for attempt in {frame["attempt"] for frame in stored.frames}:
        frames = [frame for frame in stored.frames if frame["attempt"] == attempt]
        for (role, rank), spans in collect_spans(frames).items():
            parts.setdefault((role, rank, attempt), []).append(spans)
    inside = {lane: _in_window(join_spans(spans), from_ns, to_ns) for lane, spans in sorted(parts.items())}
    return stored.through_seq, inside


def _answer(through: int, inside: dict[Lane, Spans], total: int) -> SpansAnswer:
    return SpansAnswer(
        through_seq=through,
        n=sum(len(spans) for spans in inside.values()),
        of=total,
        lanes=tuple(
            SpanLane(role=role, rank=rank, attempt=attempt, spans=spans.take(np.argsort(spans.start, kind="stable")))
            for (role, rank, attempt), spans in inside.items()
            if len(spans)
        ),
    )


def as_phase_spans(lanes: Sequence[SpanLane]) -> PhaseSpans:
    """Return the spans of all lanes as columns of one table."""
    if not lanes:
        return phase_spans(())
    spans = [lane.spans for lane in lanes]
    counts = [len(own) for own in spans]
    return PhaseSpans(
        role=np.repeat(np.array([lane.role for lane in lanes], object), counts),
        rank=np.repeat(np.array([lane.rank for lane in lanes], np.int64), counts),
        step=np.concatenate([own.step for own in spans]).astype(np.int64),
        phase=np.concatenate([np.array(own.phases, object)[own.phase] for own in spans]),
        name=np.concatenate([np.array(own.names, object)[own.name] for own in spans]),
        depth=np.concatenate([own.depth for own in spans]).astype(np.int64),
        start=np.concatenate([own.start for own in spans]).astype(np.int64),
        duration=np.concatenate([own.duration for own in spans]).astype(np.int64),
    )


def newest_span(run_id: str) -> int | None:
    """Return when the newest stored span begins (Unix ns), None while none is stored; frames may hold newer ones."""
    lanes = [pk for pk, _role, _rank in _span_metrics(run_id)]
    newest: int | None = Chunk.objects.filter(metric_id__in=lanes, level=0).aggregate(newest=Max("x1"))["newest"]
    return newest


def _span_metrics(run_id: str) -> list[tuple[int, str, int]]:
    return list(Metric.objects.filter(run_id=run_id, kind="span").values_list("pk", "role", "rank"))


def _in_window(spans: Spans, from_ns: int | None, to_ns: int | None) -> Spans:
    keep = np.ones(len(spans), bool)
    if from_ns is not None:
        keep &= spans.start + spans.duration >= from_ns
    if to_ns is not None:
        keep &= spans.start <= to_ns
    return spans.take(keep)


def _longest(lanes: dict[Lane, Spans], limit: int) -> dict[Lane, Spans]:
    """Return the `limit` longest spans over all lanes."""
    durations = np.concatenate([spans.duration for spans in lanes.values()])
    keep = np.zeros(len(durations), bool)
    keep[np.argpartition(durations, len(durations) - limit)[-limit:]] = True
    longest, at = {}, 0
    for lane, spans in lanes.items():
        longest[lane] = spans.take(keep[at : at + len(spans)])
        at += len(spans)
    return longest


def _whole_steps(lanes: dict[Lane, Spans], limit: int, near_ns: int | None) -> dict[Lane, Spans]:
    """Return the spans of the newest steps, or of those nearest to a moment, up to `limit` of them but one step."""
    steps = np.concatenate([spans.step for spans in lanes.values()])
    starts = np.concatenate([spans.start for spans in lanes.values()])
    order = np.lexsort((starts, steps))
    numbers, first, count = np.unique(steps[order], return_index=True, return_counts=True)
    begins = starts[order][first]
    wanted = np.flatnonzero(numbers > 0)  # what lies outside of all steps is no step
    if not len(wanted):
        return lanes
    apart = -begins[wanted] if near_ns is None else np.abs(begins[wanted] - near_ns)
    wanted = wanted[np.argsort(apart, kind="stable")]
    most = max(1, int(np.searchsorted(np.cumsum(count[wanted]), limit, side="right")))
    chosen = np.sort(numbers[wanted[:most]])
    since = int(begins[np.searchsorted(numbers, chosen[0])])
    by_lane = {}
    for lane, spans in lanes.items():
        is_kept = np.isin(spans.step, chosen) | ((spans.step <= 0) & (spans.start >= since))
        by_lane[lane] = spans.take(is_kept)
    return by_lane
