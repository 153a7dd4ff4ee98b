"""Read log lines of a run: newest first to be found, oldest first to be read, with search and cursors."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from django.db import connection
from django.db.models import F, Func, Max, Min, QuerySet, Sum

from jobs.catalog.log_level import PATTERNS, Level
from jobs.models import LogChunk
from jobs.telemetry.line_pattern import LinePattern, level_pattern
from jobs.telemetry.log_index import spans
from jobs.telemetry.trashed import hidden_through

MAX_LIMIT = 5000
SEARCH_SECONDS = 1.0  # an answer looks for so long, then says how far it came
_CHUNKS_AT_ONCE = 200
_SEARCHED_CHARS = 1 << 20  # held against an expression at once
_BEHIND = 10**9  # behind any line of a chunk
_COLUMNS = ("pk", "attempt", "role", "rank", "stream", "first_line", "at", "text")

Place = tuple[int, int]  # chunk, line in it


class CursorInvalid(ValueError):
    """The cursor is none of ours."""


@dataclass(frozen=True, kw_only=True)
class LogFilter:
    """Which lines are meant: "" and None mean all. `level` means worse ones, too; `since` and `until` are moments.

    `query` is looked for without regard to case, as an expression where `is_expression`; `pattern` is one more thing
    that lines have to match.
    """

    role: str = ""
    rank: int | None = None
    attempt: int | None = None
    level: Level | None = None
    query: str = ""
    is_expression: bool = False
    since: datetime | None = None
    until: datetime | None = None
    pattern: LinePattern | None = None

    @cached_property
    def patterns(self) -> tuple[LinePattern, ...]:
        """What a line has to match. Raises: PatternInvalid."""
        patterns = [level_pattern(PATTERNS[self.level])] if self.level else []
        patterns += [self.pattern] if self.pattern else []
        return (*patterns, *([LinePattern(self.query, is_expression=self.is_expression)] if self.query else []))


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
    """Lines in the order they came. `has_older` and `has_newer`: more lines may pass the filter on that side.

    `num_older` is how many lines are left out before the first one; None where they were not counted: of a page that is
    read forward, and of a search that has not come to the first line.

    `searched` is the cursor from which to search on where the time ran out before the page was full, else "".
    """

    lines: tuple[LogLine, ...]
    has_older: bool
    has_newer: bool
    lanes: tuple[tuple[str, int], ...]  # every role and rank that logged something
    num_older: int | None
    searched: str = ""


@dataclass(slots=True, kw_only=True)
class _SearchTime:
    """What a search may take, and how far it came when that was over."""

    check: Callable[[], None]
    ends_at: float  # monotonic
    searched: str = ""

    def is_over(self, place: Place) -> bool:
        """Return True if the time is over, and remember the place up to which all was looked at."""
        self.check()
        if time.monotonic() < self.ends_at:
            return False
        self.searched = f"{place[0]}.{place[1]}"
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class _Window:
    """The chunks that are read, in which direction, and the line to begin behind."""

    run_id: str
    chunks: QuerySet[LogChunk]
    cursor: Place | None
    is_forward: bool
    first: int
    last: int


def read_logs(
    *,
    run_id: str,
    wanted: LogFilter = LogFilter(),
    before: str = "",
    after: str = "",
    at: datetime | None = None,
    limit: int = 500,
    check: Callable[[], None] = lambda: None,
) -> LogPage:
    """Return up to `limit` lines: those before or after a cursor, or from a moment on; else the newest.

    Of lines the time is known at which they were read, in pieces of a fraction of a second. A search takes about
    SEARCH_SECONDS; `check` is called now and then, what it raises ends it. Raises: CursorInvalid; PatternInvalid;
    ValueError if `limit` is out of its range.
    """
    if not 1 <= limit <= MAX_LIMIT:
        raise ValueError(f"limit: {limit} is not between 1 and {MAX_LIMIT}.")
    if bool(before) + bool(after) + (at is not None) > 1:
        raise CursorInvalid("Give one of before, after and at.")
    hidden = hidden_through(run_id, "logs")
    is_forward = bool(after) or at is not None
    cursor = _parse(after or before) if after or before else None
    search = _SearchTime(check=check, ends_at=time.monotonic() + SEARCH_SECONDS)
    window = _window(run_id, wanted, cursor, at, hidden, is_forward=is_forward)
    matching = _lines(window, wanted, search) if window is not None else iter(())
    lines = [line for _, line in zip(range(limit + 1), matching, strict=False)]
    has_more = len(lines) > limit or bool(search.searched)
    lines = lines[:limit] if is_forward else lines[:limit][::-1]
    return LogPage(
        lines=tuple(lines),
        has_older=is_forward or has_more,
        has_newer=has_more if is_forward else bool(before),
        lanes=tuple(_lanes(run_id, hidden)),
        num_older=None if is_forward else _num_older(window, wanted, lines) if window is not None and has_more else 0,
        searched=search.searched,
    )


def _num_older(window: _Window, wanted: LogFilter, lines: Sequence[LogLine]) -> int | None:
    """Return how many lines come before those of a page that is read backward."""
    if wanted.patterns:
        return None
    chunk, line = _parse(lines[0].cursor)
    older: int | None = window.chunks.filter(pk__lt=chunk).aggregate(num=Sum("num_lines"))["num"]
    return (older or 0) + line


def _lanes(run_id: str, hidden: int) -> Iterator[tuple[str, int]]:
    """Yield every role and rank that logged something."""
    with connection.cursor() as cursor:
        cursor.execute(_NEXT_LANE, [run_id])
        lanes: list[tuple[str, int]] = cursor.fetchall()
    for role, rank in lanes:
        own = LogChunk.objects.filter(run_id=run_id, role=role, rank=rank)
        if not hidden or own.filter(attempt__gt=hidden).exists():
            yield role, rank


_NEXT_LANE = """
WITH RECURSIVE lane(id) AS (
    SELECT (SELECT id FROM jobs_logchunk WHERE run_id = %s ORDER BY role, rank, id LIMIT 1)
    UNION ALL
    SELECT COALESCE(
        (SELECT id FROM jobs_logchunk
         WHERE run_id = known.run_id AND role = known.role AND rank > known.rank ORDER BY rank, id LIMIT 1),
        (SELECT id FROM jobs_logchunk
         WHERE run_id = known.run_id AND role > known.role ORDER BY role, rank, id LIMIT 1)
    )
    FROM lane JOIN jobs_logchunk known ON known.id = lane.id
)
SELECT role, rank FROM lane JOIN jobs_logchunk USING (id) ORDER BY role, rank
"""
"""From one role and rank to the next by the index, however many chunks each has: `DISTINCT` would read all of it."""


def _window(
    run_id: str, wanted: LogFilter, cursor: Place | None, at: datetime | None, hidden: int, *, is_forward: bool
) -> _Window | None:
    """Return the chunks to read; None where there are none."""
    every = chosen = LogChunk.objects.filter(run_id=run_id)
    low, high = (every.order_by(key).values_list("pk", flat=True).first() or 0 for key in ("pk", "-pk"))
    if wanted.role or wanted.rank is not None:
        own = [
            lane for lane in _lanes(run_id, hidden) if wanted.role in ("", lane[0]) and wanted.rank in (None, lane[1])
        ]
        if len(own) == 1:
            chosen = chosen.filter(role=own[0][0], rank=own[0][1])
        elif own:
            chosen = _plainly(chosen, **({"role": wanted.role} if wanted.role else {"rank": wanted.rank}))
        else:
            return None
    conditions: list[dict[str, object]] = [
        {"attempt__gt": hidden} if hidden else {},
        {"attempt": wanted.attempt} if wanted.attempt is not None else {},
        {"at__gte": wanted.since} if wanted.since is not None else {},
        {"at__lt": wanted.until} if wanted.until is not None else {},
    ]
    for condition in filter(None, conditions):  # each by its own index, then only where such lines are
        ends = every.filter(**condition).aggregate(low=Min("pk"), high=Max("pk"))
        low, high = max(low, ends["low"] or high + 1), min(high, ends["high"] or 0)
        chosen = _plainly(chosen, **condition)
    if at is not None:
        first = chosen.filter(at__gte=at).order_by("at", "pk").values_list("pk", flat=True).first()
        low = high + 1 if first is None else max(low, first)
    if cursor is not None:
        low, high = (max(low, cursor[0]), high) if is_forward else (low, min(high, cursor[0]))
    if not low or low > high:
        return None
    chosen = chosen.filter(pk__gte=low, pk__lte=high).order_by("pk" if is_forward else "-pk")
    return _Window(run_id=run_id, chunks=chosen, cursor=cursor, is_forward=is_forward, first=low, last=high)


class _UnindexedColumn(Func):
    """A column that SQLite chooses no index for: it would take any that begins with the run, and sort all of it."""

    template = "+%(expressions)s"
    arity = 1

    def as_postgresql(self, compiler: Any, connection: Any) -> tuple[str, Sequence[Any]]:
        """PostgreSQL knows how many rows there are."""
        return self.as_sql(compiler, connection, template="%(expressions)s")


def _plainly(chunks: QuerySet[LogChunk], **conditions: object) -> QuerySet[LogChunk]:
    """Filter by conditions that no index is to be chosen for: the chunks are to be read in the order of their keys."""
    columns = {f"plain_{name}": _UnindexedColumn(F(name)) for name in {each.partition("__")[0] for each in conditions}}
    return chunks.alias(**columns).filter(**{f"plain_{each}": value for each, value in conditions.items()})


def _lines(window: _Window, wanted: LogFilter, search: _SearchTime) -> Iterator[LogLine]:
    """Yield the lines that are meant from the cursor on, itself not included, until the time is over."""
    if not wanted.patterns:
        rows = window.chunks.values_list(*_COLUMNS)
        for row in rows.iterator(chunk_size=_CHUNKS_AT_ONCE):
            yield from _behind(window, _lines_of(row, window, range(row[-1].count("\n") + 1)))
        return
    for texts in _texts(window, wanted, search):
        whole = "\n".join(text for _, text in texts)
        if not all(pattern.in_text(whole) for pattern in wanted.patterns):
            continue
        for first in range(0, len(texts), _CHUNKS_AT_ONCE):
            yield from _matching(window, wanted, texts[first : first + _CHUNKS_AT_ONCE])


def _texts(window: _Window, wanted: LogFilter, search: _SearchTime) -> Iterator[list[tuple[int, str]]]:
    """Yield chunks that may hold what is looked for with their text, about a megabyte at a time."""
    places = spans(
        window.run_id,
        window.first,
        window.last,
        wanted.patterns,
        level=wanted.level or "",
        is_forward=window.is_forward,
    )
    for span in places:
        behind = span.last if window.is_forward else span.first
        if span.may_match:
            texts: list[tuple[int, str]] = []
            size = 0
            rows = window.chunks.filter(pk__gte=span.first, pk__lte=span.last).values_list("pk", "text")
            for pk, text in rows.iterator(chunk_size=_CHUNKS_AT_ONCE):
                texts.append((pk, text))
                size += len(text)
                if size >= _SEARCHED_CHARS:
                    yield texts
                    if search.is_over(_end(pk, text, window)):
                        return
                    texts, size = [], 0
            if texts:
                yield texts
        if behind not in (window.first, window.last) and search.is_over((behind, _BEHIND if window.is_forward else 0)):
            return


def _end(pk: int, text: str, window: _Window) -> Place:
    return (pk, text.count("\n")) if window.is_forward else (pk, 0)


def _matching(window: _Window, wanted: LogFilter, texts: Sequence[tuple[int, str]]) -> Iterator[LogLine]:
    """Yield the lines of these chunks that match every pattern."""
    lines = [(pk, i, line) for pk, text in texts for i, line in enumerate(text.split("\n"))]
    for pattern in wanted.patterns:
        lines = [lines[place] for place in pattern.matching([line for _, _, line in lines])]
    places: dict[int, list[int]] = {}
    for pk, i, _ in lines:
        places.setdefault(pk, []).append(i)
    if places:
        rows = window.chunks.filter(pk__in=list(places)).values_list(*_COLUMNS)
        for row in rows:
            yield from _behind(window, _lines_of(row, window, places[row[0]]))


def _behind(window: _Window, lines: Iterator[tuple[Place, LogLine]]) -> Iterator[LogLine]:
    """Yield those of the lines that lie behind the cursor."""
    for place, line in lines:
        if window.cursor is None or (place > window.cursor if window.is_forward else place < window.cursor):
            yield line


def _lines_of(row: tuple[Any, ...], window: _Window, places: Sequence[int]) -> Iterator[tuple[Place, LogLine]]:
    """Yield lines of a chunk with their places, in the direction in which it is read."""
    pk, attempt, role, rank, stream, first, at, text = row
    texts = text.split("\n")
    for i in places if window.is_forward else reversed(places):
        yield (
            (pk, i),
            LogLine(
                cursor=f"{pk}.{i}",
                attempt=attempt,
                role=role,
                rank=rank,
                stream=stream,
                line=first + i,
                at=at,
                text=texts[i],
            ),
        )


def _parse(cursor: str) -> Place:
    chunk, dot, line = cursor.partition(".")
    if not (dot and chunk.isascii() and chunk.isdigit() and line.isascii() and line.isdigit() and len(cursor) < 30):
        raise CursorInvalid(f"{cursor!r} is no cursor. Use the cursor of a line you were given.")
    return int(chunk), int(line)
