"""Databases of Ascend's profilers: `ascend_pytorch_profiler_<rank>.db` of torch_npu and `msprof_<time>.db`.

Written after the documented schema and tested with databases made by hand: not run on Ascend. Times are Unix ns; a
globalTid is pid << 32 | tid; a connection joins a call with what it started on a device.
"""

import re
from pathlib import Path
from typing import Any

from profiling.trace.category import Category, of_kernel, of_range
from profiling.trace.formats.sqlite_tables import Tables
from profiling.trace.limits import Limits, Progress
from profiling.trace.writer import StoreWriter

_RANK = re.compile(r"_(\d+)\.db$")
_COPY = re.compile(r"memcpy|reduce_async", re.I)
_OWN = {"TASK", "STRING_IDS", "CANN_API", "PYTORCH_API", "MSTX_EVENTS", "COMMUNICATION_OP"}


def is_database(path: Path) -> bool:
    """Return True for a database with the tables of the documented schema."""
    with Tables(path) as tables:
        return "STRING_IDS" in tables.names and len(tables.names & _OWN) >= 2


def read_database(path: Path, writer: StoreWriter, *, progress: Progress, limits: Limits) -> None:
    """Put a database into a store. Raises: sqlite3.Error for a damaged one."""
    with Tables(path) as tables:
        report = _MsprofDatabase(tables, writer, limits)
        for i, part in enumerate((report.calls, report.ranges, report.tasks, report.collectives, report.facts)):
            part()
            progress((i + 1) / 5)
    if match := _RANK.search(path.name):
        writer.meta("rank", int(match[1]))


class _MsprofDatabase:
    """A database while it is read."""

    def __init__(self, tables: Tables, writer: StoreWriter, limits: Limits) -> None:
        self._tables = tables
        self._writer = writer
        self._most = limits.events
        self._texts = tables.texts("STRING_IDS")
        self._unusable = 0
        self._owners: dict[int, int] = {}  # device -> the process whose tasks ran on it

    def calls(self) -> None:
        """Operators of torch and calls of CANN."""
        for table, category in (("PYTORCH_API", Category.OPERATOR), ("CANN_API", Category.RUNTIME)):
            columns = ("startNs", "endNs", "globalTid", "connectionId", "name")
            for start, end, tid, connection, name in self._tables.rows(table, *columns):
                text = self._text(name)
                kind = Category.SYNC if category is Category.RUNTIME and "Synchronize" in text else category
                kind = of_range(text) if kind is Category.OPERATOR and "ProfilerStep" in text else kind
                self._add(self._thread(tid), start, end, text, kind, link=connection)

    def ranges(self) -> None:
        """Marks of MSTX."""
        columns = ("startNs", "endNs", "globalTid", "connectionId", "message")
        for start, end, tid, connection, message in self._tables.rows("MSTX_EVENTS", *columns):
            text = self._text(message)
            self._add(self._thread(tid, title="MSTX"), start, end, text, of_range(text), link=connection)

    def tasks(self) -> None:
        """What ran on a device; the name of a kernel stands in a table of its own."""
        named = dict(self._tables.rows("COMPUTE_TASK_INFO", "globalTaskId", "name"))
        columns = ("startNs", "endNs", "deviceId", "streamId", "connectionId", "globalTaskId", "taskType", "globalPid")
        for start, end, device, stream, connection, task, kind, pid in self._tables.rows("TASK", *columns):
            text = self._text(named.get(task)) if task in named else self._text(kind)
            category = Category.COPY if _COPY.search(self._text(kind)) else of_kernel(text)
            if "WAIT" in text.upper() or "NOTIFY" in text.upper():
                category = Category.SYNC
            self._add(
                self._stream(device, stream, pid, is_wait=category is Category.SYNC),
                start,
                end,
                text,
                category,
                link=connection,
            )

    def collectives(self) -> None:
        """Collectives as a whole, on the device of the process that called them; their parts are tasks.

        Older databases do not say which device that is: it is the only one then.
        """
        only = next(iter(self._owners)) if len(self._owners) == 1 else -1
        for start, end, name, connection, group, device in self._tables.rows(
            "COMMUNICATION_OP", "startNs", "endNs", "opName", "connectionId", "groupName", "deviceId"
        ):
            at = _number(device) if isinstance(device, int) else only
            where = self._writer.lane(
                "stream",
                process="",
                pid=self._owners.get(at, -1),
                device=at,
                stream=-1,
                title=f"HCCL {self._text(group)}".strip(),
            )
            self._add(where, start, end, self._text(name), Category.COMMUNICATION, link=connection)

    def facts(self) -> None:
        """Ranks and devices."""
        writer = self._writer
        writer.meta("tool", "msprof")
        devices = [
            {"rank": rank, "id": device} for rank, device in self._tables.rows("RANK_DEVICE_MAP", "rankId", "deviceId")
        ]
        writer.meta("devices", devices[:64])
        if len(devices) == 1 and isinstance(devices[0]["rank"], int):
            writer.meta("rank", devices[0]["rank"])
        if self._unusable:
            writer.note("warning", f"{self._unusable:,} rows were left out: a time is missing or is none.")
        if writer.events >= self._most:
            writer.note("warning", f"Only {self._most:,} events were read; the rest is left out.")

    def _add(self, lane: int | None, start: Any, end: Any, name: str, category: Category, *, link: Any) -> None:
        writer = self._writer
        if lane is None or not isinstance(start, int) or not isinstance(end, int) or not name:
            self._unusable += 1
        elif writer.events < self._most:
            joined = link if isinstance(link, int) and 0 < link < (1 << 32) - 1 else 0
            try:
                writer.add(lane, start, end - start, writer.name(name), category, link=joined)
            except OverflowError:
                self._unusable += 1

    def _thread(self, tid: Any, *, title: str = "") -> int | None:
        if not isinstance(tid, int):
            return None
        kind: Any = "range" if title else "thread"
        return self._writer.lane(kind, process="", pid=tid >> 32, tid=tid & 0xFFFFFFFF, title=title)

    def _stream(self, device: Any, stream: Any, pid: Any, *, is_wait: bool) -> int | None:
        if not isinstance(device, int) or not isinstance(stream, int):
            return None
        whose = pid if isinstance(pid, int) else -1
        self._owners.setdefault(device, whose)
        kind: Any = "range" if is_wait else "stream"
        title = "waits" if is_wait else ""
        return self._writer.lane(kind, process="", pid=whose, device=device, stream=stream, title=title)

    def _text(self, value: Any) -> str:
        """Return a text: a number is one of STRING_IDS."""
        return value if isinstance(value, str) else self._texts.get(value, "") if isinstance(value, int) else ""


def _number(value: Any) -> int:
    return value if isinstance(value, int) and abs(value) < 1 << 31 else -1
