"""Compact frames into chunks, roll chunks up, and let frames go once nobody can still need them.

A run is compacted in one transaction that also moves `folded_seq`: neither repeating it nor dying in it changes
anything.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Sized
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from django.db import InterfaceError, OperationalError, transaction
from django.db.models import Max

from jobs.models import Chunk, Frame, LogChunk, Metric, Run
from jobs.telemetry.chunks import (
    CHUNK_POINTS,
    CHUNK_ROWS,
    POINTS_PER_ROW,
    Points,
    Spans,
    decode_points,
    decode_rows,
    decode_spans,
    encode_points,
    encode_rows,
    encode_spans,
    join,
    join_rows,
    join_spans,
    roll_up,
    rows_of_points,
)
from jobs.telemetry.columns import collect, collect_spans
from jobs.telemetry.frames import decode_frame
from jobs.telemetry.kept_statistics import keep
from jobs.telemetry.log_index import forget_index, index_log

log = logging.getLogger(__name__)
T = TypeVar("T", bound=Sized)

FOLD_FRAMES = 500
FOLD_BYTES = 4 << 20
FOLD_SECONDS = 300.0
COMPACT_AT_ONCE = 2000  # frames in one transaction
RETRY_SECONDS = 60.0
KEEP_SECONDS = 600.0  # a frame stays this long after it was compacted, for pages that come back
KEEP_LOG_LINES = 200_000  # of one role, rank and stream of an attempt; the oldest go first
DELETE_AT_ONCE = 2000


@dataclass(slots=True, kw_only=True)
class _Tail:
    """What a run has gathered since it was compacted, and when which frames were compacted."""

    num_frames: int = 0
    num_bytes: int = 0
    since: float = 0.0  # monotonic
    compacted: deque[tuple[float, int]] = field(default_factory=deque)
    not_before: float = 0.0  # after compaction failed


class Compactor:
    """Decides when which run is compacted; one run a call, so that ingest is never held up for long."""

    def __init__(self, *, keep_seconds: float = KEEP_SECONDS, fold_seconds: float = FOLD_SECONDS) -> None:
        self._keep_seconds = keep_seconds
        self._fold_seconds = fold_seconds
        self._tails: dict[str, _Tail] | None = None

    def saw(self, run_id: str, *, num_frames: int, num_bytes: int) -> None:
        """Count frames that were just written."""
        tail = self._tails_by_run().setdefault(run_id, _Tail(since=time.monotonic()))
        if not tail.num_frames:
            tail.since = time.monotonic()
        tail.num_frames += num_frames
        tail.num_bytes += num_bytes

    def work(self) -> None:
        """Compact the run that needs it most, if one does; forget frames that were compacted long enough ago."""
        tails, clock = self._tails_by_run(), time.monotonic()
        due = [run_id for run_id, tail in tails.items() if self._is_due(tail, clock)]
        if due:
            run_id = max(due, key=lambda each: tails[each].num_frames)
            try:
                compacted = compact(run_id=run_id)
            except (OperationalError, InterfaceError):
                raise
            except Exception:  # storing must go on; the frames stay and are read as they are
                log.exception("Run %s could not be compacted; trying again in a minute.", run_id)
                tails[run_id].not_before = clock + RETRY_SECONDS
                return
            is_done = compacted.num_frames < COMPACT_AT_ONCE
            tails[run_id].num_frames = 0 if is_done else tails[run_id].num_frames - compacted.num_frames
            tails[run_id].num_bytes = 0 if is_done else tails[run_id].num_bytes
            tails[run_id].compacted.append((clock, compacted.through_seq))
            index_log(run_id)
        for run_id, tail in list(tails.items()):
            if tail.compacted and clock - tail.compacted[0][0] > self._keep_seconds:
                forget_frames(run_id=run_id, through_seq=tail.compacted.popleft()[1])
                forget_log_lines(run_id=run_id)
            if not tail.compacted and not tail.num_frames:
                del tails[run_id]

    def _is_due(self, tail: _Tail, clock: float) -> bool:
        if clock < tail.not_before:
            return False
        is_old = tail.num_frames > 0 and clock - tail.since > self._fold_seconds
        return is_old or tail.num_frames >= FOLD_FRAMES or tail.num_bytes >= FOLD_BYTES

    def _tails_by_run(self) -> dict[str, _Tail]:
        """Return the runs with frames; the first call after a start asks the database."""
        if self._tails is None:
            self._tails = {}
            clock = time.monotonic()
            for run_id, newest in Frame.objects.values_list("run_id").annotate(Max("seq")).order_by():
                compacted = Run.objects.values_list("folded_seq", flat=True).get(pk=run_id)
                tail = _Tail(num_frames=newest - compacted, since=clock)
                if compacted:
                    tail.compacted.append((clock, compacted))
                self._tails[run_id] = tail
        return self._tails


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """What one compaction did: frames through `through_seq` are in chunks now."""

    num_frames: int
    through_seq: int


def compact(*, run_id: str, limit: int = COMPACT_AT_ONCE) -> Compaction:
    """Move what the run's next frames hold into its chunks, at most `limit` frames, in one transaction."""
    with transaction.atomic():
        run = Run.objects.select_for_update().only("folded_seq", "latest_attempt").get(pk=run_id)
        rows = Frame.objects.filter(run_id=run_id, seq__gt=run.folded_seq).order_by("seq")[:limit]
        frames = [
            (seq, attempt, decode_frame(payload))
            for seq, attempt, payload in rows.values_list("seq", "attempt", "payload")
        ]
        if not frames:
            return Compaction(num_frames=0, through_seq=run.folded_seq)
        through = frames[-1][0]
        ids = {
            tuple(key): pk
            for pk, *key in Metric.objects.filter(run_id=run_id).values_list("pk", "kind", "name", "role", "rank")
        }
        for attempt in sorted({attempt for _, attempt, _ in frames}):
            own_frames = [frame for _, number, frame in frames if number == attempt]
            by_id = {ids[key]: value for key, value in collect(own_frames).items() if key in ids}
            append_points(by_id, attempt=attempt, through=through)
            spans = {("span", "", *lane): s for lane, s in collect_spans(own_frames).items()}
            by_id_spans = {ids[key]: s for key, s in spans.items() if key in ids}
            _append(by_id_spans, _SPANS, attempt, through)
        Run.objects.filter(pk=run_id).update(folded_seq=through)
    return Compaction(num_frames=len(frames), through_seq=through)


def append_points(fresh: dict[int, Points], *, attempt: int, through: int) -> None:
    """Add points to the series of these metric ids, to their statistics, and roll up what is full.

    Call it in a transaction.
    """
    sealed = _append(fresh, _POINTS, attempt, through)
    keep(fresh, attempt=attempt, through=through)
    _roll_up_sealed(sealed, attempt, through, level=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Column(Generic[T]):
    """What is done to the points or spans of one series on their way into chunks; `extent` gives x0 and x1."""

    decode: Callable[[bytes | memoryview], T]
    encode: Callable[[T], bytes]
    join: Callable[[list[T]], T]
    part: Callable[[T, slice], T]
    extent: Callable[[T], tuple[int, int]]


_POINTS: _Column[Points] = _Column(
    decode=decode_points,
    encode=encode_points,
    join=join,
    part=lambda data, where: data[where],
    extent=lambda part: (int(part.x.min()), int(part.x.max())),
)
_SPANS: _Column[Spans] = _Column(
    decode=decode_spans,
    encode=encode_spans,
    join=join_spans,
    part=lambda data, where: join_spans([data.take(where)]),  # joining leaves out names that no span of the part has
    extent=lambda part: (int(part.start.min()), int((part.start + part.duration).max())),
)


def _append(fresh: dict[int, T], column: _Column[T], attempt: int, through: int) -> list[tuple[int, int]]:
    """Fill up each series' open chunk and begin new ones; return (metric id, seq) of those that are full."""
    open_chunks = _open_chunks(list(fresh), attempt)
    made: list[Chunk] = []
    for metric_id, data in fresh.items():
        last = open_chunks.get(metric_id)
        seq = -1 if last is None else last.seq
        if last is not None and last.n < CHUNK_POINTS:
            data = column.join([column.decode(last.blob), data])
            seq -= 1
        for start in range(0, len(data), CHUNK_POINTS):
            part = column.part(data, slice(start, start + CHUNK_POINTS))
            seq += 1
            x0, x1 = column.extent(part)
            chunk = Chunk(metric_id=metric_id, attempt=attempt, level=0, seq=seq, n=len(part), x0=x0, x1=x1)
            chunk.blob, chunk.through_seq = column.encode(part), through
            made.append(chunk)
    _write(made)
    return [(chunk.metric_id, chunk.seq) for chunk in made if chunk.n == CHUNK_POINTS]


def _write(chunks: list[Chunk]) -> None:
    """Insert the chunks; an open one of the same place is replaced."""
    Chunk.objects.bulk_create(
        chunks,
        batch_size=200,
        update_conflicts=True,
        unique_fields=["metric", "attempt", "level", "seq"],
        update_fields=["n", "x0", "x1", "blob", "through_seq"],
    )


def _open_chunks(metric_ids: list[int], attempt: int) -> dict[int, Chunk]:
    """Return the newest level-0 chunk of each series; its blob is only read where it is open."""
    by_metric: dict[int, Chunk] = {}
    for some in _some(metric_ids):
        newest = (
            Chunk.objects.filter(metric_id__in=some, attempt=attempt, level=0)
            .values_list("metric_id")
            .annotate(Max("seq"))
        )
        pairs = dict(newest.order_by())
        rows = Chunk.objects.filter(metric_id__in=list(pairs), attempt=attempt, level=0, seq__in=set(pairs.values()))
        by_metric |= {row.metric_id: row for row in rows if row.seq == pairs[row.metric_id]}
    return by_metric


def _roll_up_sealed(sealed: list[tuple[int, int]], attempt: int, through: int, *, level: int) -> None:
    """Make a chunk of 100 rows of `level` for each 100 rows' worth of sealed chunks of the level below."""
    children = (
        CHUNK_ROWS * POINTS_PER_ROW[level] // (CHUNK_POINTS if level == 1 else CHUNK_ROWS * POINTS_PER_ROW[level - 1])
    )
    made: list[Chunk] = []
    for metric_id, seq in sealed:
        if (seq + 1) % children:
            continue
        below = Chunk.objects.filter(
            metric_id=metric_id, attempt=attempt, level=level - 1, seq__gt=seq - children, seq__lte=seq
        ).order_by("seq")
        blobs = list(below.values_list("blob", flat=True))
        assert len(blobs) == children, (metric_id, level, seq, len(blobs))
        parts = [rows_of_points(decode_points(b)) if level == 1 else decode_rows(b) for b in blobs]
        rows = roll_up(join_rows(parts), width=POINTS_PER_ROW[level] // POINTS_PER_ROW[level - 1])
        x0, x1 = int(min(rows.xmin.min(), rows.x0.min())), int(max(rows.xmax.max(), rows.x1.max()))
        made.append(
            Chunk(
                metric_id=metric_id,
                attempt=attempt,
                level=level,
                seq=seq // children,
                n=len(rows),
                x0=x0,
                x1=x1,
                blob=encode_rows(rows),
                through_seq=through,
            )
        )
    Chunk.objects.bulk_create(made, batch_size=100)
    if level + 1 in POINTS_PER_ROW and made:
        _roll_up_sealed([(chunk.metric_id, chunk.seq) for chunk in made], attempt, through, level=level + 1)


def forget_frames(*, run_id: str, through_seq: int) -> int:
    """Delete compacted frames through `through_seq`, a few at a time, and return how many went."""
    compacted = Run.objects.values_list("folded_seq", flat=True).filter(pk=run_id).first()
    if compacted is None:
        return 0
    num = 0
    while True:
        old = Frame.objects.filter(run_id=run_id, seq__lte=min(through_seq, compacted)).order_by("seq")
        ids = list(old.values_list("pk", flat=True)[:DELETE_AT_ONCE])
        num += Frame.objects.filter(pk__in=ids)._raw_delete("default") if ids else 0
        if len(ids) < DELETE_AT_ONCE:
            return num


def forget_log_lines(*, run_id: str, keep_lines: int = KEEP_LOG_LINES) -> int:
    """Delete the oldest log chunks of lanes that have more than `keep_lines` lines, and return how many went."""
    lanes = LogChunk.objects.filter(run_id=run_id).values_list("attempt", "role", "rank", "stream")
    num = 0
    for attempt, role, rank, stream, newest in lanes.annotate(Max("first_line")).order_by():
        if newest > keep_lines:
            lane = LogChunk.objects.filter(run_id=run_id, attempt=attempt, role=role, rank=rank, stream=stream)
            num += lane.filter(first_line__lt=newest - keep_lines).delete()[0]
    if num:
        forget_index(run_id)
    return num


def _some(ids: list[int], size: int = 400) -> Iterator[list[int]]:
    for start in range(0, len(ids), size):
        yield ids[start : start + size]
