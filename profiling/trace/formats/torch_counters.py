"""Curves of a Chrome trace of torch: counters, and the memory that torch's allocator gave out and reserved."""

from typing import Literal

from profiling.trace.formats.torch_event import Id, TorchEvent, text_of
from profiling.trace.formats.torch_lanes import TorchLanes
from profiling.trace.writer import StoreWriter

_TOTALS: tuple[tuple[str, Literal["Total Allocated", "Total Reserved"]], ...] = (
    ("allocated", "Total Allocated"),
    ("reserved", "Total Reserved"),
)


class TorchCounters:
    """Each process has curves of its own."""

    def __init__(self, writer: StoreWriter) -> None:
        self._writer = writer
        self._series: dict[tuple[str, int, Id], int] = {}

    def count(self, event: TorchEvent, at: int) -> None:
        """Take a counter at a time [Unix ns]: each of its arguments is a series."""
        for key, value in (event.get("args") or {}).items():
            if isinstance(value, int | float):
                self._sample(event, f"{event['name']}: {key}" if key != event["name"] else key, "", at, value)

    def take_memory(self, event: TorchEvent, at: int) -> None:
        """Take what was allocated and reserved at a time [Unix ns]."""
        args = event["args"]
        device = args.get("Device Id", -1) if args.get("Device Type", 0) else -1
        for name, key in _TOTALS:
            if key in args:
                self._sample(event, name, "B", at, args[key], device=device)

    def _sample(self, event: TorchEvent, name: str, unit: str, at: int, value: float, *, device: int = -1) -> None:
        pid = event.get("pid")
        key = (name, device, pid)
        if key not in self._series:
            self._series[key] = self._writer.counter(name, unit, device=device, process=text_of(pid))
        self._writer.count(self._series[key], at, float(value))

    def name_processes(self, lanes: TorchLanes) -> None:
        """Name the processes of counters where there are several."""
        pids = list(dict.fromkeys(pid for _, _, pid in self._series))
        names = {pid: f"{lanes.process_name(pid)} {text_of(pid)}".strip() if len(pids) > 1 else "" for pid in pids}
        self._writer.describe_processes({text_of(pid): name for pid, name in names.items()})


def tells_memory(event: TorchEvent) -> bool:
    """Return True for a moment in which torch tells of memory."""
    return event.get("name") == "[memory]" and "Total Allocated" in (event.get("args") or {})
