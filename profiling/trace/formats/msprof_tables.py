"""Databases of Ascend's profilers: `ascend_pytorch_profiler_<rank>.db` of torch_npu and `msprof_<time>.db`.

Times are Unix ns, as numbers or, of torch's operators, as texts; a globalTid is pid << 32 | tid; a connection joins a
call with what it started on a device. An operator has the number of a row of connections, one for each task of it.
Source: the documented schema, and real databases of torch_npu at three levels; not run on Ascend.
"""

import re
from pathlib import Path
from typing import Any

from profiling.trace.category import DEVICE, Category, of_kernel, of_range, waits_on_device
from profiling.trace.formats.ascend_json import is_copy
from profiling.trace.formats.sqlite_tables import Tables
from profiling.trace.frames import FRAMES
from profiling.trace.lanes import of_stream
from profiling.trace.limits import Limits, Progress
from profiling.trace.writer import StoreWriter

_RANK = re.compile(r"_(\d+)\.db$")
_BITS = re.compile(r"[A-Z](\d{1,3})$")
"""At the end of what HCCL calls a type of numbers: BFP16."""
_OWN = {"TASK", "STRING_IDS", "CANN_API", "PYTORCH_API", "MSTX_EVENTS", "COMMUNICATION_OP"}
_KINDS = {"queue": Category.OTHER, "trace": Category.PYTHON}
"""What an API of torch is by its type; others are operators."""


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
        self._operators: dict[int, int] = {}  # connection -> the operator that has it

    def calls(self) -> None:
        """Operators of torch with its frames of Python, and calls of CANN."""
        types = self._tables.texts("ENUM_API_TYPE")
        connections: dict[int, list[int]] = {}
        for number, connection in self._tables.rows("CONNECTION_IDS", "id", "connectionId"):
            connections.setdefault(number, []).append(connection)
        columns = ("startNs", "endNs", "globalTid", "connectionId", "name", "type")
        for start, end, tid, number, name, of_type in self._tables.rows("PYTORCH_API", *columns):
            text = self._text(name)
            category = _KINDS.get(types.get(of_type, ""), Category.OPERATOR)
            outer = 0
            if category is Category.OPERATOR:
                category = Category.STEP if of_range(text) is Category.STEP else category
                outer = number + 1 if isinstance(number, int) and number in connections else 0  # from 0 on
                self._operators.update((connection, outer) for connection in connections.get(number, ()))
            where = self._frames(tid) if category is Category.PYTHON else self._thread(tid)
            self._add(where, start, end, text, category, outer=outer)
        for start, end, tid, connection, name in self._tables.rows("CANN_API", *columns[:-1]):
            text = self._text(name)
            category = Category.SYNC if "Synchronize" in text else Category.RUNTIME
            self._add(self._thread(tid), start, end, text, category, link=connection)

    def ranges(self) -> None:
        """Marks of MSTX."""
        columns = ("startNs", "endNs", "globalTid", "connectionId", "message")
        for start, end, tid, connection, message in self._tables.rows("MSTX_EVENTS", *columns):
            text = self._text(message)
            self._add(self._thread(tid, title="MSTX"), start, end, text, of_range(text), link=connection)

    def tasks(self) -> None:
        """What ran on a device; what computes stands in a table of its own, with its name. Where that is filled, other
        tasks are around what computes or communicates, or parts of it.
        """
        named = dict(self._tables.rows("COMPUTE_TASK_INFO", "globalTaskId", "name"))
        columns = ("startNs", "endNs", "deviceId", "streamId", "connectionId", "globalTaskId", "taskType", "globalPid")
        for start, end, device, stream, connection, task, kind, pid in self._tables.rows("TASK", *columns):
            text, of_type = self._text(named.get(task)), self._text(kind)
            if not text and waits_on_device(of_type):
                category, title = Category.SYNC, "waits"
            elif is_copy(of_type):
                category, title = Category.COPY, ""
            elif named and task not in named:
                category, title = Category.OTHER, "other tasks"
            else:
                category, title = of_kernel(text or of_type), ""
            lane = self._stream(device, stream, pid, title=title)
            self._add(lane, start, end, text or of_type, category, link=connection)

    def collectives(self) -> None:
        """Collectives as a whole, on the device of the process that called them; their parts are tasks.

        Older databases do not say which device that is: it is the only one then.
        """
        only = next(iter(self._owners)) if len(self._owners) == 1 else -1
        types = self._tables.texts("ENUM_HCCL_DATA_TYPE")
        columns = ("startNs", "endNs", "opName", "connectionId", "groupName", "deviceId", "count", "dataType")
        for start, end, name, connection, group, device, count, of_type in self._tables.rows(
            "COMMUNICATION_OP", *columns
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
            bits = _BITS.search(types.get(of_type, ""))
            size = count * int(bits[1]) // 8 if bits and isinstance(count, int) and 0 < count < 1 << 50 else 0
            self._add(where, start, end, self._text(name), Category.COMMUNICATION, link=connection, size=size)

    def facts(self) -> None:
        """Ranks and devices."""
        writer = self._writer
        writer.meta("tool", "msprof")
        names = dict(self._tables.rows("NPU_INFO", "id", "name"))
        devices = [
            {"rank": rank, "id": device, "name": names.get(device, "")}
            for rank, device in self._tables.rows("RANK_DEVICE_MAP", "rankId", "deviceId")
        ]
        writer.meta("devices", devices[:64])
        if len(devices) == 1 and isinstance(devices[0]["rank"], int):
            writer.meta("rank", devices[0]["rank"])
        if self._unusable:
            writer.note("warning", f"{self._unusable:,} rows were left out: a time is missing or is none.")
        if writer.events >= self._most:
            writer.note("warning", f"Only {self._most:,} events were read; the rest is left out.")

    def _add(
        self,
        lane: int | None,
        start: Any,
        end: Any,
        name: str,
        category: Category,
        *,
        link: Any = 0,
        outer: int = 0,
        size: int = 0,
    ) -> None:
        writer = self._writer
        begin, until = _time(start), _time(end)
        if lane is None or begin is None or until is None or not name:
            self._unusable += 1
        elif writer.events < self._most:
            joined = link if isinstance(link, int) and 0 < link < (1 << 32) - 1 else 0
            if category in DEVICE:
                outer = self._operators.get(joined, 0)
            try:
                writer.add(
                    lane, begin, until - begin, writer.name(name), category, link=joined, outer=outer, bytes=size
                )
            except OverflowError:
                self._unusable += 1

    def _thread(self, tid: Any, *, title: str = "") -> int | None:
        if not isinstance(tid, int):
            return None
        kind: Any = "range" if title else "thread"
        return self._writer.lane(kind, process="", pid=tid >> 32, tid=tid & 0xFFFFFFFF, title=title)

    def _frames(self, tid: Any) -> int | None:
        if not isinstance(tid, int):
            return None
        lane = self._writer.lane("thread", process="", pid=tid >> 32, tid=tid & 0xFFFFFFFF, title=FRAMES)
        self._writer.frames(lane)
        return lane

    def _stream(self, device: Any, stream: Any, pid: Any, *, title: str) -> int | None:
        if not isinstance(device, int) or not isinstance(stream, int):
            return None
        whose = pid if isinstance(pid, int) else -1
        self._owners.setdefault(device, whose)
        kind: Any = "range" if title else "stream"
        beside = of_stream(title, stream) if title else ""
        return self._writer.lane(kind, process="", pid=whose, device=device, stream=stream, title=beside)

    def _text(self, value: Any) -> str:
        """Return a text: a number is one of STRING_IDS."""
        return value if isinstance(value, str) else self._texts.get(value, "") if isinstance(value, int) else ""


def _time(value: Any) -> int | None:
    """Return a time [Unix ns], which may be a text; None if it is none."""
    if isinstance(value, str) and value.isdecimal() and len(value) < 20:
        return int(value)
    return value if isinstance(value, int) else None


def _number(value: Any) -> int:
    return value if isinstance(value, int) and abs(value) < 1 << 31 else -1
