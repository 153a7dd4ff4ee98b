"""Write a store: events in any order go in, one sorted file comes out, or none.

Memory stays flat whatever the number of events: they pass through a buffer into DuckDB, which sorts on disk.
"""

import contextlib
import json
import shutil
import struct
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import numpy as np
import numpy.typing as npt

from profiling.counted import counted
from profiling.trace import schema
from profiling.trace.lanes import LaneKind, Lanes
from profiling.trace.late_links import MOST_ARROWS, LateLinks
from profiling.trace.limits import DEFAULT
from profiling.trace.names import LONGEST_NAME
from profiling.trace.nesting import MOST_DEPTHS
from profiling.trace.repeated import drop_repeated
from profiling.trace.samples import Samples
from profiling.trace.schema import StoreFacts
from profiling.trace.sweep import fill_depths
from profiling.trace.texts import Infos, Names
from profiling.trace.tiles import build_levels, origin

Severity = Literal["info", "warning", "error"]

_ROW = struct.Struct(f"={len(schema.EVENT_COLUMNS)}q")
_BLOCK = 100_000  # events per insert: below one row group of DuckDB, so that their order is kept
_MOST_NAMED = 3
"""Events that are left out are named up to so many."""
_FAR = 30 * 86_400 * 10**9
"""An event this far from the median one [ns] has a broken clock; no recording takes a month."""


class StoreWriter:
    """A store under construction: a context manager that leaves nothing behind unless `finish` was called."""

    def __init__(self, path: Path, *, source: str, most_samples: int = DEFAULT.samples) -> None:
        self._path = path
        self._part = path.with_name(f".part-{path.name}")
        self._remove()
        self._connection = schema.create(self._part)
        self._lanes = Lanes()
        self._names = Names()
        self._infos = Infos(self._connection)
        self._samples = Samples(self._connection, most=most_samples)
        self._links = LateLinks()
        self._buffer = bytearray()
        self._notes: list[tuple[str, str]] = []
        self._meta: dict[str, object] = {"source": source, "version": schema.VERSION}
        self._events = 0
        self._offset = 0
        self._cut_off = ""
        self._starts_at_zero = False
        self._drops_repeated = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()
        self._remove()

    @property
    def events(self) -> int:
        """How many were added."""
        return self._events + len(self._buffer) // _ROW.size

    def lane(
        self,
        kind: LaneKind,
        *,
        process: str,
        pid: int,
        thread: str = "",
        tid: int = 0,
        device: int = -1,
        stream: int = -1,
        title: str = "",
    ) -> int:
        """Return the number of the lane with these properties, which is made when they are new.

        Raises: TooMuch.
        """
        return self._lanes.number((kind, process, pid, thread, tid, device, stream, title))

    def describe_lane(
        self, lane: int, *, process: str | None = None, pid: int | None = None, thread: str | None = None
    ) -> None:
        """Say more of a lane than was known when its first event came."""
        self._lanes.describe(lane, process=process, pid=pid, thread=thread)

    def frames(self, lane: int) -> None:
        """Say that a lane holds frames of Python alone: those inside one of the same framework get a lane beside it."""
        self._lanes.hold_frames(lane)

    def arrow(self, number: int, lane: int, time: int, *, is_end: bool) -> None:
        """Keep one end of an arrow from an operator forward to its backward: on `lane`, at `time` [Unix ns].

        The other end has the same number. Those beyond MOST_ARROWS are left out, with a note.
        """
        if not self._links.arrow(number, lane, time, is_end=is_end):
            self.note("warning", f"Only the first {MOST_ARROWS // 2:,} links from forward to backward were kept.")

    def join(self, number: int, lane: int, time: int) -> None:
        """Say late that an operator or what a device did, which begins on `lane` at `time` [Unix ns], has this number
        (`outer`): a task finds its operator by it. Those beyond MOST_ARROWS are left out, with a note.
        """
        if not self._links.join(number, lane, time):
            self.note("warning", f"Only the first {MOST_ARROWS // 2:,} links from operators to tasks were kept.")

    def launch(self, calling: int, call: int, lane: int, begin: int, last: int) -> None:
        """Say late that the last call on the lane `calling` which begins until `call` launched what a device began on
        `lane` from `begin` to `last` [Unix ns]. Those beyond MOST_ARROWS are left out, with a note.
        """
        if not self._links.launch(calling, call, lane, begin, last):
            self.note("warning", f"Only the first {MOST_ARROWS:,} links from calls to what they launched were kept.")

    def shift(self, offset: int) -> None:
        """Move everything, also what was added before, by an offset [ns] that became known late."""
        self._offset = offset

    def name(self, text: str) -> int:
        """Return the number of a text; of one longer than LONGEST_NAME a hash stands for the rest."""
        return self._names.number(text)

    def info(self, text: str) -> int:
        """Return the number of a JSON object with details of an event; 0 stands for none.

        What is longer than LONGEST_INFO is left out, and the object says so.
        """
        return self._infos.number(text)

    def add(
        self,
        lane: int,
        start: int,
        duration: int,
        name: int,
        category: int,
        *,
        link: int = 0,
        outer: int = 0,
        bytes: int = 0,
        info: int = 0,
    ) -> None:
        """Add an event: `start` in Unix ns, `duration` in ns. Numbers that int64 does not hold raise OverflowError."""
        try:
            self._buffer += _ROW.pack(lane, start, duration, name, category, link, outer, bytes, info)
        except struct.error as error:
            raise OverflowError(f"A number of an event is none, or too large: {error}.") from error
        if len(self._buffer) >= _BLOCK * _ROW.size:
            self._flush_events()

    def add_many(self, columns: Mapping[str, npt.NDArray[np.int64]]) -> None:
        """Add events as columns (schema.EVENT_COLUMNS, all [n]); link, outer, bytes and info may be left out."""
        n = len(columns["ts"])
        whole = {
            key: np.ascontiguousarray(columns[key], np.int64) if key in columns else np.zeros(n, np.int64)
            for key in schema.EVENT_COLUMNS
        }
        for first in range(0, n, _BLOCK):
            self._insert({key: values[first : first + _BLOCK] for key, values in whole.items()})

    def counter(self, name: str, unit: str, *, device: int = -1, process: str = "") -> int:
        """Return the number of a series of samples, which is made when its properties are new. Raises: TooMuch."""
        return self._samples.series(name, unit, device, process)

    def describe_processes(self, names: Mapping[str, str]) -> None:
        """Say what the processes of counters are called, of which no two may have one name."""
        self._samples.name_processes(names)

    def count(self, series: int, time: int, value: float) -> None:
        """Add a sample: `time` in Unix ns. Those beyond the most that a store takes are left out, with a note."""
        self._samples.add(series, time, value)

    def note(self, severity: Severity, text: str) -> None:
        """Keep a sentence for whoever looks at the trace; what it counts one of is said as one."""
        note = (severity, counted(text[:LONGEST_NAME]))
        if len(self._notes) < 200 and note not in self._notes:
            self._notes.append(note)

    def start_at_zero(self) -> None:
        """Count all times from the earliest event: where nothing tells when the recording began."""
        self._starts_at_zero = True

    @property
    def warnings(self) -> list[str]:
        """The sentences of a reader that say what is missing."""
        return [text for severity, text in self._notes if severity != "info"]

    def cut_off(self, text: str) -> None:
        """Keep that the file ends early; up to which time it was read is said with it."""
        self._cut_off = text

    def leave_out_repeated(self) -> None:
        """Leave out what comes twice, with a note: where events of one name, lane and number at one time are one."""
        self._drops_repeated = True

    def meta(self, key: str, value: object) -> None:
        """Keep a fact about the trace; anything that JSON can hold."""
        self._meta[key] = value

    def finish(self) -> StoreFacts:
        """Sort what was added, put the file in its place and return what it holds."""
        self._flush_events()
        self._infos.flush()
        if left_out := self._samples.finish():
            self.note("warning", left_out)
        run = self._connection.execute
        if self._starts_at_zero:
            self._move_to_zero()
        self._links.give_numbers(self._connection)
        self._drop_broken()
        shifted = f"* REPLACE (ts + {self._offset} AS ts)"
        run(
            f"CREATE TEMP TABLE sorted AS SELECT {shifted} FROM raw ORDER BY lane, ts, dur DESC, rowid; "  # noqa: S608
            "DROP TABLE raw"
        )
        if self._drops_repeated:
            drop_repeated(self._connection, self.note)
        if fill_depths(self._connection, self._lanes, self._names.texts()):
            self.note("warning", f"Events lie more than {MOST_DEPTHS} deep in each other; the deepest share a row.")
        run(
            "CREATE TABLE ev AS SELECT d.lane, d.depth, s.* EXCLUDE (lane) FROM sorted s POSITIONAL JOIN depths d "
            "ORDER BY d.lane, d.depth, s.ts; DROP TABLE sorted; DROP TABLE depths"
        )
        run(f"CREATE TABLE samples AS SELECT {shifted} FROM raw_samples ORDER BY series, ts, rowid")  # noqa: S608
        begin, end = self._span()
        if self._cut_off:
            reached = f" The last event ends {(end - begin) / 1e9:,.3f} s after the first begins." if end else ""
            self.note("warning", f"{self._cut_off}{reached}")
        self._describe()
        (events, samples), *_ = run("SELECT (SELECT count(*) FROM ev), (SELECT count(*) FROM samples)").fetchall()
        facts = StoreFacts(
            events=events,
            lanes=len(self._lanes),
            begin=begin,
            end=end,
            names=len(self._names),
            samples=samples,
            origin=origin(begin),
            has_clock=self._meta.get("clock") != "none",
            revision=schema.REVISION,
        )
        self._meta |= {"facts": asdict(facts), "pyramid": build_levels(self._connection, begin=begin, end=end)}
        schema.insert(self._connection, "meta", [(key, json.dumps(value)) for key, value in self._meta.items()])
        self._connection.close()
        self._part.replace(self._path)
        return facts

    def _remove(self) -> None:
        """Delete what is not finished."""
        for path in (self._part, self._part.with_name(f"{self._part.name}.wal")):
            path.unlink(missing_ok=True)
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self._part.with_name(f"{self._part.name}.tmp"))

    def _flush_events(self) -> None:
        if not self._buffer:
            return
        table = np.frombuffer(self._buffer, np.int64).reshape(-1, len(schema.EVENT_COLUMNS))
        self._insert({key: np.ascontiguousarray(table[:, i]) for i, key in enumerate(schema.EVENT_COLUMNS)})
        self._buffer = bytearray()

    def _insert(self, columns: dict[str, npt.NDArray[np.int64]]) -> None:
        self._events += len(columns["ts"])
        self._connection.execute("INSERT INTO raw SELECT * FROM columns")

    def _move_to_zero(self) -> None:
        run = self._connection.execute
        ((first,),) = run(
            "SELECT min(ts) FROM (SELECT ts FROM raw UNION ALL SELECT ts FROM raw_samples) WHERE abs(ts) < ?", [_FAR]
        ).fetchall()
        if first:
            run("UPDATE raw SET ts = ts - ?", [first])
            run("UPDATE raw_samples SET ts = ts - ?", [first])

    def _drop_broken(self) -> None:
        """Leave out events whose times cannot be: one of them would make the whole view a month wide."""
        run = self._connection.execute
        (middle,) = run(
            "SELECT approx_quantile(ts, 0.5) FROM raw WHERE ts BETWEEN 0 AND ?", [schema.LATEST]
        ).fetchall()[0]
        middle = int(middle or 0)
        where = "ts NOT BETWEEN ? AND ? OR dur NOT BETWEEN 0 AND ?"
        bounds = [max(middle - _FAR, 0), middle + _FAR, _FAR]
        first = run(f"SELECT name, ts, dur FROM raw WHERE {where} LIMIT {_MOST_NAMED}", bounds).fetchall()  # noqa: S608
        if not first:
            return
        (dropped,) = run(f"DELETE FROM raw WHERE {where}", bounds).fetchall()[0]  # noqa: S608
        texts = self._names.texts()
        sentences = [
            f"{texts[name][:60]!r} lasts {lasts / 1000:,.3f} µs"
            if not 0 <= lasts <= _FAR
            else f"{texts[name][:60]!r} begins at {at / 1e9:,.3f} s, a month and more from the others"
            for name, at, lasts in first
        ]
        end = "; ..." if dropped > len(first) else "."
        self.note("warning", f"{dropped:,} events were left out for their times: {'; '.join(sentences)}{end}")

    def _describe(self) -> None:
        """Fill the small tables."""
        run = self._connection.execute
        self._links.insert_arrows(self._connection, offset=self._offset)
        schema.insert(self._connection, "names", list(enumerate(self._names.texts())))
        counted = {
            lane: rest
            for lane, *rest in run(
                "SELECT lane, max(depth) + 1, count(*), min(ts), max(ts + dur) FROM ev GROUP BY lane"
            ).fetchall()
        }
        nothing = [0, 0, 0, 0]
        lanes = [(number, *lane, *counted.get(number, nothing)) for number, lane in self._lanes.rows()]
        schema.insert(self._connection, "lanes", lanes)
        sampled = dict(run("SELECT series, count(*) FROM samples GROUP BY series").fetchall())
        schema.insert(self._connection, "series", self._samples.rows(sampled))
        schema.insert(self._connection, "notes", list(self._notes))

    def _span(self) -> tuple[int, int]:
        """Return the first and the last moment of what is there; (0, 0) for an empty store."""
        bounds = self._connection.execute(
            "SELECT min(a), max(b) FROM (SELECT min(ts) a, max(ts + dur) b FROM ev UNION ALL "
            "SELECT min(ts), max(ts) FROM samples)"
        ).fetchall()[0]
        return (int(bounds[0]), int(bounds[1])) if bounds[0] is not None else (0, 0)
