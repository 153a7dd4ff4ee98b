"""Traces of Perfetto (`.pftrace`, `.perfetto-trace`): what programs told by track events, rocprofv3's among them.

A trace is a message of packets; each belongs to a sequence, whose names are interned and whose defaults hold until its
state is cleared (perfetto/trace/trace_packet.proto). What the kernel told (ftrace) is not read: a trace of a whole
phone or machine is one for Perfetto's own page.
"""

import re
import struct
from dataclasses import dataclass, field
from pathlib import Path

from profiling.trace.category import Category, of_kernel, of_range
from profiling.trace.formats.perfetto_clock import BOOTTIME, Clocks
from profiling.trace.formats.protobuf import BYTES, Damaged, fields, message, number, signed, text, varint
from profiling.trace.formats.whole_file import whole_file
from profiling.trace.limits import Limits, Progress, Unreadable
from profiling.trace.writer import StoreWriter

_BEGIN, _END, _INSTANT, _COUNTER = 1, 2, 3, 4
_OF_PACKETS = frozenset({8, 10, 11, 12, 13, 33, 35, 36, 41, 42, 43, 44, 56, 58, 59, 60, 79, 87, 88})
_AGENT = re.compile(r"(?:AGENT|GPU) \[(\d{1,9})\](?:.*(?:QUEUE|STREAM) \[(\d{1,9})\])?", re.I)
_FLOWS = (36, 47)
_DEEPEST = 8
_LATEST = 1 << 62
_COMPRESSED = 50
_MOST_TRACKS = 2_000
"""Lanes that tracks get for themselves; all further tracks of a process share one."""
_MOST_SHARED = 1_000
"""Such lanes; all further processes share the last."""


class PerfettoReader:
    """Reads one trace."""

    name = "perfetto"
    title = "a trace of Perfetto"
    suffixes = (".pftrace", ".perfetto-trace", ".pftrace.gz")

    def sniff(self, _path: Path, head: bytes, /) -> bool:
        """Packets one after the other, with the fields that packets have."""
        if not head.startswith(b"\x0a"):
            return False
        num_packets = looked = 0
        try:
            for number_of_field, wire, value in fields(head):
                if (number_of_field, wire) != (1, BYTES) or looked >= 4:
                    break
                looked += 1
                inner = {field for field, _, _ in fields(message(value))}
                num_packets += bool(inner & _OF_PACKETS) and max(inner) < 1000
        except Damaged:
            pass  # the head ends in the middle of a packet
        return looked > 0 and num_packets >= max(looked - 1, 1)

    def read(self, path: Path, writer: StoreWriter, *, progress: Progress, limits: Limits) -> None:
        """Put the track events into a store. Raises: Unreadable for a trace without any."""
        trace = _Trace(writer, limits)
        content = whole_file(path, writer, progress=progress, limits=limits)
        try:
            for number_of_field, _, value in fields(content):
                if number_of_field == 1:
                    trace.packet(message(value))
        except Damaged as error:
            writer.note("warning", f"The file is cut off or damaged ({error}); what comes after that is missing.")
        trace.finish()


@dataclass(slots=True, kw_only=True)
class _Sequence:
    """What holds for the packets of a sequence until it is cleared."""

    names: dict[int, str] = field(default_factory=dict)
    categories: dict[int, str] = field(default_factory=dict)
    clock: int = BOOTTIME
    track: int = 0


@dataclass(slots=True, kw_only=True)
class _Track:
    """A track as far as it was described."""

    name: str = ""
    parent: int = 0
    pid: int = -1
    tid: int = -1
    process: str = ""
    thread: str = ""
    unit: str = ""
    is_counter: bool = False
    is_incremental: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Slice:
    """A range that has begun."""

    begin: int
    name: str
    category: str
    flow: int


class _Trace:
    """A trace while it is read."""

    def __init__(self, writer: StoreWriter, limits: Limits) -> None:
        self._writer = writer
        self._most = limits.events
        self._clocks = Clocks()
        self._sequences: dict[int, _Sequence] = {}
        self._tracks: dict[int, _Track] = {}
        self._processes: dict[int, _Track] = {}
        self._flows: dict[int, int] = {}
        self._open: dict[int, list[_Slice]] = {}
        self._lanes: dict[tuple[object, ...], int] = {}
        self._shared: dict[tuple[int, str], int] = {}
        self._sharing: set[int] = set()
        self._last: dict[int, float] = {}
        self._num_others = 0
        self._unusable = 0
        self._latest = 0

    def packet(self, data: memoryview) -> None:
        """Take a packet. Raises: Damaged."""
        packet = {number_of_field: value for number_of_field, _, value in fields(data)}
        sequence = number(packet.get(10, 0))
        if number(packet.get(13, 0)) & 1 or number(packet.get(41, 0)):
            self._sequences[sequence] = _Sequence()
        state = self._sequences.setdefault(sequence, _Sequence())
        if 6 in packet:
            self._clocks.snapshot(message(packet[6]), sequence)
        if 59 in packet:
            self._defaults(message(packet[59]), state)
        if 12 in packet:
            self._intern(message(packet[12]), state)
        if 60 in packet:
            self._describe(message(packet[60]))
        if 11 in packet:
            clock = number(packet[58]) if 58 in packet else state.clock
            at = self._clocks.read(number(packet.get(8, 0)), clock, sequence)
            if at is None or not 0 <= at < _LATEST:
                self._unusable += 1
            else:
                self._event(message(packet[11]), at, state)
        elif 1 in packet or _COMPRESSED in packet:
            self._num_others += 1

    def finish(self) -> None:
        """Close what is open, and say what was left out. Raises: Unreadable."""
        num_open = sum(map(len, self._open.values()))
        for uuid, slices in self._open.items():
            while slices:
                self._add(uuid, slices.pop(), self._latest)
        writer = self._writer
        if not writer.events and not self._last:
            what = "what the system told (ftrace)" if self._num_others else "nothing that programs told"
            raise Unreadable(
                f"The trace of Perfetto holds {what}, no track events: open it at ui.perfetto.dev, or bring the "
                "profiler's own export of the program."
            )
        writer.meta("tool", "perfetto")
        if not self._clocks.has_time_of_day:
            writer.note("info", "The trace does not tell the time of day: its times are not those of the clock.")
        if self._sharing:
            writer.note(
                "info",
                f"{len(self._sharing):,} tracks beyond the first {_MOST_TRACKS:,} share one lane for each process.",
            )
        if num_open:
            writer.note("warning", f"{num_open:,} ranges have no end: they are drawn to the end of the trace.")
        if self._unusable:
            writer.note("warning", f"{self._unusable:,} events were left out: a time or a begin is missing.")
        if self._num_others:
            writer.note("info", f"{self._num_others:,} packets of the system (ftrace) are not shown here.")
        if writer.events >= self._most:
            writer.note("warning", f"Only the first {writer.events:,} events were read; the rest is left out.")

    def _defaults(self, data: memoryview, state: _Sequence) -> None:
        for number_of_field, _, value in fields(data):
            if number_of_field == 58:
                state.clock = number(value)
            elif number_of_field == 11:
                state.track = next((number(v) for f, _, v in fields(message(value)) if f == 11), 0)

    def _intern(self, data: memoryview, state: _Sequence) -> None:
        for number_of_field, _, value in fields(data):
            if number_of_field in (1, 2):
                key, name = 0, ""
                for inner, _, part in fields(message(value)):
                    if inner == 1:
                        key = number(part)
                    elif inner == 2:
                        name = text(part)
                (state.categories if number_of_field == 1 else state.names)[key] = name

    def _describe(self, data: memoryview) -> None:
        uuid, track = 0, _Track()
        for number_of_field, _, value in fields(data):
            if number_of_field == 1:
                uuid = number(value)
            elif number_of_field in (2, 10):
                track.name = text(value)
            elif number_of_field == 5:
                track.parent = number(value)
            elif number_of_field == 3:
                about = {f: v for f, _, v in fields(message(value))}
                track.pid = signed(about.get(1, 0))
                track.process = text(about[6]) if 6 in about else text(about[2]) if 2 in about else ""
            elif number_of_field == 4:
                about = {f: v for f, _, v in fields(message(value))}
                track.pid, track.tid = signed(about.get(1, 0)), signed(about.get(2, 0))
                track.thread = text(about[5]) if 5 in about else ""
            elif number_of_field == 8:
                about = {f: v for f, _, v in fields(message(value))}
                track.is_counter, track.is_incremental = True, bool(number(about.get(5, 0)))
                track.unit = text(about[6]) if 6 in about else _UNITS.get(number(about.get(3, 0)), "")
        self._tracks[uuid] = track
        if track.process:
            self._processes.setdefault(track.pid, track)

    def _event(self, data: memoryview, at: int, state: _Sequence) -> None:
        kind, uuid, name, category, flow = 0, state.track, "", "", 0
        value: float = 0
        for number_of_field, wire, raw in fields(data):
            if number_of_field == 9:
                kind = number(raw)
            elif number_of_field == 11 and wire != BYTES:
                uuid = number(raw)
            elif number_of_field == 10:
                name = state.names.get(number(raw), f"event {number(raw)}")
            elif number_of_field == 23:
                name = text(raw)
            elif number_of_field == 3:
                first = number(raw) if wire != BYTES else varint(message(raw), 0)[0]
                category = category or state.categories.get(first, "")
            elif number_of_field == 22:
                category = category or text(raw)
            elif number_of_field == 30:
                value = signed(raw)
            elif number_of_field in _FLOWS and wire != BYTES:
                flow = flow or number(raw)
            elif number_of_field == 44:
                value = _double(number(raw))
        self._latest = max(self._latest, at)
        if self._writer.events >= self._most:
            return
        if kind == _BEGIN:
            begun = _Slice(begin=at, name=name or "(no name)", category=category, flow=flow)
            self._open.setdefault(uuid, []).append(begun)
        elif kind == _END:
            slices = self._open.get(uuid)
            if slices:
                self._add(uuid, slices.pop(), at)
            else:
                self._unusable += 1
        elif kind == _INSTANT:
            self._add(uuid, _Slice(begin=at, name=name or "(no name)", category=category, flow=0), at)
        elif kind == _COUNTER:
            self._count(uuid, at, value)

    def _add(self, uuid: int, one: _Slice, end: int) -> None:
        track = self._tracks.get(uuid, _Track())
        title = self._title(uuid)
        agent = _AGENT.search(title)
        is_device = agent and ("kernel" in one.category or "copy" in one.category or "memory" in one.category)
        if agent and is_device:
            lane = self._writer.lane(
                "stream", process="", pid=-1, device=int(agent[1]), stream=int(agent[2] or 0), title=title
            )
            category = Category.COPY if "copy" in one.category or "memory" in one.category else of_kernel(one.name)
        else:
            lane = self._lane(uuid, track, title)
            is_call = one.category.endswith("_api") and not one.category.startswith("marker")
            category = Category.RUNTIME if is_call else of_range(one.name)
        is_linked = one.flow and (is_device or category is Category.RUNTIME)
        link = self._flows.setdefault(one.flow, len(self._flows) + 1) if is_linked else 0
        self._writer.add(lane, one.begin, max(end - one.begin, 0), self._writer.name(one.name), category, link=link)

    def _lane(self, uuid: int, track: _Track, title: str) -> int:
        """Return the lane of a track: its own, or that of the first track of this name in the process, as Perfetto's
        own page draws them; beyond _MOST_TRACKS one for the whole process."""
        owner = self._owner(uuid)
        key = (owner.pid, owner.process, track.tid, title if title and track.tid < 0 else uuid)
        lane = self._lanes.get(key)
        if lane is not None:
            return lane
        if len(self._lanes) >= _MOST_TRACKS:
            self._sharing.add(uuid)
            return self._shared_lane(owner)
        lane = self._writer.lane(
            "thread" if track.tid >= 0 else "range",
            process=owner.process,
            pid=owner.pid,
            thread=track.thread or title,
            tid=track.tid if track.tid >= 0 else uuid >> 1,
            title="" if track.tid >= 0 else title,
        )
        self._lanes[key] = lane
        return lane

    def _shared_lane(self, owner: _Track) -> int:
        whose = (owner.pid, owner.process)
        if whose not in self._shared and len(self._shared) >= _MOST_SHARED:
            whose = (-1, "")
        if whose not in self._shared:
            self._shared[whose] = self._writer.lane("range", pid=whose[0], process=whose[1], title="other tracks")
        return self._shared[whose]

    def _count(self, uuid: int, at: int, value: float) -> None:
        track = self._tracks.get(uuid, _Track())
        if track.is_incremental:
            value += self._last.get(uuid, 0)
        self._last[uuid] = value
        title = self._title(uuid) or f"counter {uuid}"
        self._writer.count(self._writer.counter(title, track.unit, process=self._owner(uuid).process), at, value)

    def _title(self, uuid: int) -> str:
        """Return the names of a track and of what it lies in, the outermost first."""
        names: list[str] = []
        seen: set[int] = set()
        while uuid in self._tracks and uuid not in seen and len(names) < _DEEPEST:
            seen.add(uuid)
            names.append(self._tracks[uuid].name or self._tracks[uuid].thread)
            uuid = self._tracks[uuid].parent
        return " · ".join(name for name in reversed(names) if name)

    def _owner(self, uuid: int) -> _Track:
        """Return the track of the process that a track belongs to, or the track itself."""
        first = self._tracks.get(uuid, _Track())
        seen: set[int] = set()
        while uuid in self._tracks and uuid not in seen and len(seen) < _DEEPEST:
            seen.add(uuid)
            if self._tracks[uuid].process:
                return self._tracks[uuid]
            uuid = self._tracks[uuid].parent
        return self._processes.get(first.pid, first) if first.pid >= 0 else first


_UNITS = {1: "ns", 2: "", 3: "B"}


def _double(bits: int) -> float:
    value: float = struct.unpack("<d", struct.pack("<Q", bits))[0]
    return value


PLUGIN = PerfettoReader()
