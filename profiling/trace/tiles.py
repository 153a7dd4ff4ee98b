"""Tiles of a timeline, and the levels that they are read from: coarser and coarser pictures of a store.

A tile is 512 columns of 2**level ns each, for some lanes, as bytes that a browser reads without parsing. It begins with
the length of its header (uint32, little-endian), then comes the header as JSON in UTF-8, then zeros up to a multiple of
8 bytes, then arrays (little-endian, row by row), each beginning at a multiple of 8 bytes.

Header: level, index, columns, begin (ns from the origin), rows ([lane, depth] each), names, cats and labels (a text,
its category and a shorter word for it, "" where there is none), exact, n (events in its rows), omitted (rows that did
not fit; ask for fewer lanes).

exact      per event: uint16 row, uint16 name, float64 start (ns from the tile's begin, may be negative), float64
           duration (ns), uint32 id. Such a tile has at most MOST_EXACT events.
not exact  uint8 busy[rows * 512] (0 to 255 of the column's width), uint16 name[rows * 512] of the longest part of an
           event in the column; 65535 where there is none.

Levels are built once, when a store is written, so that a view of everything reads few rows. Level L counts time in
buckets of 2**L ns from the origin. A cell is a row (lane, depth) in a bucket that something touches: how long the row
was busy there, how many events start, and what the longest part of an event in it is of. Events are clipped to the
buckets that they cross; those longer than LONG buckets are in no cell, but in a list (a step of a minute would fill a
million buckets). The finest level is as coarse as it may be: below it, a tile touches so few events that they are read
themselves.
"""

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from profiling.trace.naming import readable
from profiling.trace.store import Columns, Store

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

Ints = npt.NDArray[np.int64]

FINEST = 16
"""Buckets of 65.5 us."""
STEP = 2
"""Each level is four times as coarse as the one below."""
LONG = 8
TILE_BITS = 9
"""A tile has 512 columns."""
MOST_READ = 200_000
"""Events that may start within a tile that is made of events."""
LABEL = "(name::BIGINT << 5 | cat)"
"""What an event is called and its category, as one number."""

_BLOCK = 200_000

COLUMNS = 1 << TILE_BITS
MOST_EXACT = 5000
_AT_ONCE = 2_000  # events that are cut into columns at a time
_MOST_LONG = 50_000  # that one tile reads; in a trace of a program there are some hundreds
MOST_BYTES = 300_000
HIGHEST = 50
"""A column of 13 days."""

_MOST_ROWS = 160
_NONE = 65535
_LONGEST_NAME = 100
_REST = "…"
_ROOM = 500  # bytes for the other facts of a header


@dataclass(frozen=True, slots=True, kw_only=True)
class Cells:
    """Cells as columns, all [n]; the same cell may come twice. `row` is lane << 8 | depth, times in ns."""

    row: Ints
    bucket: Ints
    busy: Ints
    starts: Ints
    longest: Ints
    label: Ints


def origin(begin: int) -> int:
    """Return the moment from which buckets and tiles are counted: `begin` [Unix ns] rounded down to 18 minutes."""
    return begin >> 40 << 40


def clip(row: Ints, start: Ints, duration: Ints, label: Ints, *, level: int, first: int, last: int) -> Cells:
    """Return the parts of events in each bucket of [first, last) that they cross. `start` [n] in ns from the origin.

    A moment without length is in one bucket and keeps it busy for no time.
    """
    end = start + duration
    begin_bucket = start >> level
    end_bucket = np.maximum((end - 1) >> level, begin_bucket)
    low, high = np.maximum(begin_bucket, first), np.minimum(end_bucket, last - 1)
    count = np.maximum(high - low + 1, 0)
    of = np.repeat(np.arange(len(start)), count)
    bucket = low[of] + np.arange(len(of)) - np.repeat(np.cumsum(count) - count, count)
    busy = np.minimum(end[of], (bucket + 1) << level) - np.maximum(start[of], bucket << level)
    starts = (bucket == begin_bucket[of]).astype(np.int64)
    return Cells(row=row[of], bucket=bucket, busy=busy, starts=starts, longest=busy, label=label[of])


def merge(cells: Cells) -> Cells:
    """Return the cells with those of one place made one, by row and bucket."""
    order = np.lexsort((cells.longest, cells.bucket, cells.row))
    row, bucket = cells.row[order], cells.bucket[order]
    is_first = np.ones(len(order), np.bool_)
    is_first[1:] = (row[1:] != row[:-1]) | (bucket[1:] != bucket[:-1])
    first = np.flatnonzero(is_first)
    if not len(first):
        return cells
    last = order[np.append(first[1:], len(order)) - 1]
    return Cells(
        row=row[first],
        bucket=bucket[first],
        busy=np.add.reduceat(cells.busy[order], first),
        starts=np.add.reduceat(cells.starts[order], first),
        longest=cells.longest[last],
        label=cells.label[last],
    )


def build_levels(connection: "DuckDBPyConnection", *, begin: int, end: int) -> list[int]:
    """Add the levels that this store needs to its file and return them, finest first; none if it is small."""
    start = origin(begin)
    finest = _finest(connection, start)
    if finest is None:
        return []
    (events,) = connection.execute("SELECT count(*) FROM ev").fetchall()[0]
    connection.execute(
        f"CREATE TABLE longs AS SELECT rowid AS id, lane, depth, ts, dur, {LABEL} AS label FROM ev "  # noqa: S608
        f"WHERE dur > {LONG << finest} ORDER BY ts"
    )
    (longs,) = connection.execute("SELECT count(*) FROM longs").fetchall()[0]
    connection.execute(_raw_level())
    query = f"SELECT lane, depth, ts, dur, {LABEL} AS label FROM ev WHERE dur <= {LONG << finest}"  # noqa: S608
    _add(connection, query, finest, start, of=events)
    levels = [finest]
    _close_level(connection, finest)
    while _columns(begin, end, levels[-1]) > 1 << TILE_BITS:
        below, level = levels[-1], levels[-1] + STEP
        connection.execute(_raw_level())
        connection.execute(
            f"INSERT INTO raw_cells SELECT row, bucket >> {STEP} AS b, sum(busy)::BIGINT, sum(starts)::BIGINT, "  # noqa: S608
            f"max(longest), arg_max(label, longest) FROM cells_{below} GROUP BY row, b"
        )
        where = f"dur > {LONG << below} AND dur <= {LONG << level}"
        query = f"SELECT lane, depth, ts, dur, label FROM longs WHERE {where}"  # noqa: S608
        _add(connection, query, level, start, of=longs)
        _close_level(connection, level)
        levels.append(level)
    return levels


def _finest(connection: "DuckDBPyConnection", start: int) -> int | None:
    """Return the finest level of which a tile may hold too many events to read; None if no level does."""
    run = connection.execute
    run(
        f"CREATE TEMP TABLE starts AS SELECT (ts - {start}) >> {FINEST + TILE_BITS} AS tile, count(*) AS n "  # noqa: S608
        "FROM ev GROUP BY tile"
    )
    finest = None
    for level in range(FINEST, 63 - TILE_BITS, STEP):
        most, tiles = run(
            f"SELECT max(n), count(*) FROM (SELECT sum(n) AS n FROM starts GROUP BY tile >> {level - FINEST})"  # noqa: S608
        ).fetchall()[0]
        if (most or 0) > MOST_READ:
            finest = level
        if finest is not None or tiles <= 1:
            break
    run("DROP TABLE starts")
    return finest


def _columns(begin: int, end: int, level: int) -> int:
    """Return how many buckets of a level the whole store touches."""
    start = origin(begin)
    return ((end - start) >> level) - ((begin - start) >> level) + 1


def _raw_level() -> str:
    columns = "row INTEGER, bucket BIGINT, busy BIGINT, starts BIGINT, longest BIGINT, label BIGINT"
    return f"CREATE TEMP TABLE raw_cells({columns})"


def _add(connection: "DuckDBPyConnection", query: str, level: int, start: int, *, of: int) -> None:
    """Add the cells of the events of a query to the level that is being built, block by block of its table's rows."""
    for begin in range(0, of, _BLOCK):
        events = connection.execute(f"{query} AND rowid BETWEEN {begin} AND {begin + _BLOCK - 1}").fetchnumpy()
        if not len(events["ts"]):
            continue
        made = merge(
            clip(
                row_numbers(events),
                events["ts"] - start,
                events["dur"],
                events["label"],
                level=level,
                first=0,
                last=1 << 62,
            )
        )
        for at in range(0, len(made.row), _BLOCK):
            piece = {name: getattr(made, name)[at : at + _BLOCK] for name in Cells.__slots__}  # noqa: F841  (read below)
            connection.execute("INSERT INTO raw_cells SELECT * FROM piece")


def _close_level(connection: "DuckDBPyConnection", level: int) -> None:
    connection.execute(f"CREATE TABLE cells_{level} AS SELECT * FROM raw_cells ORDER BY bucket, row")  # noqa: S608
    connection.execute("DROP TABLE raw_cells")


def row_numbers(events: dict[str, Ints]) -> Ints:
    """Return lane << 8 | depth of each event."""
    return events["lane"].astype(np.int64) << 8 | events["depth"].astype(np.int64)


def tile(store: Store, *, level: int, index: int, lanes: Sequence[int] | None = None) -> bytes:
    """Return one tile. Without `lanes`, of all lanes of the store. Raises: ValueError for a tile that cannot be."""
    if not 0 <= level <= HIGHEST:
        raise ValueError(f"level is {level}; it may be 0 to {HIGHEST}.")
    if not 0 <= index < 1 << (62 - level - TILE_BITS):
        raise ValueError(f"index is {index}; at level {level} it may be 0 to {(1 << (62 - level - 9)) - 1}.")
    if lanes is not None and not all(0 <= lane < len(store.lanes) for lane in lanes):
        raise ValueError(f"The trace has lanes 0 to {len(store.lanes) - 1}.")
    chosen = sorted(set(lanes)) if lanes is not None else None
    view = _View(store, level, index, chosen)
    usable = [each for each in store.pyramid if each <= level]
    if usable:
        cells, longs = view.coarse(usable[-1])
        if int(cells.starts.sum()) + len(longs["ts"]) > MOST_EXACT:
            return view.painted(cells, longs)
    events = view.events()
    return view.exact(events) if len(events["ts"]) <= MOST_EXACT else view.painted(None, events)


class _View:
    """What one tile looks at."""

    def __init__(self, store: Store, level: int, index: int, lanes: list[int] | None) -> None:
        self._store = store
        self._level = level
        self._index = index
        self._first = index << TILE_BITS
        self._begin = store.facts.origin + (self._first << level)
        self._end = self._begin + (COLUMNS << level)
        self._lanes = "" if lanes is None else f"AND lane IN ({', '.join(str(int(lane)) for lane in lanes) or 'NULL'})"
        self._row_lanes = "" if lanes is None else self._lanes.replace("lane IN", "row >> 8 IN")

    def events(self) -> Columns:
        """Return the events that touch the tile."""
        return self._store.sql(
            f"SELECT rowid AS id, lane, depth, ts, dur, {LABEL} AS label FROM ev "  # noqa: S608
            f"WHERE ts < ? AND (ts >= ? OR ts + dur > ?) {self._lanes}",
            [self._end, self._begin, self._begin],
        )

    def coarse(self, level: int) -> tuple[Cells, Columns]:
        """Return the cells of a level of the pyramid that lie in the tile, and the long events beside them."""
        shift = self._level - level
        cells = self._store.sql(
            f"SELECT * FROM cells_{level} WHERE bucket >= ? AND bucket < ? {self._row_lanes}",  # noqa: S608
            [self._first << shift, (self._first + COLUMNS) << shift],
        )
        cells["row"] = cells["row"].astype(np.int64)
        cells["bucket"] >>= shift
        longs = self._store.sql(
            f"SELECT id, lane, depth, ts, dur, label FROM longs "  # noqa: S608
            f"WHERE dur > ? AND ts < ? AND ts + dur > ? {self._lanes} ORDER BY dur DESC LIMIT {_MOST_LONG}",
            [LONG << level, self._end, self._begin],
        )
        return Cells(**cells), longs

    def exact(self, events: Columns) -> bytes:
        """Return the tile as events."""
        rows, row, is_shown, omitted = _rows(row_numbers(events))
        label = events["label"][is_shown]
        arrays = [
            row[is_shown].astype("<u2"),
            (events["ts"][is_shown] - self._begin).astype("<f8"),
            events["dur"][is_shown].astype("<f8"),
            events["id"][is_shown].astype("<u4"),
        ]
        names = self._names(label, room=MOST_BYTES - sum(_padded(each.nbytes) for each in arrays) - 2 * len(label))
        arrays.insert(1, names.number.astype("<u2"))
        return self._packed(rows, names, arrays, exact=True, events=int(is_shown.sum()), omitted=omitted)

    def _clipped(self, events: Columns, part: slice) -> Cells:
        return clip(
            row_numbers(events)[part],
            events["ts"][part] - self._store.facts.origin,
            events["dur"][part],
            events["label"][part],
            level=self._level,
            first=self._first,
            last=self._first + COLUMNS,
        )

    def painted(self, cells: Cells | None, events: Columns) -> bytes:
        """Return the tile as columns of cells and of events."""
        n = len(events["ts"]) + (int(cells.starts.sum()) if cells is not None else 0)
        parts = merge(cells) if cells is not None else self._clipped(events, slice(0, 0))
        for first in range(0, len(events["ts"]), _AT_ONCE):  # an event may cross every column of the tile
            piece = self._clipped(events, slice(first, first + _AT_ONCE))
            both = {name: np.concatenate([getattr(parts, name), getattr(piece, name)]) for name in Cells.__slots__}
            parts = merge(Cells(**both))
        rows, row, is_shown, omitted = _rows(parts.row)
        place = row[is_shown] * COLUMNS + parts.bucket[is_shown] - self._first
        busy = np.zeros(len(rows) * COLUMNS, np.uint8)
        share = parts.busy[is_shown] * 255 / (1 << self._level)
        busy[place] = np.clip(np.ceil(share), 0, 255)
        names = self._names(parts.label[is_shown], room=MOST_BYTES - _padded(len(busy)) - _padded(2 * len(busy)))
        name = np.full(len(busy), _NONE, "<u2")
        name[place] = names.number
        return self._packed(rows, names, [busy, name], exact=False, events=n, omitted=omitted)

    def _names(self, labels: Ints, *, room: int) -> "_Names":
        """Return the texts of labels, the most frequent first, as many as find room; the others share one."""
        used, number, count = np.unique(labels, return_inverse=True, return_counts=True)
        room -= _ROOM + 14 * _MOST_ROWS + 32 * 10
        texts: list[str] = []
        categories: list[int] = []
        shorts: list[str] = []
        to = np.zeros(len(used), np.int64)
        rest: dict[int, int] = {}
        for i in np.argsort(-count, kind="stable").tolist():
            label = int(used[i])
            text, category = self._store.names[label >> 5], label & 31
            short = readable(text, category)
            short = "" if short == text else _cut(short)
            text = _cut(text)
            room -= len(_json(text)) + len(_json(short)) + 6
            if room > 0 and len(texts) < _NONE - 32:
                to[i] = len(texts)
                texts.append(text)
                categories.append(category)
                shorts.append(short)
            else:
                if category not in rest:
                    rest[category] = len(texts)
                    texts.append(_REST)
                    categories.append(category)
                    shorts.append("")
                to[i] = rest[category]
        return _Names(texts, categories, shorts, to[number])

    def _packed(
        self, rows: Ints, names: "_Names", arrays: list[npt.NDArray[Any]], *, exact: bool, events: int, omitted: int
    ) -> bytes:
        """Put header and arrays together."""
        header = _json(
            {
                "level": self._level,
                "index": self._index,
                "columns": COLUMNS,
                "begin": self._begin - self._store.facts.origin,
                "rows": [[int(row) >> 8, int(row) & 255] for row in rows],
                "names": names.texts,
                "cats": names.categories,
                "labels": names.labels,
                "exact": exact,
                "n": events,
                "omitted": omitted,
            }
        )
        made = bytearray(struct.pack("<I", len(header)) + header)
        for array in arrays:
            made += bytes(-len(made) % 8)
            made += array.tobytes()
        return bytes(made)


class _Names:
    """Texts with their categories, and which of them each event or cell has. [n]"""

    def __init__(self, texts: list[str], categories: list[int], labels: list[str], number: Ints) -> None:
        self.texts = texts
        self.categories = categories
        self.labels = labels
        self.number = number


def _rows(of: Ints) -> tuple[Ints, Ints, npt.NDArray[np.bool_], int]:
    """Return the rows of a tile, the place of each event or cell among them, which have one, how many rows do not."""
    rows, row = np.unique(of, return_inverse=True)
    return rows[:_MOST_ROWS], row, row < _MOST_ROWS, max(len(rows) - _MOST_ROWS, 0)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_NAME else text[: _LONGEST_NAME - 1] + _REST


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")


def _padded(size: int) -> int:
    return size + 8
