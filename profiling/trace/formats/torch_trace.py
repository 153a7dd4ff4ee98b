"""Chrome traces of the torch profiler: `.json` and `.json.gz`, with or without a GPU, of NVIDIA or AMD.

Process and thread may be numbers or texts. `args.correlation` links a launch to what it launched, `args["External id"]`
an operator to its kernels (traces of before 2023 write the correlation there, too; then it links nothing). A trace that
torch could not finish is read as far as it goes.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from profiling.trace import clock
from profiling.trace.category import Category
from profiling.trace.formats.ascend_json import AscendEvents
from profiling.trace.formats.async_events import BEGINS, ENDS, AsyncEvents
from profiling.trace.formats.chrome_samples import ChromeSamples
from profiling.trace.formats.drawn_launches import DrawnLaunches, is_drawn
from profiling.trace.formats.json_list import JsonList, is_event_lines
from profiling.trace.formats.open_ranges import OpenRanges
from profiling.trace.formats.rocprof_chrome import RocprofEvents
from profiling.trace.formats.tf_timeline import KIND as OF_TENSORFLOW
from profiling.trace.formats.tf_timeline import TensorflowTimeline
from profiling.trace.formats.torch_counters import TorchCounters, tells_memory
from profiling.trace.formats.torch_details import TorchDetails
from profiling.trace.formats.torch_event import EXACT, NOTHING, Args, TorchEvent, number_of, time_of
from profiling.trace.formats.torch_facts import base_of, keep_facts
from profiling.trace.formats.torch_kinds import (
    OF_AUTOGRAD,
    ON_CPU,
    ON_STREAM,
    THREADS,
    kind_told_by,
    place_and_category,
)
from profiling.trace.formats.torch_lanes import TorchLanes
from profiling.trace.formats.unpack import UnpackedFile
from profiling.trace.formats.xla_json import XlaEvents
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
_SIZED = frozenset({Category.COPY, Category.MEMSET})
_MOST_KNOWN = 100_000
"""Of kinds and names of events."""
_TIMES_OF_DAY = 10**18
"""Times of day are later, those that count from a moment told elsewhere are earlier. [Unix ns]"""
_BEYOND = (
    "Another document follows the trace in its file, and the rest is left out: bring each trace as a file of its own."
)
_NO_PART = "Text that is no part of it follows the trace in its file."
_NO_WORK = (
    "Calls that launch work of a device were recorded, but none of that work: the profiler could not see the device. "
    "With torch, record with ProfilerActivity.CUDA, where CUPTI or roctracer is installed and no other tool uses it."
)
_BYTES = {
    "Byte": 1, "Char": 1, "Bool": 1, "Float8_e4m3fn": 1, "Float8_e5m2": 1, "Short": 2, "Half": 2, "BFloat16": 2,
    "Int": 4, "Float": 4, "Long": 8, "Double": 8, "ComplexFloat": 8,
}  # fmt: skip


def is_trace(head: bytes) -> bool:
    """Return True for a JSON object with the keys of a trace, or a list of events with phases that are not Ray's."""
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text.startswith(b"{"):
        return _TRACE.search(text) is not None or is_event_lines(text)
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
            events.note_lost_clock(trace.tail)
        if trace.beyond:
            writer.note("warning", _BEYOND if trace.beyond[:1] in (b"{", b"[") else _NO_PART)
        writer.leave_out_repeated()
        events.finish(trace.tail)


class _Events:
    """What is known while a trace is read."""

    def __init__(self, writer: StoreWriter, head: Mapping[str, object], limits: Limits) -> None:
        self._writer = writer
        self._facts = dict(head)
        self._base = base_of(head)
        self._names: dict[tuple[str, str], tuple[str, Category, int]] = {}
        self._has_work = self._has_launches = False
        """Work of devices was seen, and calls that launch it."""
        self._seen = 0
        self._last_begin = 0
        """When the last event began. [Unix ns]"""
        self._unusable = Unusable("events")
        self._of_xla = XlaEvents(writer)
        self._of_tensorflow = TensorflowTimeline(writer)
        self._of_ascend = AscendEvents(writer)
        self._of_rocprof = RocprofEvents(writer, limits)
        self._lanes = TorchLanes(writer, self._of_ascend.device)
        self._lanes_by_key = self._lanes.by_key
        self._details = TorchDetails(writer)
        self._counters = TorchCounters(writer)
        self._ranges = OpenRanges()
        self._asynchronous = AsyncEvents(writer)
        self._samples = ChromeSamples(writer, limits)
        self._drawn = DrawnLaunches(writer)

    def add(self, piece: list[TorchEvent]) -> None:
        """Take a piece of the list."""
        base, start = self._base, self._last_begin
        for event in piece:
            if not event and isinstance(event, dict):  # at an end of the list, so that there is no comma too many
                self._seen += 1
                continue
            try:
                kind = event["ph"]
                if kind == "X":
                    if event.get("cat") not in _SKIPPED:
                        lasts, exact = event["dur"], event.get(EXACT)
                        length = clock.of_microseconds(lasts) if isinstance(lasts, str) else round(lasts * 1000)
                        start = exact + base if exact.__class__ is int else clock.of_microseconds(event["ts"], base)
                        self._complete(event, start, length)
                elif kind == "M":
                    self._metadata(event)
                elif kind in "iI":
                    if tells_memory(event):
                        self._counters.take_memory(event, self._at(event))
                elif kind == "C":
                    self._counters.count(event, self._at(event))
                elif kind in "stf":
                    self._arrow(event)
                elif kind == "B":
                    self._ranges.begin(self._lanes.of_thread(event), event)
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
        self._last_begin = start

    def finish(self, tail: Mapping[str, object]) -> None:
        """Name lanes, and keep what the trace says of itself."""
        writer = self._writer
        self._of_ascend.finish()
        facts = {**self._facts, **tail}
        late = base_of(tail)
        for lane, (pid, tid) in self._samples.finish(facts.get("stackFrames"), facts.get("samples"), self._base):
            self._lanes.take(lane, pid, tid, ON_CPU)
        if late and not self._base:
            writer.shift(late)
        self._note_problems()
        self._lanes.name_all()
        self._counters.name_processes(self._lanes)
        writer.meta("tool", "xla" if self._of_xla else "torch")
        if self._of_rocprof:
            self._of_rocprof.finish()
        keep_facts(writer, facts)

    def note_lost_clock(self, tail: Mapping[str, object]) -> None:
        """Say of torch's trace without its end that when it was recorded stood there, if times count from that."""
        is_torch = "schemaVersion" in self._facts
        if is_torch and self._last_begin < _TIMES_OF_DAY and not self._base and not base_of(tail):
            self._writer.note("warning", "When it was recorded stood at its end: its times are not those of the clock.")

    def _note_problems(self) -> None:
        """Say what of the trace is missing."""
        unfinished = self._ranges.num_open + self._asynchronous.num_open
        stray = self._ranges.num_stray + self._asynchronous.num_stray
        crossed = self._ranges.num_crossed
        sentences = [
            f"{unfinished:,} ranges were never closed and are left out." if unfinished else "",
            f"{stray:,} ends of ranges have no beginning and are left out." if stray else "",
            f"{crossed:,} ends belong to another range than began last: ranges cross, or an end is missing."
            if crossed
            else "",
            _NO_WORK if self._has_launches and not self._has_work else "",
            self._unusable.sentence if self._unusable else "",
        ]
        for sentence in filter(None, sentences):
            self._writer.note("warning", sentence)

    def _at(self, event: TorchEvent) -> int:
        """Return when an event is, in Unix ns."""
        return time_of(event, self._base)

    def _complete(self, event: TorchEvent, start: int, lasts: int) -> None:
        """Add an event that begins at `start` (Unix ns) and lasts so long. [ns]"""
        kind = event.get("cat", "")
        if not kind:
            if event.get("pid") in self._of_xla:
                self._of_xla.add(event, start, lasts)
                return
            if event.get("pid") in self._of_ascend:
                at, pid = self._of_ascend.add(event, start, lasts)
                self._lanes.take(at, pid, event.get("tid"), _BESIDE)
                return
            details = event.get("args") or NOTHING
            if "BeginNs" in details:
                self._of_rocprof.add(event)
                return
            kind = kind_told_by(details, event["name"]) or OF_AUTOGRAD.get(str(event.get("pid")), "")
        elif kind == OF_TENSORFLOW and event.get("pid") in self._of_tensorflow:
            self._of_tensorflow.add(event, start, lasts)
            return
        key = (kind, event["name"])
        cached = self._names.get(key)
        if cached is None:
            cached = self._know_name(*key)
        place, category, name = cached
        args = event.get("args") or NOTHING
        link = outer = size = info = 0
        if args is not NOTHING:
            link = args.get("correlation", 0)
            outer = args.get("External id", 0) or args.get("external id", 0)
            if outer == link:  # as old traces have it
                outer = 0
            info = self._details.number(args)
        if place in THREADS:
            lane = self._lanes_by_key.get((event.get("pid"), event.get("tid"), place))
            if lane is None:
                lane = self._lanes.of_thread(event, place)
        else:
            lane = self._lanes.of_device(event, args, place)
            if category is Category.COMMUNICATION:
                size = _message(args)
            elif category in _SIZED:
                size = args.get("bytes", 0)
        self._writer.add(lane, start, lasts, name, category, link=link, outer=outer, bytes=size, info=info)

    def _know_name(self, kind: str, name: str) -> tuple[str, Category, int]:
        """Return where events of a kind and name belong, what they are, and the number of the name."""
        place, category = place_and_category(kind, name)
        self._has_work |= place == ON_STREAM
        self._has_launches |= category is Category.RUNTIME and "Launch" in name
        if len(self._names) >= _MOST_KNOWN:
            self._names.clear()
        cached = self._names[kind, name] = (place, category, self._writer.name(name))
        return cached

    def _close(self, event: TorchEvent) -> None:
        """End a range of this thread."""
        begin = self._ranges.end(self._lanes.of_thread(event), event.get("name"))
        if begin is not None:
            start = self._at(begin)
            self._complete(begin, start, self._at(event) - start)

    def _close_asynchronous(self, event: TorchEvent) -> None:
        """End what belongs to no thread."""
        begun = self._asynchronous.end(event)
        if begun is not None:
            lane, name, start = begun
            self._lanes.take(lane, event.get("pid"), None, ON_CPU)
            _, category, number = self._know_name(event.get("cat") or "", name)
            self._writer.add(lane, start, self._at(event) - start, number, category)

    def _arrow(self, event: TorchEvent) -> None:
        """Keep an end of an arrow from forward to backward, or of one to work of a device."""
        if is_drawn(event.get("cat")):
            self._drawn_launch(event)
            return
        if event.get("cat") == "cpu_to_cuda":  # of torch.autograd.profiler, from an operator to its kernel
            lane = (
                self._lanes.of_thread(event) if event["ph"] == "s" else self._lanes.of_device(event, NOTHING, ON_STREAM)
            )
            self._writer.join(int(event["id"]) + 1, lane, self._at(event))
            return
        if event.get("cat") == "HostToDevice":
            self._of_ascend.arrow(event, self._at(event))
            return
        if event.get("cat") == "async_npu":
            if event["ph"] == "s":
                self._of_ascend.begin_of_operator(event, self._lanes.of_thread(event), self._at(event))
            else:
                self._of_ascend.end_of_operator(event, self._at(event))
            return
        number = number_of(event.get("id"))
        if event.get("cat") in _ARROWS and number >= 0:
            at = self._at(event)
            self._writer.arrow(number, self._lanes.of_thread(event), at, is_end=event["ph"] == "f")

    def _drawn_launch(self, event: TorchEvent) -> None:
        if self._of_rocprof:
            self._drawn.add(event, self._of_rocprof.lane(event), self._at(event))
            return
        pid, place = event.get("pid"), ON_CPU if event["ph"] == "s" else ON_STREAM
        lane = self._lanes_by_key.get((pid, event.get("tid"), place))
        calling = self._drawn.add(event, lane, self._at(event))
        if calling is not None and lane is not None:
            self._lanes.drive(lane, calling)

    def _metadata(self, event: TorchEvent) -> None:
        """Take in names of processes and threads; they may come after the events."""
        if self._lanes.is_full:
            return
        pid, tid, args = event.get("pid"), event.get("tid"), event.get("args") or NOTHING
        match event.get("name"):
            case "process_name":
                name = str(args.get("name", ""))
                self._lanes.describe_process(pid, "name", name)
                self._of_xla.name_plane(pid, name)
                self._of_tensorflow.name_process(pid, name)
                self._of_ascend.name_process(pid, name)
            case "process_labels":
                labels = str(args.get("labels", ""))
                self._lanes.describe_process(pid, "labels", labels)
                self._of_ascend.label_process(pid, labels)
            case "thread_name":
                name = str(args.get("name", "")).strip()
                self._lanes.name_thread(pid, tid, name)
                self._of_xla.name_line(pid, tid, name)
                self._of_ascend.name_thread(pid, tid, name)


def _message(args: Args) -> int:
    """Return the bytes that a collective takes in, which newer traces tell; 0 if they do not."""
    return int(args.get("In msg nelems", 0)) * _BYTES.get(args.get("dtype", ""), 0)
