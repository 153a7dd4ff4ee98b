"""Write a store: events in any order go in, one sorted file comes out, or none.

Memory stays flat whatever the number of events: they pass through a buffer into DuckDB, which sorts on disk.
"""

import contextlib
import itertools
import json
import math
import shutil
import struct
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import numpy as np
import numpy.typing as npt

from profiling.trace import schema
from profiling.trace.category import DEVICE, Category
from profiling.trace.frames import INNER_FRAMES, Ints, Packages, Runs
from profiling.trace.limits import DEFAULT
from profiling.trace.names import LONGEST_NAME, shortened
from profiling.trace.nesting import MOST_DEPTHS, Nesting
from profiling.trace.repeated import drop_repeated
from profiling.trace.schema import StoreFacts
from profiling.trace.tiles import build_levels, origin

LaneKind = Literal["thread", "stream", "range", "counter", "phase"]
Severity = Literal["info", "warning", "error"]

MOST_LANES = 4096
MOST_ARROWS = 1_000_000
MOST_NAMES = 200_000
MOST_NAME_BYTES = 64 << 20
LONGEST_INFO = 16_000
OTHER_NAME = "(another name)"
"""What events are called once a trace has used up the names that a store keeps."""

_Lane = tuple[LaneKind, str, int, str, int, int, int, str]

_ROW = struct.Struct(f"={len(schema.EVENT_COLUMNS)}q")
_ARROW = struct.Struct("=4q")
_JOINT = struct.Struct("=3q")
_LAUNCH = struct.Struct("=5q")
_BLOCK = 100_000  # events per insert: below one row group of DuckDB, so that their order is kept
_SWEEP = 200_000  # events per block of the sweep
_KNOWN_INFOS = 100_000
_KNOWN_INFO_BYTES = 16 << 20
_FAR = 30 * 86_400 * 10**9
"""An event this far from the median one [ns] has a broken clock; no recording takes a month."""
_LATEST = 1 << 62


class TooMuch(ValueError):
    """The trace holds more of something than a store takes; the sentence says what and how much."""


class StoreWriter:
    """A store under construction: a context manager that leaves nothing behind unless `finish` was called."""

    def __init__(self, path: Path, *, source: str, most_samples: int = DEFAULT.samples) -> None:
        self._path = path
        self._part = path.with_name(f".part-{path.name}")
        self._remove()
        self._connection = schema.create(self._part)
        self._lanes: list[_Lane] = []
        self._lane_numbers: dict[_Lane, int] = {}
        self._frames: dict[int, int] = {}
        self._arrows = bytearray()
        self._joints = bytearray()
        self._launches = bytearray()
        self._names: dict[str, int] = {}
        self._name_bytes = 0
        self._infos: dict[str, int] = {}
        self._last_info = 0
        self._new_infos: list[str] = []
        self._info_bytes = 0
        self._series: dict[tuple[str, str, int, str], int] = {}
        self._buffer = bytearray()
        self._samples: list[tuple[int, int, float]] = []
        self._sampled = 0
        self._most_samples = most_samples
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
        key = _lane(kind, process, pid, thread, tid, device, stream, title)
        if key not in self._lane_numbers:
            if len(self._lanes) >= MOST_LANES:
                raise TooMuch(f"The trace has more than {MOST_LANES:,} threads and streams, which is the most.")
            self._lane_numbers[key] = len(self._lanes)
            self._lanes.append(key)
        return self._lane_numbers[key]

    def describe_lane(
        self, lane: int, *, process: str | None = None, pid: int | None = None, thread: str | None = None
    ) -> None:
        """Say more of a lane than was known when its first event came."""
        old = self._lanes[lane]
        self._lanes[lane] = _lane(
            old[0],
            old[1] if process is None else process,
            old[2] if pid is None else pid,
            old[3] if thread is None else thread,
            *old[4:],
        )

    def frames(self, lane: int) -> None:
        """Say that a lane holds frames of Python alone: those inside one of the same framework get a lane beside it."""
        self._frames[lane] = -1

    def arrow(self, number: int, lane: int, time: int, *, is_end: bool) -> None:
        """Keep one end of an arrow from an operator forward to its backward: on `lane`, at `time` [Unix ns].

        The other end has the same number. Those beyond MOST_ARROWS are left out, with a note.
        """
        if len(self._arrows) >= MOST_ARROWS * _ARROW.size:
            self.note("warning", f"Only the first {MOST_ARROWS // 2:,} links from forward to backward were kept.")
        elif 0 <= time < _LATEST and abs(number) < _LATEST:
            self._arrows += _ARROW.pack(number, lane, time, is_end)

    def join(self, number: int, lane: int, time: int) -> None:
        """Say late that an operator or what a device did, which begins on `lane` at `time` [Unix ns], has this number
        (`outer`): a task finds its operator by it. Those beyond MOST_ARROWS are left out, with a note.
        """
        if len(self._joints) >= MOST_ARROWS * _JOINT.size:
            self.note("warning", f"Only the first {MOST_ARROWS // 2:,} links from operators to tasks were kept.")
        else:
            self._joints += _JOINT.pack(number, lane, time)

    def launch(self, calling: int, call: int, lane: int, begin: int, last: int) -> None:
        """Say late that the last call on the lane `calling` which begins until `call` launched what a device began on
        `lane` from `begin` to `last` [Unix ns]. Those beyond MOST_ARROWS are left out, with a note.
        """
        if len(self._launches) >= MOST_ARROWS * _LAUNCH.size:
            self.note("warning", f"Only the first {MOST_ARROWS:,} links from calls to what they launched were kept.")
        else:
            self._launches += _LAUNCH.pack(calling, call, lane, begin, last)

    def shift(self, offset: int) -> None:
        """Move everything, also what was added before, by an offset [ns] that became known late."""
        self._offset = offset

    def name(self, text: str) -> int:
        """Return the number of a text; of one longer than LONGEST_NAME a hash stands for the rest."""
        number = self._names.get(text)
        if number is not None:
            return number
        text = shortened(text.encode(errors="replace").decode())
        if text not in self._names:
            if len(self._names) >= MOST_NAMES or self._name_bytes > MOST_NAME_BYTES:
                text = OTHER_NAME
            self._name_bytes += len(text)
            self._names.setdefault(text, len(self._names))
        return self._names[text]

    def info(self, text: str) -> int:
        """Return the number of a JSON object with details of an event; 0 stands for none.

        What is longer than LONGEST_INFO is left out, and the object says so.
        """
        number = self._infos.get(text)
        if number is not None:
            return number
        if len(text) > LONGEST_INFO:
            return self.info(json.dumps({"left out": f"{len(text):,} characters"}))
        self._last_info += 1
        self._infos[text] = self._last_info
        self._new_infos.append(text.encode(errors="replace").decode())
        self._info_bytes += len(text)
        if len(self._infos) >= _KNOWN_INFOS or self._info_bytes >= _KNOWN_INFO_BYTES:
            self._flush_infos()
            self._infos.clear()  # the same text may then be kept twice, which harms nobody
        return self._last_info

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
        key = (shortened(name), unit[:40], device, process[:200])
        if key not in self._series and len(self._series) >= MOST_LANES:
            raise TooMuch(f"The trace has more than {MOST_LANES:,} counters, which is the most.")
        return self._series.setdefault(key, len(self._series))

    def describe_processes(self, names: Mapping[str, str]) -> None:
        """Say what the processes of counters are called, of which no two may have one name."""
        self._series = {(*key[:3], names.get(key[3], key[3])[:200]): number for key, number in self._series.items()}

    def count(self, series: int, time: int, value: float) -> None:
        """Add a sample: `time` in Unix ns. Those beyond the most that a store takes are left out, with a note."""
        if not (0 <= time < _LATEST and math.isfinite(value)):
            return
        self._sampled += 1
        if self._sampled > self._most_samples:
            return
        self._samples.append((series, time, value))
        if len(self._samples) >= _BLOCK:
            self._flush_samples()

    def note(self, severity: Severity, text: str) -> None:
        """Keep a sentence for whoever looks at the trace."""
        if len(self._notes) < 200 and (severity, text[:LONGEST_NAME]) not in self._notes:
            self._notes.append((severity, text[:LONGEST_NAME]))

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
        self._flush_infos()
        self._flush_samples()
        if self._sampled > self._most_samples:
            self.note("warning", f"Only the first {self._most_samples:,} samples were read; the rest is left out.")
        run = self._connection.execute
        if self._starts_at_zero:
            self._move_to_zero()
        self._join()
        self._join_launches()
        self._drop_broken()
        shifted = f"* REPLACE (ts + {self._offset} AS ts)"
        run(
            f"CREATE TEMP TABLE sorted AS SELECT {shifted} FROM raw ORDER BY lane, ts, dur DESC, rowid; "  # noqa: S608
            "DROP TABLE raw"
        )
        if self._drops_repeated:
            drop_repeated(self._connection, self.note)
        self._sweep()
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
        self._insert_rows("meta", [(key, json.dumps(value)) for key, value in self._meta.items()])
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

    def _insert_rows(self, table: str, rows: list[tuple[object, ...]]) -> None:
        if rows:
            columns = {}
            for i, values in enumerate(zip(*rows, strict=True)):
                column = np.array(values) if not isinstance(values[0], str) else np.empty(len(values), object)
                column[:] = values
                columns[f"c{i}"] = column
            self._connection.execute(f"INSERT INTO {table} SELECT * FROM columns")  # noqa: S608

    def _flush_infos(self) -> None:
        first = self._last_info - len(self._new_infos) + 1
        self._insert_rows("infos", [(first + i, text) for i, text in enumerate(self._new_infos)])
        self._new_infos = []
        self._info_bytes = 0

    def _flush_samples(self) -> None:
        self._insert_rows("raw_samples", list(self._samples))
        self._samples = []

    def _move_to_zero(self) -> None:
        run = self._connection.execute
        ((first,),) = run(
            "SELECT min(ts) FROM (SELECT ts FROM raw UNION ALL SELECT ts FROM raw_samples) WHERE abs(ts) < ?", [_FAR]
        ).fetchall()
        if first:
            run("UPDATE raw SET ts = ts - ?", [first])
            run("UPDATE raw_samples SET ts = ts - ?", [first])

    def _join(self) -> None:
        """Give events the numbers that were told late."""
        if not self._joints:
            return
        table = np.frombuffer(self._joints, np.int64).reshape(-1, 3)
        joints = dict(zip(("number", "lane", "ts"), map(np.ascontiguousarray, table.T), strict=True))  # noqa: F841
        self._connection.execute(
            'UPDATE raw SET "outer" = j.number FROM joints j '
            "WHERE raw.lane = j.lane AND raw.ts = j.ts AND list_contains(?, raw.cat::INTEGER)",
            [[int(Category.OPERATOR), *(int(one) for one in DEVICE)]],
        )

    def _join_launches(self) -> None:
        """Link calls and what they launched as was told late: all work of a call has the number of its first arrow."""
        if not self._launches:
            return
        table = np.frombuffer(self._launches, np.int64).reshape(-1, 5)
        columns = (np.arange(1, len(table) + 1), *table.T)
        keys = ("number", "calling", "call", "lane", "first", "last")
        drawn = dict(zip(keys, map(np.ascontiguousarray, columns), strict=True))  # noqa: F841
        self._connection.execute(
            "CREATE TEMP TABLE launched AS SELECT c.at AS caller, w.at AS work, "
            "min(t.number) OVER (PARTITION BY c.at) AS number FROM drawn t ASOF JOIN "
            "(SELECT rowid AS at, lane, ts FROM raw WHERE list_contains($calls, cat::INTEGER)) c "
            "ON c.lane = t.calling AND c.ts <= t.call ASOF JOIN "
            "(SELECT rowid AS at, lane, ts FROM raw WHERE list_contains($device, cat::INTEGER) AND link = 0) w "
            "ON w.lane = t.lane AND w.ts >= t.first WHERE w.ts <= t.last",
            {
                "calls": [int(Category.RUNTIME), int(Category.SYNC)],
                "device": [int(one) for one in DEVICE],
            },
        )
        for column in ("caller", "work"):
            self._connection.execute(
                f"UPDATE raw SET link = l.number FROM (SELECT DISTINCT {column} AS at, number FROM launched) l "  # noqa: S608
                "WHERE raw.rowid = l.at"
            )
        self._connection.execute("DROP TABLE launched")

    def _drop_broken(self) -> None:
        """Leave out events whose times cannot be: one of them would make the whole view a month wide."""
        run = self._connection.execute
        (middle,) = run("SELECT approx_quantile(ts, 0.5) FROM raw WHERE ts BETWEEN 0 AND ?", [_LATEST]).fetchall()[0]
        middle = int(middle or 0)
        (dropped,) = run(
            "DELETE FROM raw WHERE ts NOT BETWEEN ? AND ? OR dur NOT BETWEEN 0 AND ?",
            [max(middle - _FAR, 0), middle + _FAR, _FAR],
        ).fetchall()[0]
        if dropped:
            self.note(
                "warning",
                f"{dropped:,} events were left out: they have no length, or lie a month or more from the others.",
            )

    def _sweep(self) -> None:
        """Compute the depth of each event, and the lane that it is drawn on, lane by lane, in blocks."""
        run = self._connection.execute
        sweep = _Sweep(self._frames, self._beside, list(self._names) if self._frames else [])
        (total,) = run("SELECT count(*) FROM sorted").fetchall()[0]
        for first in range(0, total, _SWEEP):
            block = run(
                "SELECT lane, ts, dur, name FROM sorted WHERE rowid BETWEEN ? AND ? ORDER BY rowid",
                [first, first + _SWEEP - 1],
            ).fetchnumpy()
            cuts = [0, *(np.flatnonzero(np.diff(block["lane"])) + 1).tolist(), len(block["lane"])]
            lanes, depths = zip(
                *(
                    sweep.part(int(block["lane"][a]), block["ts"][a:b], block["dur"][a:b], block["name"][a:b])
                    for a, b in itertools.pairwise(cuts)
                ),
                strict=True,
            )
            lane, depth = np.concatenate(lanes).astype(np.int32), np.concatenate(depths).astype(np.int16)
            for a in range(0, len(depth), _BLOCK):
                piece = {"lane": lane[a : a + _BLOCK], "depth": depth[a : a + _BLOCK]}  # noqa: F841  (read below)
                run("INSERT INTO depths SELECT * FROM piece")
        if sweep.deepest == MOST_DEPTHS - 1:
            self.note("warning", f"Events lie more than {MOST_DEPTHS} deep in each other; the deepest share a row.")

    def _beside(self, lane: int) -> int:
        """Return a new lane of the same thread for frames inside frames; the lane itself where there are too many."""
        if len(self._lanes) >= MOST_LANES:
            return lane
        kind, process, pid, thread, tid, device, stream, _ = self._lanes[lane]
        self._lanes.append((kind, process, pid, thread, tid, device, stream, INNER_FRAMES))
        return len(self._lanes) - 1

    def _insert_arrows(self) -> None:
        table = np.frombuffer(self._arrows, np.int64).reshape(-1, 4)
        for first in range(0, len(table), _BLOCK):
            piece = table[first : first + _BLOCK]
            rows = {"number": piece[:, 0], "lane": piece[:, 1], "ts": piece[:, 2] + self._offset, "end": piece[:, 3]}
            columns = {key: np.ascontiguousarray(values) for key, values in rows.items()}  # noqa: F841  (read below)
            self._connection.execute("INSERT INTO arrows SELECT * FROM columns")

    def _describe(self) -> None:
        """Fill the small tables."""
        self._insert_arrows()
        run = self._connection.execute
        self._insert_rows("names", [(number, text) for text, number in self._names.items()])
        counted = {
            lane: rest
            for lane, *rest in run(
                "SELECT lane, max(depth) + 1, count(*), min(ts), max(ts + dur) FROM ev GROUP BY lane"
            ).fetchall()
        }
        nothing = [0, 0, 0, 0]
        self._insert_rows("lanes", [(n, *key, *counted.get(n, nothing)) for n, key in enumerate(self._lanes)])
        sampled = dict(run("SELECT series, count(*) FROM samples GROUP BY series").fetchall())
        self._insert_rows("series", [(n, *key, sampled.get(n, 0)) for key, n in self._series.items()])
        self._insert_rows("notes", list(self._notes))

    def _span(self) -> tuple[int, int]:
        """Return the first and the last moment of what is there; (0, 0) for an empty store."""
        bounds = self._connection.execute(
            "SELECT min(a), max(b) FROM (SELECT min(ts) a, max(ts + dur) b FROM ev UNION ALL "
            "SELECT min(ts), max(ts) FROM samples)"
        ).fetchall()[0]
        return (int(bounds[0]), int(bounds[1])) if bounds[0] is not None else (0, 0)


class _Sweep:
    """Depths, lane by lane; they come one after the other."""

    def __init__(self, frames: dict[int, int], beside: Callable[[int], int], names: list[str]) -> None:
        self._frames = frames
        self._beside = beside
        self._package = Packages().numbers(names)
        self._lane = -1
        self.deepest = 0

    def part(self, lane: int, ts: Ints, dur: Ints, name: Ints) -> tuple[Ints, Ints]:
        """Return on which lane and how deep each event of the next part of a lane is drawn. All [n]."""
        if lane != self._lane:
            self._lane = lane
            self._nesting, self._outer, self._inner = Nesting(), Nesting(), Nesting()
            self._runs = Runs()
        lanes = np.full(len(ts), lane, np.int64)
        depth = self._nesting.depths(ts, dur)
        self.deepest = max(self.deepest, int(depth.max()))
        if lane not in self._frames:
            return lanes, depth
        is_inner = self._runs.inner(depth, self._package[name])
        if is_inner.any() and self._frames[lane] < 0:
            self._frames[lane] = self._beside(lane)
        if self._frames[lane] in (-1, lane):
            return lanes, depth
        depth[~is_inner] = self._outer.depths(ts[~is_inner], dur[~is_inner])
        depth[is_inner] = self._inner.depths(ts[is_inner], dur[is_inner])
        lanes[is_inner] = self._frames[lane]
        return lanes, depth


def _lane(kind: LaneKind, process: str, pid: int, thread: str, tid: int, device: int, stream: int, title: str) -> _Lane:
    """Return the properties of a lane as they are kept: texts that end, numbers that fit."""
    pid, tid, stream = _bounded(pid), _bounded(tid), _bounded(stream)
    return (kind, process[:200], pid, thread[:200], tid, device if abs(device) < 1 << 31 else -1, stream, title[:200])


def _bounded(number: int) -> int:
    """Return an int64: identifiers that processes have are smaller, those in a hostile file need not be."""
    return number if -(1 << 63) <= number < 1 << 63 else -1
