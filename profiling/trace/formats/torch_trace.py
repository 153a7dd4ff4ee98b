"""Chrome traces of the torch profiler: `.json` and `.json.gz`, with or without a GPU, of NVIDIA or AMD.

Events of devices stand under `pid` = device and `tid` = stream; those of the CPU under process and thread, which may
be numbers or texts. `args.correlation` links a launch to what it launched, `args["External id"]` an operator to its
kernels (traces of before 2023 write the correlation there, too; then it links nothing). A trace that torch could not
finish is read as far as it goes.
"""

import re
from collections.abc import Callable, Mapping
from operator import itemgetter
from pathlib import Path
from typing import Literal, TypedDict

import orjson

from profiling.trace import clock
from profiling.trace.category import Category
from profiling.trace.formats.ascend_json import AscendEvents
from profiling.trace.formats.async_events import BEGINS, ENDS, AsyncEvents
from profiling.trace.formats.chrome_samples import ChromeSamples
from profiling.trace.formats.drawn_launches import DrawnLaunches, is_drawn
from profiling.trace.formats.json_list import JsonList, thousandfold
from profiling.trace.formats.rocprof_chrome import RocprofEvents
from profiling.trace.formats.torch_kinds import (
    ITERATIONS,
    OF_AUTOGRAD,
    ON_CPU,
    ON_STREAM,
    THREADS,
    kind_told_by,
    place_and_category,
)
from profiling.trace.formats.unpack import UnpackedFile
from profiling.trace.formats.xla_json import XlaEvents
from profiling.trace.frames import FRAMES
from profiling.trace.limits import Limits, Progress
from profiling.trace.unusable import Unusable
from profiling.trace.writer import StoreWriter

_TRACE = re.compile(rb'"(traceEvents|schemaVersion|deviceProperties|distributedInfo)"')
OF_RAY = re.compile(rb'"cat":\s*"(task::|task:(execute|deserialize|store)|submit_task|actor)|"tid":\s*"worker:')
"""What events of Ray's timelines hold, which are lists, too."""
_SKIPPED = frozenset({"Trace", "ac2g", "async_cpu_to_gpu", "fwdbwd", "fwd_bwd", "async_gpu"})
_ARROWS = frozenset({"fwdbwd", "fwd_bwd"})
"""Kinds of arrows from forward to backward; those from a launch to its kernel are told by the correlation."""
_BESIDE = "beside"
"""Where lanes of Ascend's processes are: they are those of the program, as far as it is known."""
_FACTS = (
    "host_name", "schemaVersion", "record_shapes", "with_stack", "profile_memory", "with_flops",
    "cuda_driver_version", "cuda_runtime_version", "hip_driver_version", "hip_runtime_version",
)  # fmt: skip
"""What is kept of what a trace says of itself."""
_SIZED = frozenset({Category.COPY, Category.MEMSET})
_Id = int | str | None
_LaneKey = tuple[_Id, _Id, str]
"""Process, thread and which of its lanes."""
_Args = TypedDict(
    "_Args",
    {
        "correlation": int,
        "External id": int,
        "external id": int,
        "device": int,
        "Device Id": int,
        "Device Type": int,
        "stream": int,
        "Stream Id": int,
        "bytes": int,
        "Total Allocated": float,
        "Total Reserved": float,
        "In msg nelems": int,
        "dtype": str,
        "name": str,
        "labels": str,
    },
    total=False,
)
"""Arguments of an event that are looked at; an event may have any others."""


class _TorchEvent(TypedDict, total=False):
    """An event as torch writes it; times in us. In somebody's file it may be anything: `_Events.add` leaves out what
    fails.
    """

    ph: str
    cat: str
    name: str
    id: int | str
    pid: int | str
    tid: int | str
    ts: float | str
    dur: float | str
    args: _Args


_NOTHING: _Args = {}
_EXACT = thousandfold("ts")
"""Where JsonList puts times of day."""
_TOTALS: tuple[tuple[str, Literal["Total Allocated", "Total Reserved"]], ...] = (
    ("allocated", "Total Allocated"),
    ("reserved", "Total Reserved"),
)
_MOST_KNOWN = 100_000
"""Of names, processes and ranges that are open: what a hostile trace has more of is forgotten or left out."""
_MOST_CROSSED = 100
"""Open ranges of a thread among which that of an end is looked for."""
_KNOWN_BYTES = 16 << 20
_ENTRY_BYTES = 150
"""What an entry of a table takes beside its text, about."""
_NO_WORK = (
    "Calls that launch work of a device were recorded, but none of that work: the profiler could not see the device. "
    "Record with ProfilerActivity.CUDA, where CUPTI or roctracer is installed and no other tool uses it."
)
_Layout = tuple[Callable[[_Args], object] | None, dict[bytes, int]]
"""Of details with equal keys: what takes the values that are told, and the numbers of those that came before."""
_NO_DETAIL = frozenset(
    {
        "bytes",
        "cbid",
        "correlation",
        "device",
        "Ev Idx",
        "External id",
        "external id",
        "Fwd thread id",
        "Profiler Event Index",
        "Python id",
        "Python module id",
        "Python parent id",
        "Python thread",
        "queued",
        "Record function id",
        "Sequence number",
        "stream",
        "Trace id",
        "Trace iteration",
        "Trace name",
    }
)
"""What is kept elsewhere, or is another number for each event and says nothing to people."""
_BYTES = {
    "Byte": 1, "Char": 1, "Bool": 1, "Float8_e4m3fn": 1, "Float8_e5m2": 1, "Short": 2, "Half": 2, "BFloat16": 2,
    "Int": 4, "Float": 4, "Long": 8, "Double": 8, "ComplexFloat": 8,
}  # fmt: skip


def is_trace(head: bytes) -> bool:
    """Return True for a JSON object with the keys of a trace, or a list of events with phases that are not Ray's."""
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text.startswith(b"{"):
        return _TRACE.search(text) is not None
    return text.startswith(b"[") and b'"ph"' in text and b'"ts"' in text and OF_RAY.search(text) is None


def read_trace(path: Path, writer: StoreWriter, *, progress: Progress, limits: Limits) -> None:
    """Put a trace into a store. Raises: Unreadable."""
    with UnpackedFile(path, limits=limits, progress=progress) as file:
        trace = JsonList(file, key="traceEvents")
        if not trace.head.get("baseTimeNanoseconds"):
            trace.keep_long("ts")  # times of day, of which a float64 loses up to 128 ns
        events = _Events(writer, trace.head, limits)
        for piece in trace.pieces():
            events.add(piece)
            if writer.events >= limits.events:
                writer.note("warning", f"Only the first {writer.events:,} events were read; the rest is left out.")
                break
        if trace.problem:
            writer.cut_off(trace.problem)
        writer.leave_out_repeated()
        events.finish(trace.tail)


class _Events:
    """What is known while a trace is read."""

    def __init__(self, writer: StoreWriter, head: Mapping[str, object], limits: Limits) -> None:
        self._writer = writer
        self._facts = dict(head)
        self._base = _positive_integer(head.get("baseTimeNanoseconds"))
        self._lanes: dict[_LaneKey, int] = {}
        self._keys: dict[int, _LaneKey] = {}
        self._names: dict[tuple[str, str], tuple[str, Category, int]] = {}
        self._layouts: dict[tuple[str, ...], _Layout] = {}
        self._kept_bytes = 0  # of those
        self._open = 0
        self._has_work = self._has_launches = False
        """Work of devices was seen, and calls that launch it."""
        self._num_stray = self._num_crossed = 0
        """Ends of ranges without a beginning, and of another range than began last in the thread."""
        self._opened: dict[int, list[_TorchEvent]] = {}
        self._processes: dict[_Id, dict[str, str]] = {}
        self._threads: dict[tuple[_Id, _Id], str] = {}
        self._counters: dict[tuple[str, int, _Id], int] = {}
        self._first_cpu: int | None = None
        self._seen = 0
        self._unusable = Unusable("events")
        self._of_xla = XlaEvents(writer)
        self._of_ascend = AscendEvents(writer)
        self._of_rocprof = RocprofEvents(writer, limits)
        self._drawn = DrawnLaunches(writer)
        self._samples = ChromeSamples(writer, limits)
        self._drivers: dict[int, _Id] = {}
        """Processes that launch work of a stream, where arrows tell."""
        self._asynchronous = AsyncEvents(writer)

    def add(self, piece: list[_TorchEvent]) -> None:
        """Take a piece of the list."""
        base = self._base
        for event in piece:
            if not event and isinstance(event, dict):  # at an end of the list, so that there is no comma too many
                self._seen += 1
                continue
            try:
                kind = event["ph"]
                if kind == "X":
                    if event.get("cat") not in _SKIPPED:
                        lasts, exact = event["dur"], event.get(_EXACT)
                        length = clock.of_microseconds(lasts) if isinstance(lasts, str) else round(lasts * 1000)
                        start = exact + base if exact.__class__ is int else clock.of_microseconds(event["ts"], base)
                        self._complete(event, start, length)
                elif kind == "M":
                    self._metadata(event)
                elif kind in "iI":
                    self._instant(event)
                elif kind == "C":
                    self._count(event)
                elif kind in "stf":
                    self._arrow(event)
                elif kind == "B":
                    self._begin(event)
                elif kind == "E":
                    self._close(event)
                elif kind == "P":
                    self._samples.add(event, self._at(event))
                elif kind in BEGINS:
                    self._asynchronous.begin(event, self._at(event))
                elif kind in ENDS:
                    self._close_asynchronous(event)
            except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
                self._unusable.add(self._seen, event, error)
            self._seen += 1

    def finish(self, tail: Mapping[str, object]) -> None:
        """Name lanes, and keep what the trace says of itself."""
        writer = self._writer
        self._of_ascend.finish()
        facts = {**self._facts, **tail}
        late = _positive_integer(tail.get("baseTimeNanoseconds"))
        for lane, (pid, tid) in self._samples.finish(facts.get("stackFrames"), facts.get("samples"), self._base):
            self._keys.setdefault(lane, (pid, tid, ON_CPU))
        if late and not self._base:
            writer.shift(late)
        unfinished = sum(len(opened) for opened in self._opened.values()) + self._asynchronous.num_open
        if unfinished:
            writer.note("warning", f"{unfinished:,} ranges were never closed and are left out.")
        if num_stray := self._num_stray + self._asynchronous.num_stray:
            writer.note("warning", f"{num_stray:,} ends of ranges have no beginning and are left out.")
        if self._num_crossed:
            writer.note(
                "warning",
                f"{self._num_crossed:,} ends are not those of the range that began last: ranges cross, or an end is "
                "missing.",
            )
        if self._has_launches and not self._has_work:
            writer.note("warning", _NO_WORK)
        if self._unusable:
            writer.note("warning", self._unusable.sentence)
        self._name_lanes()
        self._name_counters()
        writer.meta("tool", "xla" if self._of_xla else "torch")
        if self._of_rocprof:
            self._of_rocprof.finish()
        distributed = facts.get("distributedInfo")
        if isinstance(distributed, dict):
            for key in ("backend", "rank", "world_size"):
                if isinstance(distributed.get(key), str | int):
                    writer.meta(key, distributed[key])
            writer.meta("groups", _groups(distributed.get("pg_config")))
        devices = facts.get("deviceProperties", facts.get("computeProperties"))
        writer.meta("devices", [_short(each) for each in devices[:64]] if isinstance(devices, list) else [])
        for key in _FACTS:
            if isinstance(facts.get(key), str | int | float):
                writer.meta(key, facts[key])

    # -- events --

    def _at(self, event: _TorchEvent) -> int:
        """Return when an event is, in Unix ns."""
        exact = event.get(_EXACT)
        return exact + self._base if isinstance(exact, int) else clock.of_microseconds(event["ts"], self._base)

    def _complete(self, event: _TorchEvent, start: int, lasts: int) -> None:
        """Add an event that begins at `start` (Unix ns) and lasts so long. [ns]"""
        kind = event.get("cat", "")
        if not kind:
            if event.get("pid") in self._of_xla:
                self._of_xla.add(event, start, lasts)
                return
            if event.get("pid") in self._of_ascend:
                at, pid = self._of_ascend.add(event, start, lasts)
                self._keys.setdefault(at, (pid, event.get("tid"), _BESIDE))
                return
            details = event.get("args") or _NOTHING
            if "BeginNs" in details:
                self._of_rocprof.add(event)
                return
            kind = kind_told_by(details, event["name"]) or OF_AUTOGRAD.get(str(event.get("pid")), "")
        key = (kind, event["name"])
        cached = self._names.get(key)
        if cached is None:
            cached = self._know_name(*key)
        place, category, name = cached
        args = event.get("args") or _NOTHING
        link = outer = size = info = 0
        if args is not _NOTHING:
            link = args.get("correlation", 0)
            outer = args.get("External id", 0) or args.get("external id", 0)
            if outer == link:  # as old traces have it
                outer = 0
            info = self._details(args)
        if place in THREADS:
            lane = self._lanes.get((event.get("pid"), event.get("tid"), place))
            if lane is None:
                lane = self._cpu_lane(event, place)
        else:
            lane = self._device_lane(event, args, place)
            if category is Category.COMMUNICATION:
                size = _message(args)
            elif category in _SIZED:
                size = args.get("bytes", 0)
        self._writer.add(lane, start, lasts, name, category, link=link, outer=outer, bytes=size, info=info)

    def _details(self, args: _Args) -> int:
        """Return the number of an event's details. Most events have those of another one: only what differs between
        events of equal keys is looked at, and the text is made once.
        """
        keys = tuple(args)
        layout = self._layouts.get(keys)
        if layout is None:
            shown = [key for key in keys if key not in _NO_DETAIL]
            layout = (itemgetter(*shown) if shown else None), {}
            if self._may_keep(sum(map(len, keys))):
                self._layouts[keys] = layout
        chosen, infos = layout
        if chosen is None:
            return 0
        values = orjson.dumps(chosen(args))
        info = infos.get(values)
        if info is None:
            details = {key: value for key, value in args.items() if key not in _NO_DETAIL and value != ""}
            info = self._writer.info(orjson.dumps(details).decode()) if details else 0
            if self._may_keep(len(values)):
                infos[values] = info
        return info

    def _may_keep(self, size: int) -> bool:
        """Return True if what is known of details may grow by so many bytes: a hostile trace has no end of them."""
        size += _ENTRY_BYTES
        if self._kept_bytes + size > _KNOWN_BYTES:
            return False
        self._kept_bytes += size
        return True

    def _know_name(self, kind: str, name: str) -> tuple[str, Category, int]:
        """Return where events of a kind and name belong, what they are, and the number of the name."""
        place, category = place_and_category(kind, name)
        self._has_work |= place == ON_STREAM
        self._has_launches |= category is Category.RUNTIME and "Launch" in name
        if len(self._names) >= _MOST_KNOWN:
            self._names.clear()
        cached = self._names[kind, name] = (place, category, self._writer.name(name))
        return cached

    def _instant(self, event: _TorchEvent) -> None:
        """Memory is told in moments: what torch's allocator gave out and reserved."""
        args = event.get("args") or {}
        if event.get("name") != "[memory]" or "Total Allocated" not in args:
            return
        device = args.get("Device Id", -1) if args.get("Device Type", 0) else -1
        at = self._at(event)
        for name, key in _TOTALS:
            if key in args:
                self._sample(event, name, "B", at, args[key], device=device)

    def _count(self, event: _TorchEvent) -> None:
        """Counters: each argument is a series."""
        at = self._at(event)
        for key, value in (event.get("args") or {}).items():
            if isinstance(value, int | float):
                self._sample(event, f"{event['name']}: {key}" if key != event["name"] else key, "", at, value)

    def _sample(self, event: _TorchEvent, name: str, unit: str, at: int, value: float, *, device: int = -1) -> None:
        pid = event.get("pid")
        key = (name, device, pid)
        if key not in self._counters:
            self._counters[key] = self._writer.counter(name, unit, device=device, process=_text(pid))
        self._writer.count(self._counters[key], at, float(value))

    def _begin(self, event: _TorchEvent) -> None:
        """Keep a range that begins until it ends."""
        if self._open >= _MOST_KNOWN:
            raise OverflowError
        self._open += 1
        self._opened.setdefault(self._cpu_lane(event), []).append(event)

    def _close(self, event: _TorchEvent) -> None:
        """End the range of this thread that was opened last, of those of the end's name where there are any."""
        opened = self._opened.get(self._cpu_lane(event))
        if not opened:
            self._num_stray += 1
            return
        name = event.get("name")
        at = len(opened) - 1
        if name and name != opened[at]["name"]:
            self._num_crossed += 1
            least = max(at - _MOST_CROSSED, -1)
            at = next((i for i in range(at, least, -1) if opened[i]["name"] == name), at)
        begin = opened.pop(at)
        self._open -= 1
        start = self._at(begin)
        self._complete(begin, start, self._at(event) - start)

    def _close_asynchronous(self, event: _TorchEvent) -> None:
        """End what belongs to no thread."""
        begun = self._asynchronous.end(event)
        if begun is not None:
            lane, name, start = begun
            self._keys.setdefault(lane, (event.get("pid"), None, ON_CPU))
            _, category, number = self._know_name(event.get("cat") or "", name)
            self._writer.add(lane, start, self._at(event) - start, number, category)

    # -- lanes --

    def _arrow(self, event: _TorchEvent) -> None:
        """Keep an end of an arrow from forward to backward, or of one to work of a device."""
        if is_drawn(event.get("cat")):
            self._drawn_launch(event)
            return
        if event.get("cat") == "cpu_to_cuda":  # of torch.autograd.profiler, from an operator to its kernel
            lane = self._cpu_lane(event) if event["ph"] == "s" else self._device_lane(event, _NOTHING, ON_STREAM)
            self._writer.join(int(event["id"]) + 1, lane, self._at(event))
            return
        if event.get("cat") == "HostToDevice" and event["ph"] == "s":
            self._of_ascend.begin_arrow(event, self._at(event))
            return
        if event.get("cat") == "async_npu":
            if event["ph"] == "s":
                self._of_ascend.begin_of_operator(event, self._cpu_lane(event), self._at(event))
            else:
                self._of_ascend.end_at_task(event, self._at(event))
            return
        number = _number(event.get("id"))
        if event.get("cat") in _ARROWS and number >= 0:
            at = self._at(event)
            self._writer.arrow(number, self._cpu_lane(event), at, is_end=event["ph"] == "f")

    def _drawn_launch(self, event: _TorchEvent) -> None:
        if self._of_rocprof:
            self._drawn.add(event, self._of_rocprof.lane(event), self._at(event))
            return
        pid, place = event.get("pid"), ON_CPU if event["ph"] == "s" else ON_STREAM
        lane = self._lanes.get((pid, event.get("tid"), place))
        calling = self._drawn.add(event, lane, self._at(event))
        if calling is not None and lane is not None:
            self._drivers.setdefault(lane, self._keys[calling][0])

    def _cpu_lane(self, event: _TorchEvent, place: str = ON_CPU) -> int:
        """Return the lane of a thread, or that of its frames of Python: they cross the ranges that they open."""
        key = (event.get("pid"), event.get("tid"), place)
        lane = self._lanes.get(key)
        if lane is None:
            if self._first_cpu is None and isinstance(key[0], int):
                self._first_cpu = key[0]
            lane = self._writer.lane(
                "thread",
                process=_text(key[0]),
                pid=_number(key[0]),
                thread=_text(key[1]),
                tid=_number(key[1]),
                title="" if place == ON_CPU else place,
            )
            if place == FRAMES:
                self._writer.frames(lane)
            self._know(key, lane)
        return lane

    def _device_lane(self, event: _TorchEvent, args: _Args, place: str) -> int:
        key = (event.get("pid"), event.get("tid"), place)
        lane = self._lanes.get(key)
        if lane is None:
            device = args.get("device", args.get("Device Id", key[0]))
            stream = args.get("stream", args.get("Stream Id", key[1]))
            if place == ITERATIONS:
                device, stream = self._of_ascend.device(key[0]), -1
            if key[0] in OF_AUTOGRAD:  # whose threads are devices
                device, stream = key[1], 0
            lane = self._writer.lane(
                "stream" if place == ON_STREAM else "range",
                process=_text(key[0]),
                pid=_number(key[0]),
                thread="",
                tid=_number(key[1]),
                device=_number(device),
                stream=_number(stream),
                title="" if place == ON_STREAM else place,
            )
            self._know(key, lane)
        return lane

    def _know(self, key: _LaneKey, lane: int) -> None:
        self._lanes[key] = lane
        self._keys[lane] = key

    def _metadata(self, event: _TorchEvent) -> None:
        """Names of processes and threads; they may come after the events."""
        args = event.get("args") or {}
        if len(self._processes) + len(self._threads) >= _MOST_KNOWN:
            return
        process = self._processes.setdefault(event.get("pid"), {})
        match event.get("name"):
            case "process_name":
                process["name"] = str(args.get("name", ""))
                self._of_xla.name_plane(event.get("pid"), process["name"])
                self._of_ascend.name_process(event.get("pid"), process["name"])
            case "process_labels":
                process["labels"] = str(args.get("labels", ""))
                self._of_ascend.label_process(event.get("pid"), process["labels"])
            case "thread_name":
                thread = self._threads[event.get("pid"), event.get("tid")] = str(args.get("name", "")).strip()
                self._of_xla.name_line(event.get("pid"), event.get("tid"), thread)
                self._of_ascend.name_thread(event.get("pid"), event.get("tid"), thread)

    def _name_counters(self) -> None:
        """Name the processes of counters where there are several: each has curves of its own."""
        pids = list(dict.fromkeys(pid for _, _, pid in self._counters))
        names = {pid: self._processes.get(pid, {}).get("name", "") for pid in pids}
        self._writer.describe_processes(
            {_text(pid): f"{name} {_text(pid)}".strip() if len(pids) > 1 else "" for pid, name in names.items()}
        )

    def _name_lanes(self) -> None:
        """Give each lane the name of its process and thread, and each stream the process that drives it."""
        labelled = [pid for pid, about in self._processes.items() if about.get("labels") == "CPU"]
        owner = labelled[0] if len(labelled) == 1 else self._first_cpu
        for lane, (pid, tid, place) in self._keys.items():
            driver = self._drivers.get(lane, owner)
            process = pid if place in THREADS or driver is None else driver
            name = self._processes.get(process, {}).get("name") or _text(process)
            thread = self._threads.get((pid, tid))
            self._writer.describe_lane(lane, process=name, pid=_number(process), thread=thread)


def _message(args: _Args) -> int:
    """Return the bytes that a collective takes in, which newer traces tell; 0 if they do not."""
    return int(args.get("In msg nelems", 0)) * _BYTES.get(args.get("dtype", ""), 0)


def _groups(config: object) -> list[dict[str, str | float]]:
    return [_short(each) for each in config[:256]] if isinstance(config, list) else []


def _short(value: object) -> dict[str, str | float]:
    """Return the plain facts of an object."""
    if not isinstance(value, dict):
        return {}
    return {
        str(k)[:100]: v[:500] if isinstance(v, str) else v for k, v in value.items() if isinstance(v, str | int | float)
    }


def _text(value: object) -> str:
    return "" if value is None else str(value)[:200]


def _number(value: _Id) -> int:
    """Return an identifier as a number, -1 for a text that is none."""
    try:
        return -1 if value is None else int(value)
    except (TypeError, ValueError, OverflowError):
        return -1


def _positive_integer(value: object) -> int:
    return value if isinstance(value, int) and 0 < value < 1 << 62 else 0
