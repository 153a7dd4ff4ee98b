"""Read the timeline of a run: spans of a window by lane, the longest first to stay where there are too many."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from django.db.models import Max, Q

from jobs.chunks import Spans, decode_spans, join_spans
from jobs.columns import collect_spans
from jobs.models import Chunk, Metric
from jobs.tail import read_with_tail
from profiling.evidence import PhaseSpans, phase_spans

MAX_LIMIT = 200_000

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
    *, run_id: str, from_ns: int | None = None, to_ns: int | None = None, limit: int = 20_000
) -> SpansAnswer:
    """Return the spans that touch [from_ns, to_ns] (Unix ns; None: open), at most `limit` of them.

    Where there are more, the longest stay: at any zoom those are the ones that can be seen.
    Raises: ValueError if `limit` is out of its range.
    """
    if not 1 <= limit <= MAX_LIMIT:
        raise ValueError(f"limit: {limit} is not between 1 and {MAX_LIMIT}.")
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

    found = read_with_tail(run_id, read)
    parts = found.chunks
    for attempt in {frame["attempt"] for frame in found.frames}:
        frames = [frame for frame in found.frames if frame["attempt"] == attempt]
        for (role, rank), spans in collect_spans(frames).items():
            parts.setdefault((role, rank, attempt), []).append(spans)
    inside = {lane: _in_window(join_spans(spans), from_ns, to_ns) for lane, spans in sorted(parts.items())}
    total = sum(len(spans) for spans in inside.values())
    if total > limit:
        inside = _longest(inside, limit)
    return SpansAnswer(
        through_seq=found.through_seq,
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
    kept, at = {}, 0
    for lane, spans in lanes.items():
        kept[lane] = spans.take(keep[at : at + len(spans)])
        at += len(spans)
    return kept
