"""Databases of AMD's rocprofv3 (rocpd, the default of ROCm 7): tables `rocpd_<what>_<id of the recording>`.

Beside them stand views of the plain names, which are not read: a view could be any program. Rows of processes, threads
and agents are named by their place in tables of their own; times are ns since the start of the machine. A call and what
it started share the `stack_id` of their events (`correlation_id` is the program's own); the words of a mark stand in
its event's `extdata`. From schema 4 on a row names its times and its track (process, thread, agent, queue, stream) by
their places in tables, too.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from profiling.trace.formats.rocm import RocmTimeline
from profiling.trace.formats.sqlite_tables import MAGIC, Tables
from profiling.trace.limits import Limits, Progress
from profiling.trace.writer import StoreWriter

_SUFFIX = re.compile(r"rocpd_metadata((?:_[0-9a-zA-Z_-]{1,64})?)\Z")
_KINDS = ("kernel_dispatch", "memory_copy", "region", "sample")
_TRACK = ("pid", "tid", "agent_id", "queue_id", "stream_id")


class RocpdReader:
    """Reads one database, of one recording or of several that were merged."""

    name = "rocpd"
    title = "a database of rocprofv3"
    suffixes = (".db", ".rocpd")

    def sniff(self, path: Path, head: bytes, /) -> bool:
        """A database with the tables of a recording."""
        if not head.startswith(MAGIC):
            return False
        with Tables(path) as tables:
            return bool(_suffixes(tables))

    def read(self, path: Path, writer: StoreWriter, *, progress: Progress, limits: Limits) -> None:
        """Put kernels, copies, calls and marks into a store. Raises: sqlite3.Error for a damaged database."""
        timeline = RocmTimeline(writer, limits)
        devices: list[dict[str, object]] = []
        with Tables(path) as tables:
            suffixes = _suffixes(tables)
            for i, suffix in enumerate(suffixes):
                devices += _Recording(tables, suffix, timeline).read()
                progress((i + 1) / len(suffixes))
        writer.meta("devices", devices[:64])
        timeline.finish()


def _suffixes(tables: Tables) -> list[str]:
    """Return what the names of the tables of each recording end in."""
    endings = (match[1] for name in tables.names if (match := _SUFFIX.match(name)))
    return sorted(end for end in endings if any(f"rocpd_{kind}{end}" in tables.names for kind in _KINDS))


class _Recording:
    """The tables of one recording."""

    def __init__(self, tables: Tables, suffix: str, timeline: RocmTimeline) -> None:
        self._tables = tables
        self._suffix = suffix
        self._timeline = timeline
        self._texts = {key: str(value) for key, value in self._rows("string", "id", "string")}
        self._kernels = dict(self._rows("info_kernel_symbol", "id", "display_name,kernel_name"))
        self._processes = {
            key: (pid, command) for key, pid, command in self._rows("info_process", "id", "pid", "command")
        }
        self._threads = dict(self._rows("info_thread", "id", "tid"))
        agents = self._rows("info_agent", "id", "type", "type_index|logical_index", "product_name|name")
        self._gpus = {key: (index, name) for key, kind, index, name in agents if kind == "GPU"}
        self._tracks = {
            key: dict(zip(_TRACK, about, strict=True)) for key, *about in self._rows("track", "id", *_TRACK)
        }
        self._times = dict(self._rows("timestamp", "id", "value"))
        self._events = {
            key: (stack or correlation, self._texts.get(category, ""), more if more != "{}" else None)
            for key, stack, correlation, category, more in self._rows(
                "event", "id", "stack_id", "correlation_id", "category_id", "extdata"
            )
        }

    def read(self) -> list[dict[str, object]]:
        """Add all rows; return the devices by the number that their streams have, and what they are called."""
        self._add_kernels()
        self._add_copies()
        self._add_regions()
        self._add_marks()
        return [{"id": self._device(agent), "name": str(name)} for agent, (_, name) in self._gpus.items()]

    def _rows(self, table: str, *wanted: str) -> Any:
        return self._tables.rows(f"rocpd_{table}{self._suffix}", *wanted)

    def _timed(self, table: str, *wanted: str) -> Iterator[tuple[Any, ...]]:
        """Yield start, end, what a track tells (_TRACK) and the wanted columns of each row."""
        at = ("start", "end", "start_id", "end_id", "track_id")
        for start, end, start_id, end_id, track, *rest in self._rows(table, *at, *_TRACK, *wanted):
            about, others = rest[: len(_TRACK)], rest[len(_TRACK) :]
            if track is not None:
                values = self._tracks.get(track, {})
                about = [values.get(key) if one is None else one for key, one in zip(_TRACK, about, strict=True)]
                start = self._times.get(start_id) if start is None else start
                end = self._times.get(end_id) if end is None else end
            yield start, end, *about, *others

    def _add_kernels(self) -> None:
        axes = [f"{what}_size_{axis}" for what in ("grid", "workgroup") for axis in "xyz"]
        rows = self._timed("kernel_dispatch", "kernel_id", "event_id", *axes)
        for start, end, process, _, agent, queue, stream, kernel, event, *sizes in rows:
            pid, name = self._process(process)
            self._timeline.kernel(
                str(self._kernels.get(kernel, f"kernel {kernel}")),
                start,
                end,
                pid=pid,
                process=name,
                device=self._device(agent),
                stream=next((n for n in (stream, queue) if isinstance(n, int)), 0),
                correlation=self._events.get(event, (0,))[0],
                details={"grid": sizes[:3], "block": sizes[3:]} if None not in sizes else {},
            )

    def _add_copies(self) -> None:
        rows = self._timed("memory_copy", "src_agent_id", "dst_agent_id", "size", "name_id", "event_id")
        for start, end, process, _, agent, _, stream, source, target, size, text, event in rows:
            pid, name = self._process(process)
            self._timeline.copy(
                self._texts.get(text, ""),
                start,
                end,
                pid=pid,
                process=name,
                device=self._device(next((one for one in (target, source) if one in self._gpus), agent)),
                stream=stream if isinstance(stream, int) else 0,
                correlation=self._events.get(event, (0,))[0],
                size=size,
            )

    def _add_regions(self) -> None:
        for start, end, process, thread, *_, text, event in self._timed("region", "name_id", "event_id"):
            pid, name = self._process(process)
            correlation, domain, more = self._events.get(event, (0, "", None))
            tid = self._threads.get(thread, thread)
            self._timeline.call(
                (_words(more) if domain.startswith("MARKER") else "") or self._texts.get(text, ""),
                start,
                end,
                pid=pid,
                process=name,
                tid=tid if isinstance(tid, int) else 0,
                correlation=correlation,
                domain=domain,
            )

    def _add_marks(self) -> None:
        """Add marks of a moment (`roctxMark`): samples of a track, among which stand those of counters, too."""
        for moment, placed, track, event in self._rows("sample", "timestamp", "timestamp_id", "track_id", "event_id"):
            _, domain, more = self._events.get(event, (0, "", None))
            if not domain.startswith("MARKER"):
                continue
            about = self._tracks.get(track, {})
            pid, name = self._process(about.get("pid"))
            tid = self._threads.get(about.get("tid"), about.get("tid"))
            at = self._times.get(placed) if moment is None else moment
            self._timeline.call(
                _words(more) or "mark",
                at,
                at,
                pid=pid,
                process=name,
                tid=tid if isinstance(tid, int) else 0,
                correlation=0,
                domain=domain,
            )

    def _process(self, key: Any) -> tuple[int, str]:
        """Return the number of a process and what was run."""
        pid, command = self._processes.get(key, (key, ""))
        words = str(command or "").split()
        return pid if isinstance(pid, int) else -1, words[0].rpartition("/")[2] if words else ""

    def _device(self, agent: Any) -> int:
        index = self._gpus.get(agent, (-1, ""))[0]
        return index if isinstance(index, int) else -1


def _words(more: object) -> str:
    """Return what a mark says, by the JSON of its event; "" if it says nothing."""
    try:
        about = orjson.loads(more) if isinstance(more, str) else None
    except orjson.JSONDecodeError:
        about = None
    return str(about.get("message") or "") if isinstance(about, dict) else ""


PLUGIN = RocpdReader()
