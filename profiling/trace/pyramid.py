"""Coarser and coarser pictures of a store, so that a view of everything reads few rows.

Level L counts time in buckets of 2**L ns from the origin. A cell is a row (lane, depth) in a bucket that something
touches: how long the row was busy there, how many events start, and what the longest part of an event in it is of.
Events are clipped to the buckets that they cross; those longer than LONG buckets are in no cell, but in a list (a step
of a minute would fill a million buckets). The finest level is as coarse as it may be: below it, a tile touches so few
events that they are read themselves.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

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


def build(connection: "DuckDBPyConnection", *, begin: int, end: int) -> list[int]:
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
            clip(rows(events), events["ts"] - start, events["dur"], events["label"], level=level, first=0, last=1 << 62)
        )
        for at in range(0, len(made.row), _BLOCK):
            piece = {name: getattr(made, name)[at : at + _BLOCK] for name in Cells.__slots__}  # noqa: F841  (read below)
            connection.execute("INSERT INTO raw_cells SELECT * FROM piece")


def _close_level(connection: "DuckDBPyConnection", level: int) -> None:
    connection.execute(f"CREATE TABLE cells_{level} AS SELECT * FROM raw_cells ORDER BY bucket, row")  # noqa: S608
    connection.execute("DROP TABLE raw_cells")


def rows(events: dict[str, Ints]) -> Ints:
    """Return lane << 8 | depth of each event."""
    return events["lane"].astype(np.int64) << 8 | events["depth"].astype(np.int64)
