"""Read log lines of a run: newest first to be found, oldest first to be read, with search and cursors."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Q, QuerySet

from jobs.models import LogChunk
from jobs.telemetry.trashed import hidden_through

MAX_LIMIT = 5000
_CHUNKS_AT_ONCE = 200
_BEHIND = 2**62


class CursorInvalid(ValueError):
    """The cursor is none of ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """One line. `cursor` names its place in the run, to read on from it as `before` or `after`.

    `line` counts from 0 within its role, rank and stream.
    """

    cursor: str
    attempt: int
    role: str
    rank: int
    stream: str
    line: int
    at: datetime
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPage:
    """Lines in the order they came. `has_older` and `has_newer`: more lines pass the filter on that side."""

    lines: tuple[LogLine, ...]
    has_older: bool
    has_newer: bool
    lanes: tuple[tuple[str, int], ...]  # every role and rank that logged something


def read_logs(
    *,
    run_id: str,
    role: str = "",
    rank: int | None = None,
    attempt: int | None = None,
    query: str = "",
    before: str = "",
    after: str = "",
    at: datetime | None = None,
    limit: int = 500,
) -> LogPage:
    """Return up to `limit` lines: those before or after a cursor, or from a moment on; else the newest.

    `query` is looked for without regard to case. Of lines the time is known at which they were read, in pieces of a
    fraction of a second. Raises: CursorInvalid; ValueError if `limit` is out of its range.
    """
    if not 1 <= limit <= MAX_LIMIT:
        raise ValueError(f"limit: {limit} is not between 1 and {MAX_LIMIT}.")
    if bool(before) + bool(after) + (at is not None) > 1:
        raise CursorInvalid("Give one of before, after and at.")
    every = LogChunk.objects.filter(run_id=run_id, attempt__gt=hidden_through(run_id, "logs"))
    chosen = every.filter(role=role) if role else every
    if rank is not None:
        chosen = chosen.filter(rank=rank)
    if attempt is not None:
        chosen = chosen.filter(attempt=attempt)
    if query.isascii() and query:
        chosen = chosen.filter(text__icontains=query)  # other alphabets: SQLite knows no case there, so look below
    is_forward = bool(after) or at is not None
    cursor = _parse(after or before) if after or before else None
    if at is not None:
        cursor = _just_before(chosen, at)
    lines = list(_take(_lines(chosen, cursor, query, is_forward=is_forward), limit + 1))
    has_more = len(lines) > limit
    lines = lines[:limit] if is_forward else lines[:limit][::-1]
    lanes = every.values_list("role", "rank").distinct().order_by("role", "rank")
    return LogPage(
        lines=tuple(lines),
        has_older=is_forward or has_more,
        has_newer=has_more if is_forward else bool(before),
        lanes=tuple(lanes),
    )


def _just_before(chosen: QuerySet[LogChunk], at: datetime) -> tuple[int, int]:
    """Return the place before the first line of a moment; behind all lines where none is so late."""
    first = chosen.filter(at__gte=at).order_by("pk").values_list("pk", flat=True).first()
    return (_BEHIND, 0) if first is None else (first, -1)


def _lines(
    chosen: QuerySet[LogChunk], cursor: tuple[int, int] | None, query: str, *, is_forward: bool
) -> Iterator[LogLine]:
    """Yield matching lines from the cursor on, itself not included, in either direction."""
    wanted = query.casefold()
    condition = Q()
    if cursor is not None:
        condition = Q(pk__gte=cursor[0]) if is_forward else Q(pk__lte=cursor[0])
    rows = chosen.filter(condition).order_by("pk" if is_forward else "-pk")
    for chunk in rows.iterator(chunk_size=_CHUNKS_AT_ONCE):
        texts = chunk.text.split("\n")
        for i in range(len(texts)) if is_forward else reversed(range(len(texts))):
            if cursor is not None and chunk.pk == cursor[0] and (i <= cursor[1] if is_forward else i >= cursor[1]):
                continue
            if wanted and wanted not in texts[i].casefold():
                continue
            yield LogLine(
                cursor=f"{chunk.pk}.{i}",
                attempt=chunk.attempt,
                role=chunk.role,
                rank=chunk.rank,
                stream=chunk.stream,
                line=chunk.first_line + i,
                at=chunk.at,
                text=texts[i],
            )


def _take(lines: Iterator[LogLine], limit: int) -> Iterator[LogLine]:
    for _, line in zip(range(limit), lines, strict=False):
        yield line


def _parse(cursor: str) -> tuple[int, int]:
    chunk, dot, line = cursor.partition(".")
    if not (dot and chunk.isascii() and chunk.isdigit() and line.isascii() and line.isdigit() and len(cursor) < 30):
        raise CursorInvalid(f"{cursor!r} is no cursor. Use the cursor of a line you were given.")
    return int(chunk), int(line)
