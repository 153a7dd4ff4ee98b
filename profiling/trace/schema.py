"""The tables of a store: one DuckDB file per imported trace, written once and then only read.

`ev` is sorted by (lane, depth, ts), so that a row of the timeline lies together and a query of a window reads little;
an event's number is its place in that order.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

VERSION = 1
"""Of the tables: a store of another one cannot be read."""

REVISION = 10
"""Of what is made of a file: a store of an older one can be read, but lacks lanes, links or names that an import makes
today. 2: frames on lanes of their own, links from forward to backward, owners of waits, exact times of day. 3: launches
of Ascend's tasks, copies in profiles of XLA, asynchronous events, memory snapshots without times in their order. 4:
launches that rocmProfileData's converter and rocprof draw, samples of stacks and functions of Python in Chrome traces.
5: streams of TensorFlow's timelines. 6: operators, frames and steps in databases of Ascend, launches of its newer
traces. 7: what devices of rocprofv3 and XLA are called, traces of an event a line, the time of day of traces that
something follows. 8: samples of the CPU and scheduling in exports of nsys. 9: who called what took long, in exports of
nsys. 10: processes of rocprofv3's tables; calls of libraries in exports of nsys; steps that a host numbers and
operators of a CPU in profiles of XLA.
"""

EVENT_COLUMNS = ("lane", "ts", "dur", "name", "cat", "link", "outer", "bytes", "info")
"""What a writer takes; `ts` in Unix ns, `dur` in ns."""

LATEST = 1 << 62
"""Times in a store are earlier. [Unix ns]"""

_TEMPORARY = """
CREATE TEMP TABLE raw(lane INTEGER, ts BIGINT, dur BIGINT, name INTEGER, cat UTINYINT, link BIGINT, "outer" BIGINT,
    bytes BIGINT, info INTEGER);
CREATE TEMP TABLE depths(lane INTEGER, depth SMALLINT);
CREATE TEMP TABLE raw_samples(series INTEGER, ts BIGINT, value DOUBLE);
"""

_TABLES = """
CREATE TABLE names(id INTEGER, text VARCHAR);
CREATE TABLE infos(id INTEGER, text VARCHAR);
CREATE TABLE lanes(id INTEGER, kind VARCHAR, process VARCHAR, pid BIGINT, thread VARCHAR, tid BIGINT, device INTEGER,
    stream BIGINT, title VARCHAR, depths INTEGER, events BIGINT, first_ts BIGINT, last_ts BIGINT);
CREATE TABLE series(id INTEGER, name VARCHAR, unit VARCHAR, device INTEGER, process VARCHAR, samples BIGINT);
CREATE TABLE arrows(number BIGINT, lane INTEGER, ts BIGINT, is_end BOOLEAN);
CREATE TABLE notes(severity VARCHAR, text VARCHAR);
CREATE TABLE meta(key VARCHAR, value VARCHAR);
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreFacts:
    """What a finished store holds. `begin`, `end` and `origin`, from which tiles are counted, in Unix ns.

    Without a clock (`has_clock`) only lengths mean something: what was recorded is laid out one after another.
    `revision`: see REVISION; stores that are older than it do not tell.
    """

    events: int
    lanes: int
    begin: int
    end: int
    names: int
    samples: int
    origin: int
    has_clock: bool = True
    revision: int = 1


def create(path: Path) -> "DuckDBPyConnection":
    """Return a connection to a new file with empty tables."""
    import duckdb

    connection = duckdb.connect(str(path), config=_settings(path, "96MB"))
    connection.execute(f"BEGIN;{_TEMPORARY}{_TABLES}COMMIT")  # one write to disk instead of one for each table
    return connection


def connect(path: Path) -> "DuckDBPyConnection":
    """Return a connection that only reads.

    DuckDB gives all who connect to a path one database for as long as one of them is connected, also once another file
    stands there. So it is attached to a database of this connection's own.
    """
    import duckdb

    connection = duckdb.connect(":memory:", config=_settings(path, "256MB"))
    try:
        connection.execute(f"ATTACH '{str(path).replace(chr(39), chr(39) * 2)}' AS store (READ_ONLY); USE store")
    except duckdb.Error:
        connection.close()
        raise
    return connection


def another(connection: "DuckDBPyConnection") -> "DuckDBPyConnection":
    """Return one more connection of that kind to the same database."""
    made = connection.cursor()
    made.execute("USE store")
    return made


def insert(connection: "DuckDBPyConnection", table: str, rows: Sequence[tuple[object, ...]]) -> None:
    """Add rows to a table; in each column all are texts, or all are numbers."""
    if not rows:
        return
    columns = {}
    for i, values in enumerate(zip(*rows, strict=True)):
        column = np.array(values) if not isinstance(values[0], str) else np.empty(len(values), object)
        column[:] = values
        columns[f"c{i}"] = column
    connection.execute(f"INSERT INTO {table} SELECT * FROM columns")  # noqa: S608


def _settings(path: Path, memory: str) -> dict[str, str | bool | int | float | list[str]]:
    """Two threads, little memory, the rest beside the file, and nothing that is fetched from elsewhere."""
    return {
        "temp_directory": str(path.with_name(f"{path.name}.tmp")),
        "threads": 2,
        "memory_limit": memory,
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
    }
