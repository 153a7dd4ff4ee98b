"""Profiles of XLA (`*.xplane.pb`): JAX, TensorFlow, torch-xla, on GPUs and TPUs.

A profile is a message XSpace of planes; a plane has lines, a line has events, and names stand in a map of the plane
(tsl/profiler/protobuf/xplane.proto). An event begins `offset_ps` after its line's `timestamp_ns`.
"""

import re
from pathlib import Path
from typing import Any

import orjson

from profiling.trace.category import Category
from profiling.trace.formats.protobuf import Damaged, Value, fields, message, number, signed, text
from profiling.trace.formats.whole_file import whole_file
from profiling.trace.formats.xla import (
    INFO_KEYS,
    LONGEST_INFO,
    STEP_NUMBER,
    HostSteps,
    Kind,
    category_of,
    device_of,
    is_steps_of_device,
    kind_of_line,
    shown_name,
    stream_of,
)
from profiling.trace.limits import Limits, Progress
from profiling.trace.writer import StoreWriter

_PLANE_NAME = re.compile(r"/(?:host|device)[:/]|Task Environment|#Chip|/")
_LATEST = 1 << 62
_OF_HOST = 48
"""Links of each host begin at another multiple of 2 to the power of this."""


class XplaneReader:
    """Reads one profile, of hosts and their devices."""

    name = "xplane"
    title = "a profile of XLA (xplane)"
    suffixes = (".xplane.pb", ".xplane.pb.gz")

    def sniff(self, _path: Path, head: bytes, /) -> bool:
        """A first message that is a plane: a name that begins like a path, after a number at most."""
        return _first_plane(head) is not None

    def read(self, path: Path, writer: StoreWriter, *, progress: Progress, limits: Limits) -> None:
        """Put lines of all planes into a store."""
        content = whole_file(path, writer, progress=progress, limits=limits)
        planes: list[_Plane] = []
        hosts: list[str] = []
        is_cut = False
        try:
            for field, _, value in fields(content, may_be_cut=True):
                if field == 1:
                    planes.append(_Plane(message(value), writer, limits))
                elif field == 4:
                    hosts.append(text(value))
        except Damaged as error:
            writer.note("warning", f"The file is cut off or damaged ({error}); what comes after that is missing.")
            is_cut = True
        _tell_hosts_apart(planes, hosts)
        are_wanted = not any(plane.has_steps for plane in planes)
        for plane in planes:
            plane.steps = HostSteps(are_wanted=are_wanted)
            plane.read()
        damaged = [plane for plane in planes if plane.problem]
        for plane in damaged[:-1] if is_cut else damaged:  # of the last one it was said
            writer.note(
                "warning", f"A plane is cut off or damaged ({plane.problem}); what comes after that is missing."
            )
        if num_nameless := sum(plane.num_nameless for plane in damaged):
            writer.note(
                "warning",
                f"{num_nameless:,} events have no name, as the names of a plane stand at its end: what they did is not "
                "known.",
            )
        num_sums, unusable = sum(each.num_sums for each in planes), sum(each.unusable for each in planes)
        writer.meta("tool", "xla")
        described = [about for plane in planes if plane.device >= 0 and (about := plane.describe())]
        writer.meta("devices", described[:64])
        if num_sums:
            writer.note(
                "info", f"{num_sums:,} events are sums of many and have no time of their own: they are not shown."
            )
        if unusable:
            writer.note("warning", f"{unusable:,} events were left out: the time is none.")
        if writer.events >= limits.events:
            writer.note("warning", f"Only the first {writer.events:,} events were read; the rest is left out.")


def _first_plane(head: bytes) -> str | None:
    """Return the name of the first plane of a profile; None for another file."""
    if not head.startswith(b"\x0a"):
        return None
    try:
        place = next(i for i in range(1, 11) if head[i] < 0x80) + 1
        for field, wire, value in fields(head[place : place + 300]):
            if field == 1 and wire == 0:
                continue
            name = text(value) if (field, wire) == (2, 2) else ""
            return name if _PLANE_NAME.match(name) and name.isprintable() else None
    except (Damaged, StopIteration, IndexError):
        pass
    return None


def _tell_hosts_apart(planes: "list[_Plane]", hosts: list[str]) -> None:
    """Give the planes of each host after the first a name, devices and links of their own.

    Profiles of several hosts are merged by putting them one after the other, and each begins to count anew: the second
    plane of a name is the second host's. Source: protobuf, encoding: messages that are concatenated are merged.
    """
    seen: dict[str, int] = {}
    for plane in planes:
        plane.host = seen.get(plane.name, 0)
        seen[plane.name] = plane.host + 1
    num_hosts = max(seen.values(), default=1)
    if num_hosts == 1:
        return
    num_devices = 1 + max(plane.device for plane in planes)
    for plane in planes:
        plane.host_name = hosts[plane.host] if len(hosts) == num_hosts else f"host {plane.host}"
        if plane.device >= 0:
            plane.device += plane.host * num_devices


class _Plane:
    """One plane while it is read. `host` and `host_name`: which of several hosts it is of."""

    def __init__(self, data: memoryview, writer: StoreWriter, limits: Limits) -> None:
        self._writer = writer
        self._most = limits.events
        self._lines: list[memoryview] = []
        self._about: list[memoryview] = []
        self._names: dict[int, str] = {}
        self._statistics: dict[int, str] = {}
        self.name = ""
        self.host = 0
        self.host_name = ""
        self.steps = HostSteps()
        self.num_sums = 0
        """Events that stand for several occurrences, without a time."""
        self.unusable = 0
        self.num_nameless = 0
        self.problem = ""
        """Why something of it is missing."""
        try:
            for field, _, value in fields(data, may_be_cut=True):
                if field == 2:
                    self.name = text(value)
                elif field == 3:
                    self._lines.append(message(value))
                elif field == 4:
                    self._name_event(message(value))
                elif field == 5:
                    key, about = _entry(message(value))
                    self._statistics[key] = next((text(v) for f, _, v in fields(about) if f == 2), "")
                elif field == 6:
                    self._about.append(message(value))
        except Damaged as error:
            self.problem = str(error)
        self._of = device_of(self.name)
        self.device = self._of.number

    @property
    def has_steps(self) -> bool:
        """True for a device that tells its steps."""
        return self.device >= 0 and any(is_steps_of_device(self.name, _name_of_line(line)) for line in self._lines)

    def read(self) -> None:
        """Add the events of all lines, as far as they go."""
        for line in self._lines:
            try:
                self._read_line(line)
            except Damaged as error:
                self.problem = str(error)

    def describe(self) -> dict[str, object]:
        """Return what a profile tells of a device, {} where that is nothing: a TPU's model, what a GPU has.

        Source: tsl/profiler/utils/xplane_schema.cc, the statistics of device planes.
        """
        about = dict(self._statistic(one) for one in self._about)
        name = str(about.get("device_type_string") or "")
        cores, size, capability = (
            amount if isinstance(amount := about.get(key), int) else 0
            for key in ("core_count", "memory_size", "compute_cap_major")
        )
        if not name and cores and size:
            name = f"{about.get('device_vendor', '')} GPU of {cores} units and {size / 2**30:.0f} GiB".lstrip()
        if not name:
            return {}
        amounts = {"totalGlobalMem": size, "computeMajor": capability}
        return {"id": self.device, "name": name[:100], **{key: amount for key, amount in amounts.items() if amount}}

    def _name_event(self, data: memoryview) -> None:
        key, about = _entry(data)
        name = display = ""
        for field, _, value in fields(about):
            if field == 2:
                name = text(value)
            elif field == 4:
                display = text(value)
        self._names[key] = display or name

    def _read_line(self, data: memoryview) -> None:
        name, begin, number_of_line, events = "", 0, 0, []
        try:
            for field, _, value in fields(data):
                if field == 1:
                    number_of_line = signed(value)
                elif field in (2, 11):
                    name = text(value) or name
                elif field == 3:
                    begin = signed(value)
                elif field == 4:
                    events.append(message(value))
        except Damaged as error:
            self.problem = str(error)
        lane, kind = self._lane(name, number_of_line)
        for event in events:
            if self._writer.events >= self._most:
                return
            self._add(event, lane, kind, begin)

    def _lane(self, name: str, line: int) -> tuple[int, Kind]:
        """Return the lane of a line, and what its events are."""
        process = f"{self.host_name} {self.name.lstrip('/')}".lstrip()
        kind, writer = kind_of_line(self._of, name), self._writer
        if kind == "host":
            return writer.lane("thread", process=process, pid=-1, thread=name or f"line {line}", tid=line), kind
        if kind == "device":
            stream = stream_of(name) if self._of.is_gpu else None
            at = line if stream is None else stream
            title = "" if stream is not None and not self.host_name else f"{self.host_name} {name}".lstrip()
            return (
                writer.lane("stream", process=self.host_name, pid=-1, device=self.device, stream=at, title=title),
                kind,
            )
        return writer.lane("range", process=process, pid=-1, device=self.device, title=name), kind

    def _add(self, data: memoryview, lane: int, kind: Kind, begin: int) -> None:
        key = lasts = link = size = 0
        offset: int | None = None
        number_of_step: int | None = None
        is_sum = False
        details: dict[str, Any] = {}
        for field, _, value in fields(data):
            if field == 1:
                key = signed(value)
            elif field == 2:
                offset = signed(value)
            elif field == 3:
                lasts = signed(value)
            elif field == 5:
                is_sum = True
            elif field == 4:
                name, amount = self._statistic(message(value))
                if name == "correlation_id" and isinstance(amount, int):
                    link = amount
                elif name in ("bytes_transferred", "bytes_accessed") and isinstance(amount, int):
                    size = amount
                elif name == STEP_NUMBER and isinstance(amount, int):
                    number_of_step = amount
                elif name in INFO_KEYS:
                    details[name] = amount[:LONGEST_INFO] if isinstance(amount, str) else amount
        if is_sum and offset is None:
            self.num_sums += 1
            return
        start = begin + (offset or 0) // 1000
        if not 0 <= start < _LATEST:
            self.unusable += 1
            return
        name = self._names.get(key, "")
        is_linked = kind in ("device", "host") and 0 < link < 1 << _OF_HOST
        step = self.steps.number(name, kind, number_of_step) if name else None
        is_hlo = bool(details.get("hlo_op"))
        category = (
            category_of(name, kind, is_linked=is_linked, is_step=step is not None, is_hlo=is_hlo)
            if name
            else Category.OTHER
        )
        if not name:
            self.num_nameless += 1
            name = f"event {key}"
        self._writer.add(
            lane,
            start,
            max(lasts, 0) // 1000,
            self._writer.name(shown_name(name, kind, step)),
            category,
            link=link + (self.host << _OF_HOST) if is_linked else 0,
            bytes=size if category is Category.COPY and 0 <= size < 1 << 62 else 0,
            info=self._writer.info(orjson.dumps(details).decode()) if details else 0,
        )

    def _statistic(self, data: memoryview) -> tuple[str, int | str]:
        """Return the name of a statistic and what it is; texts may stand among the names."""
        key = 0
        value: int | str = ""
        for field, _, raw in fields(data):
            if field == 1:
                key = signed(raw)
            elif field in (3, 4):
                value = signed(raw)
            elif field == 5:
                value = text(raw)
            elif field == 7:
                value = self._statistics.get(number(raw), "")
        return self._statistics.get(key, ""), value


def _name_of_line(data: memoryview) -> str:
    """Return the name of a line, which stands before its events; "" if it has none."""
    try:
        return next((text(value) for field, _, value in fields(data) if field == 2), "")
    except Damaged:
        return ""


def _entry(data: memoryview) -> tuple[int, memoryview]:
    """Return key and value of an entry of a map."""
    key = 0
    about: Value = memoryview(b"")
    for field, _, value in fields(data):
        if field == 1:
            key = signed(value)
        elif field == 2:
            about = message(value)
    return key, message(about)


PLUGIN = XplaneReader()
