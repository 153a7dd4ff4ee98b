"""Databases of AMD's rocmProfileData (`runTracer.sh`, rpdTracer): calls, what devices did, and which call asked for it.

    rocpd_api(id, pid, tid, start, end, apiName_id, args_id)              a range of the program is a UserMarker
    rocpd_op(id, gpuId, queueId, start, end, description_id, opType_id)   described by its kernel's name, if it has one
    rocpd_api_ops(api_id, op_id)                                          a graph's launch has many operations
    rocpd_monitor(deviceType, deviceId, monitorType, start, value)        clocks, power and the like

Names stand in `rocpd_string`; from schema 3 on arguments stand in `rocpd_ustring`. Times are ns since the start of the
machine. rocprofv3's databases share the prefix of the tables and nothing else (rocpd.py).

Source: rocmProfileData, rocpd_python/rocpd/schema_data/tableSchema.cmd and tools/rpd2tracing.py.
"""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from profiling.trace.category import Category
from profiling.trace.formats.rocm import RocmTimeline
from profiling.trace.formats.sqlite_tables import MAGIC, Tables
from profiling.trace.limits import Limits, Progress
from profiling.trace.writer import StoreWriter

_RANGE = "UserMarker"
_OWN = re.compile(r"\w+Table::\w+|\w*activity_callback")
"""Work of the recorder itself, which it records as calls."""

_OPERATOR = re.compile(r"(\w+::[\w.]+)(?:, (?:seq|op_id) = .*)?")
"""What torch's autograd emits as a range."""

_NO_WORK = re.compile(r"(?:Internal)?Marker|Barrier", re.I)
"""Operations that order a queue and compute nothing."""

_UNITS = {"sclk": "MHz", "mclk": "MHz", "power": "W", "temp": "°C"}


class RpdReader:
    """Reads one database, of one or several processes."""

    name = "rpd"
    title = "a database of rocmProfileData"
    suffixes = (".rpd",)

    def sniff(self, path: Path, head: bytes, /) -> bool:
        """A database with its tables of calls and of operations."""
        if not head.startswith(MAGIC):
            return False
        with Tables(path) as tables:
            return {"rocpd_op", "rocpd_api", "rocpd_api_ops", "rocpd_string"} <= tables.names

    def read(self, path: Path, writer: StoreWriter, *, progress: Progress, limits: Limits) -> None:
        """Put operations, calls, ranges and readings into a store. Raises: sqlite3.Error for a damaged database."""
        timeline = RocmTimeline(writer, limits)
        with Tables(path) as tables:
            recording = _CallsAndOperations(tables, timeline)
            recording.add_calls()
            progress(0.4)
            recording.add_operations()
            progress(0.9)
            _add_readings(tables, writer)
        timeline.finish(tool="rocmProfileData")


class _CallsAndOperations:
    """The tables of calls and operations."""

    def __init__(self, tables: Tables, timeline: RocmTimeline) -> None:
        self._tables = tables
        self._timeline = timeline
        self._names = _strings(tables, "rocpd_string")
        self._arguments = _strings(tables, "rocpd_ustring") or self._names
        self._ranges = {key for key, name in self._names.items() if name == _RANGE}
        self._processes: dict[Any, Any] = {}  # by call

    def add_calls(self) -> None:
        """Add calls of HIP, and ranges of the program."""
        rows = self._tables.rows("rocpd_api", "id", "pid", "tid", "start", "end", "apiName_id", "args_id")
        for key, pid, tid, start, end, name_id, args_id in rows:
            self._processes[key] = pid
            name, category = self._call(name_id, self._arguments.get(args_id, ""))
            self._timeline.call(
                name,
                start,
                end,
                pid=_number(pid, -1),
                tid=_number(tid, 0),
                correlation=key,
                domain="MARKER" if name_id in self._ranges else "HIP",
                category=category,
            )

    def add_operations(self) -> None:
        """Add what devices did, each by the call that asked for it."""
        calls = dict(self._tables.rows("rocpd_api_ops", "op_id", "api_id"))
        sizes = dict(self._tables.rows("rocpd_copyapi", "api_ptr_id", "size"))
        shapes = {key: shape for key, *shape in self._tables.rows("rocpd_kernelapi", "api_ptr_id", *_SHAPE)}
        only = next(iter(set(self._processes.values())), -1)  # of operations that no call asked for
        rows = self._tables.rows("rocpd_op", "id", "gpuId", "queueId", "start", "end", "description_id", "opType_id")
        for key, device, queue, start, end, text_id, kind_id in rows:
            call, kind, text = calls.get(key, 0), self._names.get(kind_id, ""), self._names.get(text_id, "")
            if _NO_WORK.fullmatch(kind):
                continue
            at: dict[str, Any] = {
                "pid": _number(self._processes.get(call, only), -1),
                "device": _number(device, -1),
                "stream": _number(queue, 0),
                "correlation": call,
            }
            if kind.startswith("Copy"):
                words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", kind.removeprefix("Copy"))
                self._timeline.copy(words, start, end, size=sizes.get(call, 0), **at)
            else:
                shape = shapes.get(call, [None])
                details = {} if None in shape else {"grid": shape[:3], "block": shape[3:]}
                self._timeline.kernel(text or kind, start, end, details=details, **at)

    def _call(self, name_id: Any, arguments: str) -> tuple[str, Category | None]:
        """Return how a call is shown, and what it is; None where that is left to its name."""
        name = self._names.get(name_id, "")
        if name_id in self._ranges:
            operator = _OPERATOR.fullmatch(arguments)
            return (operator[1], Category.OPERATOR) if operator else (arguments or name, None)
        return name, Category.OVERHEAD if _OWN.fullmatch(name) else None


_SHAPE = ("gridX", "gridY", "gridZ", "workgroupX", "workgroupY", "workgroupZ")


def _add_readings(tables: Tables, writer: StoreWriter) -> None:
    """Add the readings of devices, one series for each kind and device."""
    series: dict[tuple[str, int], int] = {}
    for device, kind, at, value in tables.rows("rocpd_monitor", "deviceId", "monitorType", "start", "value"):
        if not isinstance(at, int) or at < 0:
            continue
        with contextlib.suppress(ValueError, TypeError, OverflowError):
            number = float(value)
            key = (str(kind), _number(device, -1))
            if key not in series:
                series[key] = writer.counter(key[0], _UNITS.get(key[0], ""), device=key[1])
            writer.count(series[key], at, number)


def _strings(tables: Tables, table: str) -> dict[Any, str]:
    rows: Iterator[tuple[Any, ...]] = tables.rows(table, "id", "string")
    return {key: str(text) for key, text in rows}


def _number(value: object, otherwise: int) -> int:
    return value if isinstance(value, int) else otherwise


PLUGIN = RpdReader()
