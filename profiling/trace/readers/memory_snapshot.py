"""Memory snapshots of torch: what `torch.cuda.memory._dump_snapshot()` writes, a pickle of plain values."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from profiling.trace.category import Category
from profiling.trace.formats import plain_pickle
from profiling.trace.formats.stack_frames import ORIGIN
from profiling.trace.limits import Limits, Progress, Unreadable
from profiling.trace.writer import StoreWriter

_MOST_HOLDERS = 100
_MOST_SPANS = 2000
_LEAST_SPAN = 1 << 20
"""Bytes from which an allocation is worth a line."""
_GIVEN, _TAKEN = ("alloc",), ("free_completed",)
_RESERVED, _RELEASED = ("segment_alloc", "segment_map"), ("segment_free", "segment_unmap")
_PLUMBING = re.compile(r"(?:^|[/\\])torch[/\\]|^<")
_ALLOCATOR = re.compile(r"torch::(?:unwind|CapturedTraceback|cuda)|c10::|.*\bat::detail::")
"""Functions of C++ that every allocation goes through."""


class MemorySnapshotReader:
    """Reads one snapshot."""

    name = "memory-snapshot"
    title = "a memory snapshot of torch"
    suffixes = (".pickle", ".pkl")

    def sniff(self, _path: Path, head: bytes, /) -> bool:
        """A pickle that begins with the keys of a snapshot, or is the list of its segments."""
        is_list = b"total_size" in head and b"segment_type" in head and b"blocks" in head
        return plain_pickle.is_pickle(head) and (b"segments" in head or b"device_traces" in head or is_list)

    def read(self, path: Path, writer: StoreWriter, *, progress: Progress, limits: Limits) -> None:
        """Put memory over time, the largest allocations and who holds what into a store. Raises: Unreadable."""
        snapshot = plain_pickle.load(path, title="snapshot", advice="record it with fewer max_entries")
        progress(0.6)
        if isinstance(snapshot, list):  # what `torch.cuda.memory_snapshot()` returns
            snapshot = {"segments": snapshot}
        if not isinstance(snapshot, dict) or not isinstance(snapshot.get("segments"), list):
            raise Unreadable("The pickle is no memory snapshot: it has no list of segments.")
        segments = [each for each in snapshot["segments"] if isinstance(each, dict)]
        totals = _state(segments, writer)
        has_history = False
        traces = snapshot.get("device_traces")
        histories = [each if isinstance(each, list) else [] for each in (traces if isinstance(traces, list) else [])]
        _place_in_order(histories, writer)
        for device, entries in enumerate(histories):
            of_device = [each for each in segments if each.get("device", 0) == device]
            if len(entries) > limits.events:  # it is counted back from the end
                newest = f"{limits.events:,} of {len(entries):,} entries of device {device}"
                writer.note("warning", f"Only the newest {newest} were read.")
            has_history |= _history(device, entries[-limits.events :], of_device, writer)
        if not has_history:
            _moment(totals, writer)
        writer.meta("tool", "torch")


def _state(segments: Sequence[Mapping[str, object]], writer: StoreWriter) -> Mapping[int, Mapping[str, int]]:
    """Keep what the allocator held at the end, and the places that held most of it; return its sums by device."""
    held: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
    totals: defaultdict[int, dict[str, int]] = defaultdict(
        lambda: {"reserved": 0, "allocated": 0, "active": 0, "segments": 0, "largest_free": 0}
    )
    for segment in segments:
        device_totals = totals[_non_negative(segment.get("device"))]
        device_totals["segments"] += 1
        for key, name in (("reserved", "total_size"), ("allocated", "allocated_size"), ("active", "active_size")):
            device_totals[key] += _non_negative(segment.get(name))
        for block in _dicts(segment.get("blocks")):
            size = _non_negative(block.get("size"))
            if plain_pickle.text(block.get("state"), 20).startswith("active"):
                place = held[_place(block.get("frames"))]
                place[0] += size
                place[1] += 1
            else:
                device_totals["largest_free"] = max(device_totals["largest_free"], size)
    largest = sorted(held.items(), key=lambda each: -each[1][0])[:_MOST_HOLDERS]
    writer.meta("holders", [{"place": place, "bytes": size, "blocks": count} for place, (size, count) in largest])
    writer.meta("memory", [{"device": device, **each} for device, each in sorted(totals.items())])
    return totals


def _place_in_order(histories: Sequence[list[object]], writer: StoreWriter) -> None:
    """Give the entries times where none has one, as older torch writes them: a microsecond each, in their order."""
    entries = [each for history in histories for each in _dicts(history)]
    if not any(_non_negative(each.get("size")) for each in entries) or any("time_us" in each for each in entries):
        return
    for history in histories:
        for i, each in enumerate(_dicts(history)):
            each["time_us"] = ORIGIN // 1000 + i
    writer.meta("clock", "none")
    writer.note(
        "info",
        "The history has no times, as older torch writes it: what happened is in order, a microsecond each.",
    )


def _moment(totals: Mapping[int, Mapping[str, int]], writer: StoreWriter) -> None:
    """Keep what was allocated and reserved as one sample a device, where no history was recorded."""
    with_memory = [(device, each) for device, each in sorted(totals.items()) if each["reserved"]]
    if not with_memory:
        return
    for device, each in with_memory:
        for name in ("allocated", "reserved"):
            writer.count(writer.counter(name, "B", device=device), ORIGIN, each[name])
    writer.meta("clock", "none")
    writer.note(
        "info",
        "The snapshot has no history: what was held is known, its moment and what was held before are not. "
        "`torch.cuda.memory._record_memory_history()` before the steps gives the course in time.",
    )


def _history(device: int, entries: list[object], segments: Sequence[Mapping[str, object]], writer: StoreWriter) -> bool:
    """Keep what was allocated and reserved over time, counted back from the state at the end; False without any."""
    events = [each for each in _dicts(entries) if _non_negative(each.get("time_us"))]
    if not events:
        if entries:
            writer.note("warning", f"The history of device {device} has no times, so memory over time is missing.")
        return False
    deltas = [_change(each) for each in events]
    allocated = sum(_non_negative(each.get("allocated_size")) for each in segments) - sum(
        change[0] for change in deltas
    )
    reserved = sum(_non_negative(each.get("total_size")) for each in segments) - sum(change[1] for change in deltas)
    series = [writer.counter(name, "B", device=device) for name in ("allocated", "reserved")]
    for event, (delta, taken) in zip(events, deltas, strict=True):
        at = _non_negative(event["time_us"]) * 1000
        allocated, reserved = allocated + delta, reserved + taken
        writer.count(series[0], at, max(allocated, 0))
        writer.count(series[1], at, max(reserved, 0))
        if event.get("action") == "oom":
            requested, free = _non_negative(event.get("size")), _non_negative(event.get("device_free"))
            writer.note(
                "error", f"Out of memory on device {device}: {requested:,} bytes were asked for, {free:,} were free."
            )
    _spans(device, events, writer)
    return True


def _spans(device: int, events: Sequence[Mapping[str, object]], writer: StoreWriter) -> None:
    """Add the largest allocations, each from its beginning to its end or the end of the history."""
    opened: dict[int, Mapping[str, object]] = {}
    spans: list[tuple[int, int, int, str]] = []
    last = _non_negative(events[-1]["time_us"])

    def close(begun: Mapping[str, object], end: int) -> None:
        begin = _non_negative(begun["time_us"])
        spans.append(
            (_non_negative(begun.get("size")), begin * 1000, max(end - begin, 0) * 1000, _place(begun.get("frames")))
        )

    for event in events:
        address = _non_negative(event.get("addr"))
        if event.get("action") in _GIVEN and _non_negative(event.get("size")) >= _LEAST_SPAN:
            opened[address] = event
        elif event.get("action") in _TAKEN and address in opened:
            close(opened.pop(address), _non_negative(event["time_us"]))
    for event in opened.values():
        close(event, last)
    if not spans:
        return
    lane = writer.lane("range", process="", pid=-1, device=device, title="largest allocations")
    spans.sort(reverse=True)
    for size, begin, lasts, place in spans[:_MOST_SPANS]:
        writer.add(lane, begin, lasts, writer.name(place), Category.OTHER, bytes=size)
    if len(spans) > _MOST_SPANS:
        writer.note("info", f"Of {len(spans):,} allocations of 1 MiB and more the largest {_MOST_SPANS:,} are shown.")


def _change(event: Mapping[str, object]) -> tuple[int, int]:
    """Return by how many bytes an entry changes what is allocated and reserved."""
    action, size = event.get("action"), _non_negative(event.get("size"))
    delta = size if action in _GIVEN else -size if action in _TAKEN else 0
    reserved = size if action in _RESERVED else -size if action in _RELEASED else 0
    return delta, reserved


def _place(frames: object) -> str:
    """Return the innermost line of somebody's own Python, else of any, else the operator in C++ that allocated.

    "unknown place" if no frame was recorded.
    """
    with_file = [(file, frame) for frame in _dicts(frames) if isinstance(file := frame.get("filename"), str)]
    of_python = [(file, frame) for file, frame in with_file if file.endswith(".py")]
    own = [(file, frame) for file, frame in of_python if not _PLUMBING.search(file)]
    of_operator = [one for one in with_file if not _ALLOCATOR.match(plain_pickle.text(one[1].get("name"), 200))]
    for file, frame in own or of_python or of_operator or with_file:
        return f"{file[-200:]}:{_non_negative(frame.get('line'))} {plain_pickle.text(frame.get('name'), 200)}"
    return "unknown place"


def _dicts(values: object) -> Iterator[dict[str, object]]:
    return (each for each in values if isinstance(each, dict)) if isinstance(values, list) else iter(())


def _non_negative(value: object) -> int:
    return value if type(value) is int and 0 <= value < 1 << 62 else 0


PLUGIN = MemorySnapshotReader()
