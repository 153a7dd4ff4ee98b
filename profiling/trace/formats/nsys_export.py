"""Exports of Nsight Systems to SQLite, of schema 3.0 (2022.4) to 3.25 (2026.2): a table is there only if it has rows.

Times count from the start of the session. A process is the upper 40 bits of a globalTid, a thread the lower 24; a
correlation joins a call and what it launched within one process.
"""

import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
import orjson

from profiling.phases import BY_KEY
from profiling.trace import clock
from profiling.trace.category import Category, of_kernel, of_range
from profiling.trace.formats.nsys_cpu import MOST_SWITCHES, Callchains, SampledStacks, scheduled
from profiling.trace.formats.nsys_owners import Devices, Owners
from profiling.trace.formats.nsys_payloads import Payloads
from profiling.trace.formats.sqlite_tables import Tables
from profiling.trace.formats.stack_frames import StackFrames, until
from profiling.trace.lanes import MOST_LANES, of_stream
from profiling.trace.limits import Limits, Progress
from profiling.trace.names import LONGEST_NAME, shortened
from profiling.trace.scheduling import OFF_CPU, ON_CPU, SAMPLES, SCHEDULING
from profiling.trace.schema import LATEST
from profiling.trace.writer import StoreWriter

TRUNCATED_NS = 5_000_000
"""A range that ends this close to the end of the session was still open: nsys stretches it."""
OWN_DOMAIN = "pitwall"
LAST_RANGE = "end of recording"
"""The last range of our own recordings, which stands there to be cut."""

_THREAD_BITS = 0xFFFFFF
_COPIES = ("", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP")
_UNIFIED = {11: "unified HtoD", 12: "unified DtoH", 13: "unified DtoD"}
_COPY_KINDS = dict(enumerate(_COPIES)) | _UNIFIED
_MEMORY = {0: "Pageable", 1: "Pinned", 2: "Device", 3: "Array", 4: "Managed", 5: "Device Static", 6: "Managed Static"}
_WAITS = {1: "Event Synchronize", 2: "Stream Wait Event", 3: "Stream Synchronize", 4: "Context Synchronize"}
_OVERHEADS = {1: "Unknown", 2: "Driver JIT compiler", 3: "Buffer flush", 4: "Instrumentation", 5: "Resource creation",
              6: "Module loading", 7: "Lazy function loading", 8: "Command buffer full"}  # fmt: skip
_PUSH_POP, _START_END, _MARK, _DOMAIN = 59, 60, 34, 75
_NUMBERS = "int64Value,uint64Value,doubleValue,int32Value,uint32Value,floatValue"
"""Columns of a payload that is one number; at most one of them is filled."""
_MOST_KINDS = 100_000
_CALLERS = 8
_LONGEST_CALLER = 120  # characters: C++ writes the types of all arguments
_MOST_SILENT = 256
_NEVER = 1 << 63
_OWN_STEP = re.compile(r"step \d+$")
_OPERATOR = re.compile(r"^(.*?), (?:seq|op_id) = \d+")
_VERSION = re.compile(r"_v\d+$|_ptsz_v\d+$")
_UNIT = re.compile(r"\[(.*)\]\s*$")
_ON_DEVICE = tuple(f"CUPTI_ACTIVITY_KIND_{what}" for what in ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE"))
_KERNEL_FACTS = ("registersPerThread", "staticSharedMemory", "dynamicSharedMemory", "graphNodeId", "graphId")

_LIBRARIES: Mapping[str, tuple[str, Category]] = {
    "CUBLAS_EVENTS": ("cuBLAS", Category.RANGE),
    "CUDNN_EVENTS": ("cuDNN", Category.RANGE),
    "CUPTI_ACTIVITY_KIND_OPENACC_DATA": ("OpenACC", Category.RANGE),
    "CUPTI_ACTIVITY_KIND_OPENACC_LAUNCH": ("OpenACC", Category.RANGE),
    "CUPTI_ACTIVITY_KIND_OPENACC_OTHER": ("OpenACC", Category.RANGE),
    "MPI_COLLECTIVES_EVENTS": ("MPI", Category.COMMUNICATION),
    "MPI_P2P_EVENTS": ("MPI", Category.COMMUNICATION),
    "MPI_START_WAIT_EVENTS": ("MPI", Category.COMMUNICATION),
    "MPI_OTHER_EVENTS": ("MPI", Category.RANGE),
}
"""Tables of calls of libraries (`nsys profile -t cublas,cudnn,openacc,mpi`): whose they are, and what. MPI's move data
between processes, in files, too.
"""

_Range = tuple[int | None, str, int, Category, str]
"""What ranges have in common: lane, name, the name's number, category, title of the domain."""


_RECORDED = ("CUPTI_ACTIVITY_KIND_", "NVTX_EVENTS", "OSRT_API", "TARGET_INFO_GPU")


def is_export(path: Path) -> bool:
    """Return True for a database with the tables that every export has; early ones do not describe themselves."""
    with Tables(path) as tables:
        return "StringIds" in tables.names and (
            bool(tables.names & {"EXPORT_META_DATA", "META_DATA_EXPORT", "TARGET_INFO_SESSION_START_TIME"})
            or any(name.startswith(_RECORDED) for name in tables.names)
        )


def read_export(path: Path, writer: StoreWriter, *, progress: Progress, limits: Limits) -> None:
    """Put an export into a store. Raises: sqlite3.Error for a damaged one."""
    with Tables(path) as tables:
        report = _NsysExport(tables, writer, limits)
        parts = (
            report.ranges,
            report.calls,
            report.kernels,
            report.copies,
            report.memsets,
            report.waits,
            report.system_calls,
            report.library_calls,
            report.overheads,
            report.gpu_metrics,
            report.scheduling,
            report.cpu_samples,
            report.facts,
        )
        for i, part in enumerate(parts):
            part()
            progress((i + 1) / len(parts))


class _NsysExport:
    """An export while it is read."""

    def __init__(self, tables: Tables, writer: StoreWriter, limits: Limits) -> None:
        self._tables = tables
        self._writer = writer
        self._limits = limits
        self._most = limits.events
        self._room = limits.events  # events that may still come
        self._texts = tables.texts("StringIds")
        self._unusable = 0
        self._truncated: list[str] = []
        self._session = next((row[0] for row in tables.rows("TARGET_INFO_SESSION_START_TIME", "utcEpochNs")), None) or 0
        lengths = [row[0] for row in tables.rows("ANALYSIS_DETAILS", "duration") if isinstance(row[0], int)]
        self._length = max(lengths, default=0)
        self._processes = {
            pid & ~_THREAD_BITS: str(name)
            for pid, name in tables.rows("PROCESSES", "globalPid", "name")
            if isinstance(pid, int)
        }
        self._threads = {
            tid: self._texts.get(name, "")
            for name, tid in tables.rows("ThreadNames", "nameId", "globalTid")
            if isinstance(tid, int)
        }
        self._lanes: dict[tuple[str, str, int, int, int], int] = {}
        self._order: dict[int, int] = {}  # processes, for links that are unique among them
        self._payloads = Payloads(tables)
        self._owners = Owners(
            frozenset(self._processes),
            is_needed=any(tables.count(name) and "globalPid" not in tables.columns(name) for name in _ON_DEVICE),
        )
        self._devices = Devices()
        self._domains: dict[tuple[int, Any], str] = {}  # titles, by process and number
        self._infos: dict[tuple[str, type, Any, bool], int] = {}
        self._silent: set[int] = set()  # threads of which nothing but samples and scheduling was recorded
        self._unwatched: set[int] = set()  # and those that were left out

    # -- the CPU --

    def ranges(self) -> None:
        """NVTX: ranges of a thread nest among its calls, ranges between threads have lanes of their own."""
        tables = self._tables
        columns = ("globalTid", "domainId", "text", "textId")
        for tid, domain, text, number in tables.rows("NVTX_EVENTS", *columns, only=("eventType", _DOMAIN)):
            if isinstance(tid, int):
                self._domains[tid >> 24, domain] = text or self._texts.get(number, "")
        has_payloads = self._payloads.are_there
        late = self._length - TRUNCATED_NS if self._length else _NEVER
        cached: dict[tuple[Any, ...], _Range | None] = {}
        for kind, tid, domain, text, number, start, end, payload, data in tables.rows(
            "NVTX_EVENTS",
            *("eventType", "globalTid", "domainId", "text", "textId", "start", "end", _NUMBERS),
            "binaryData" if has_payloads else "no payload",
        ):
            if self._room <= 0:
                break
            if type(tid) is not int:  # 5.0 would be the same key as 5
                continue
            key = kind, tid, domain, text, number
            if key in cached:
                what = cached[key]
            else:
                what = self._range(*key)
                size = sum(len(value) for value in key if isinstance(value, str | bytes))
                if size <= LONGEST_NAME and len(cached) < _MOST_KINDS:  # what a hostile one holds is not kept
                    cached[key] = what
            if what is None:
                continue
            lane, name, number_of_name, category, title = what
            if kind == _MARK:
                end = start
            elif end is None and isinstance(start, int):
                self._truncated.append(name)
                continue
            is_cut = kind != _MARK and isinstance(end, int) and end >= late and name != LAST_RANGE
            if is_cut:
                self._truncated.append(name)
            has_payload = has_payloads and kind == _PUSH_POP
            size = self._payloads.add(tid, start, end, name, domain, data) if has_payload else 0
            if self._may_add(lane, start, end, size):
                info = self._details(title, payload, is_cut) if title or is_cut or payload is not None else 0
                self._put(lane, start, end, number_of_name, category, size=size, info=info)
        self._payloads.close()

    def _range(self, kind: Any, tid: int, domain: Any, text: Any, number: Any) -> _Range | None:
        """Return what is the same in all ranges of these properties; None for what is no range."""
        if kind not in (_PUSH_POP, _START_END, _MARK):
            return None
        title = self._domains.get((tid >> 24, domain), "")
        name = text if text is not None else self._texts.get(number, "")
        operator = _OPERATOR.match(name)
        name, category = (operator[1], Category.OPERATOR) if operator else (name, _of_range(name, title))
        lane = self._beside(tid, title or "NVTX") if kind == _START_END else self._thread(tid)
        return lane, name, self._writer.name(name), category, title

    def _details(self, title: str, payload: Any, is_cut: bool) -> int:
        """Return the number of the details of a range; ranges of one step share them."""
        key = title, type(payload), payload, is_cut  # 1 and 1.0 are the same key without
        info = self._infos.get(key)
        if info is None:
            is_own = title == OWN_DOMAIN
            details: dict[str, object] = {} if is_own or not title else {"domain": title}
            if payload is not None:
                details["step" if is_own else "payload"] = payload
            if is_cut:
                details["truncated"] = True
            info = self._info(details)
            if len(self._infos) < _MOST_KINDS and isinstance(payload, int | float | None):
                self._infos[key] = info
        return info

    def calls(self) -> None:
        """Calls of the CUDA runtime and driver."""
        callers = self._callers("CUDA_CALLCHAINS")
        columns = ("start", "end", "globalTid", "correlationId", "nameId", "callchainId")
        for start, end, tid, correlation, name, chain in self._tables.rows("CUPTI_ACTIVITY_KIND_RUNTIME", *columns):
            text = _VERSION.sub("", self._texts.get(name, "cuda call"))
            category = Category.SYNC if "Synchronize" in text else Category.RUNTIME
            self._owners.called(tid, correlation)
            link = self._link(tid, correlation)
            if self._payloads.are_there:
                self._payloads.launched(tid, start, text, link)
            self._add(self._thread(tid), start, end, text, category, link=link, info=callers(chain))

    def system_calls(self) -> None:
        """Calls of the operating system."""
        callers = self._callers("OSRT_CALLCHAINS")
        columns = ("start", "end", "globalTid", "nameId", "callchainId")
        for start, end, tid, name, chain in self._tables.rows("OSRT_API", *columns):
            text = self._texts.get(name, "system call")
            self._add(self._thread(tid), start, end, text, Category.SYSTEM, info=callers(chain))

    def library_calls(self) -> None:
        """Calls of libraries, which nest among those of CUDA."""
        for table, (library, category) in _LIBRARIES.items():
            for start, end, tid, name in self._tables.rows(table, "start", "end", "globalTid", "nameId|textId"):
                text = self._texts.get(name, library)
                kind = Category.RANGE if category is Category.COMMUNICATION and "File" in text else category
                self._add(self._thread(tid), start, end, text, kind, info={"domain": library})

    def _callers(self, table: str) -> Callable[[Any], int]:
        """Return what gives the details of a call, from the number of its stack in a table: who called it."""
        chains = Callchains(self._tables, table, self._texts)
        if chains.left_out:
            self._writer.note("warning", f"{chains.left_out:,} stacks of calls were left out: there are too many.")

        @cache
        def details(stack: int) -> int:
            callers = chains.names(stack)[-2 : -2 - _CALLERS : -1]  # the innermost frame is the call itself
            short = " ← ".join(shortened(name, _LONGEST_CALLER) for name in callers)
            return self._info({"called from": short} if short else {})

        def of(number: Any) -> int:
            stack = chains.stack(number)
            return 0 if stack is None or stack >= _MOST_KINDS else details(stack)

        return of

    def overheads(self) -> None:
        """What the profiler itself took."""
        for table in ("PROFILER_OVERHEAD", "CUPTI_ACTIVITY_KIND_OVERHEAD"):
            columns = ("start", "end", "globalTid", "nameId", "overheadType")
            for start, end, tid, name, kind in self._tables.rows(table, *columns):
                text = _OVERHEADS.get(kind) or self._texts.get(name, "overhead")
                self._add(self._beside(tid, "overhead"), start, end, text, Category.OVERHEAD)

    def scheduling(self) -> None:
        """When threads were on a CPU, and when not."""
        for tid, start, end, is_on, cpu in scheduled(self._tables):
            lane = self._watched(tid, SCHEDULING)
            if lane is not None:
                info = {"cpu": cpu} if is_on and cpu >= 0 else None
                self._add(lane, start, end, ON_CPU if is_on else OFF_CPU, Category.SCHEDULING, info=info)
        if self._tables.count("SCHED_EVENTS") > MOST_SWITCHES:
            self._writer.note("warning", f"Of scheduling only the first {MOST_SWITCHES:,} events were read.")

    def cpu_samples(self) -> None:
        """Stacks of threads that ran, as they were sampled."""
        stacks = SampledStacks(self._tables, self._texts)
        for tid, rows in stacks.samples.items():
            lane = self._watched(tid, SAMPLES)
            if lane is None or self._room <= 0:
                continue
            frames = StackFrames(lane, self._writer, self._limits, category=Category.NATIVE)
            times = np.array([at for at, _ in rows], object) + self._session
            if not 0 <= min(times) <= max(times) < LATEST:
                self._unusable += len(rows)
                continue
            times = times.astype(np.int64)
            for at, end, later, (_, stack) in zip(
                times.tolist(), until(times).tolist(), [*times[1:].tolist(), LATEST], rows, strict=True
            ):
                frames.stand(at, stacks.names(stack))
                if end < later:
                    frames.stand(end, ())
            frames.finish()
            self._room = self._most - self._writer.events
        if stacks.left_out:
            self._writer.note("warning", f"{stacks.left_out:,} samples of the CPU were left out: there are too many.")

    # -- devices --

    def kernels(self) -> None:
        """Kernels, and graphs that were recorded as a whole."""
        columns = ("start", "end", "globalPid", "deviceId", "streamId", "correlationId", "demangledName|shortName")
        shape = ("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ")
        for row in self._tables.rows("CUPTI_ACTIVITY_KIND_KERNEL", *columns, *shape, *_KERNEL_FACTS, "contextId"):
            start, end, pid, device, stream, correlation, number = row[:7]
            pid = self._owners.of(pid, correlation)
            self._devices.add(pid, row[-1], device, stream)
            name = self._texts.get(number, "kernel")
            details: dict[str, object] = {"grid": row[7:10], "block": row[10:13]}
            details |= {key: value for key, value in zip(_KERNEL_FACTS, row[13:-1], strict=True) if value}
            link, category = self._link(pid, correlation), of_kernel(name)
            size = self._payloads.sent(link) if category == Category.COMMUNICATION else 0
            lane = self._stream(pid, device, stream)
            self._add(lane, start, end, name, category, link=link, size=size, info=details)
        columns = ("start", "end", "globalPid", "deviceId", "streamId", "correlationId", "graphId")
        for start, end, pid, device, stream, correlation, graph in self._tables.rows(
            "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", *columns
        ):
            pid = self._owners.of(pid, correlation)
            link = self._link(pid, correlation)
            self._add(self._stream(pid, device, stream), start, end, f"CUDA graph {graph}", Category.KERNEL, link=link)

    def copies(self) -> None:
        """Copies, called as torch calls them."""
        columns = ("start", "end", "globalPid", "deviceId", "streamId", "correlationId", "bytes")
        for start, end, pid, device, stream, correlation, size, kind, source, target in self._tables.rows(
            "CUPTI_ACTIVITY_KIND_MEMCPY", *columns, "copyKind", "srcKind", "dstKind"
        ):
            pid = self._owners.of(pid, correlation)
            name = f"Memcpy {_COPY_KINDS.get(kind, '')}"
            if source in _MEMORY or target in _MEMORY:  # of unified memory neither is told
                name += f" ({_MEMORY.get(source, '?')} -> {_MEMORY.get(target, '?')})"
            lane, link = self._stream(pid, device, stream), self._link(pid, correlation)
            self._add(lane, start, end, name, Category.COPY, link=link, size=size)

    def memsets(self) -> None:
        """Fills of memory."""
        columns = ("start", "end", "globalPid", "deviceId", "streamId", "correlationId", "bytes", "memKind")
        for start, end, pid, device, stream, correlation, size, kind in self._tables.rows(
            "CUPTI_ACTIVITY_KIND_MEMSET", *columns
        ):
            pid = self._owners.of(pid, correlation)
            lane, link = self._stream(pid, device, stream), self._link(pid, correlation)
            name = f"Memset ({_MEMORY.get(kind, 'Unknown')})"
            self._add(lane, start, end, name, Category.MEMSET, link=link, size=size)

    def waits(self) -> None:
        """Waits of streams and for them; the calls that wait are on their threads, too."""
        columns = ("start", "end", "globalPid", "deviceId", "streamId", "correlationId", "syncType", "contextId")
        for start, end, pid, device, stream, correlation, kind, context in self._tables.rows(
            "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", *columns
        ):
            pid = self._owners.of(pid, correlation)
            device, stream = self._devices.of_wait(pid, context, device, stream)
            title = of_stream(f"waits, GPU {device}", stream)
            lane = self._stream(pid, device, stream, title=title)
            name = _WAITS.get(kind, "Synchronize")
            self._add(lane, start, end, name, Category.SYNC, link=self._link(pid, correlation))

    def gpu_metrics(self) -> None:
        """Counters that were sampled with --gpu-metrics-device; shares are 0 to 1, as DCGM tells them."""
        names = {
            (kind, metric): name
            for kind, metric, name in self._tables.rows("TARGET_INFO_GPU_METRICS", "typeId", "metricId", "metricName")
        }
        for at, kind, metric, value in self._tables.rows("GPU_METRICS", "timestamp", "typeId", "metricId", "value"):
            name = names.get((kind, metric))
            if name is None or not isinstance(at, int) or not isinstance(value, int | float):
                self._unusable += 1
                continue
            unit = match[1] if (match := _UNIT.search(name)) else ""
            is_share = "%" in unit
            label = _UNIT.sub("", name).strip()
            series = self._writer.counter(label, "ratio" if is_share else unit, device=kind & 0xFF)
            self._writer.count(series, clock.of_nsys(at, self._session), value / 100 if is_share else float(value))

    # -- the whole --

    def facts(self) -> None:
        """What the report says of itself, and what is missing."""
        writer, tables = self._writer, self._tables
        reported = {
            str(key): value
            for table in ("EXPORT_META_DATA", "META_DATA_EXPORT")
            for key, value in tables.rows(table, "name", "value")
        }
        writer.meta("tool", "nsys")
        writer.meta("tool_version", str(reported.get("EXPORT_PRODUCT_VERSION", ""))[:100])
        writer.meta("schema_version", str(reported.get("EXPORT_SCHEMA_VERSION", ""))[:100])
        if self._session:
            writer.meta("session", [self._session, self._session + self._length])
        else:
            writer.start_at_zero()
            writer.note("info", "The report does not say when it began: its times count from its first event.")
        devices = tables.rows(
            "TARGET_INFO_GPU", "id", "name", "totalMemory", "smCount|numMultiprocessors", "busLocation"
        )
        keys = ("id", "name", "memory", "multiprocessors", "bus")
        writer.meta("devices", [dict(zip(keys, row, strict=True)) for row in list(devices)[:64]])
        for severity, text in list(tables.rows("DIAGNOSTIC_EVENT", "severity", "text"))[:1000]:
            if severity in (2, 3):
                writer.note("warning" if severity == 2 else "error", f"nsys: {text}")
        if self._truncated:
            some = ", ".join(sorted(set(self._truncated))[:5])
            writer.note(
                "warning",
                f"{len(self._truncated):,} ranges were still open when the session ended and are cut: {some}.",
            )
        if self._unusable:
            writer.note("warning", f"{self._unusable:,} rows were left out: a time is missing or is none.")
        if self._unwatched:
            writer.note(
                "info",
                f"{len(self._unwatched):,} threads are shown without samples or scheduling: there are too many.",
            )
        if self._room <= 0:
            writer.note("warning", f"Only {self._most:,} events were read; the rest is left out.")

    def _add(
        self,
        lane: int | None,
        start: Any,
        end: Any,
        name: str,
        category: Category,
        *,
        link: int = 0,
        size: Any = 0,
        info: Mapping[str, object] | int | None = None,
    ) -> None:
        if self._may_add(lane, start, end, size):
            number, details = self._writer.name(name), info if isinstance(info, int) else self._info(info or {})
            self._put(lane, start, end, number, category, link=link, size=size, info=details)

    def _may_add(self, lane: int | None, start: Any, end: Any, size: Any) -> TypeGuard[int]:
        """Return whether an event can be kept; nothing of one that is left out may go into the store."""
        if lane is None or type(start) is not int or type(end) is not int or type(size) is not int:
            self._unusable += 1
            return False
        return self._room > 0

    def _put(
        self,
        lane: int,
        start: int,
        end: int,
        name: int,
        category: Category,
        *,
        link: int = 0,
        size: int = 0,
        info: int = 0,
    ) -> None:
        try:
            at = clock.of_nsys(start, self._session)
            self._writer.add(lane, at, end - start, name, category, link=link, bytes=size, info=info)
            self._room -= 1
        except OverflowError:
            self._unusable += 1

    def _info(self, details: Mapping[str, object]) -> int:
        return self._writer.info(orjson.dumps(details, default=str).decode()) if details else 0

    def _thread(self, tid: Any) -> int | None:
        return self._lane("thread", tid, -1, -1, "") if isinstance(tid, int) else None

    def _watched(self, tid: int, title: str) -> int | None:
        """Return a lane for what was seen of a thread from outside; None where too many threads did nothing else, as
        those of the whole machine may be recorded, or where a store takes no more lanes.
        """
        if ("thread", title, tid, -1, -1) not in self._lanes and len(self._lanes) >= MOST_LANES:
            self._unwatched.add(tid)
            return None
        if ("thread", "", tid, -1, -1) not in self._lanes and tid not in self._silent:
            if len(self._silent) >= _MOST_SILENT:
                self._unwatched.add(tid)
                return None
            self._silent.add(tid)
        return self._lane("thread", tid, -1, -1, title)

    def _beside(self, tid: Any, title: str) -> int | None:
        """Return a lane beside a thread's own, for what does not nest in it."""
        return self._lane("range", tid, -1, -1, title) if isinstance(tid, int) else None

    def _stream(self, pid: Any, device: Any, stream: Any, *, title: str = "") -> int | None:
        """Return the lane of a stream; what a stream waits for has one beside it."""
        if not isinstance(device, int) or not isinstance(stream, int):
            return None
        whose = pid if isinstance(pid, int) else 0
        return self._lane("range" if title else "stream", whose & ~_THREAD_BITS, device, stream, title)

    def _lane(self, kind: Any, tid: int, device: int, stream: int, title: str) -> int:
        key = (kind, title, tid, device, stream)
        lane = self._lanes.get(key)
        if lane is None:
            pid = tid & ~_THREAD_BITS
            lane = self._lanes[key] = self._writer.lane(
                kind,
                process=self._processes.get(pid, ""),
                pid=tid >> 24 & _THREAD_BITS,
                thread=self._threads.get(tid, "") if device < 0 else "",
                tid=tid & _THREAD_BITS,
                device=device,
                stream=stream,
                title=title,
            )
        return lane

    def _link(self, owner: Any, correlation: Any) -> int:
        """Return a correlation that no other process of the report has."""
        if not isinstance(owner, int) or not isinstance(correlation, int) or not 0 < correlation < 1 << 32:
            return 0
        order = self._order.setdefault(owner >> 24, len(self._order))
        return order << 32 | correlation


def _of_range(name: str, domain: str) -> Category:
    """Return what kind of range a name is; in our own domain the phases and steps are named as ours."""
    if domain == OWN_DOMAIN:
        if name in BY_KEY:
            return Category.PHASE
        if _OWN_STEP.match(name):
            return Category.STEP
    return of_range(name)
