"""Lanes of a Chrome trace of torch: threads of the CPU, frames beside them, streams of devices, and their names.

Events of devices stand under `pid` = device and `tid` = stream, those of the CPU under process and thread. Names come
as events of their own, before or after.
"""

from collections.abc import Callable

from profiling.trace.formats.torch_event import Args, Id, TorchEvent, number_of, text_of
from profiling.trace.formats.torch_kinds import ITERATIONS, OF_AUTOGRAD, ON_CPU, ON_STREAM, THREADS, WAITS
from profiling.trace.frames import FRAMES
from profiling.trace.lanes import of_stream
from profiling.trace.writer import StoreWriter

LaneKey = tuple[Id, Id, str]
"""Process, thread and which of its lanes."""
_MOST_KNOWN = 100_000
"""Of names of processes and threads: what a hostile trace has more of is left out."""


class TorchLanes:
    """Those of one trace. `device_of` returns the device of a process of Ascend's, -1 of another one."""

    def __init__(self, writer: StoreWriter, device_of: Callable[[Id], int]) -> None:
        self._writer = writer
        self._device_of = device_of
        self.by_key: dict[LaneKey, int] = {}
        """Numbers of lanes that have events."""
        self._keys: dict[int, LaneKey] = {}
        self._processes: dict[Id, dict[str, str]] = {}
        self._threads: dict[tuple[Id, Id], str] = {}
        self._drivers: dict[int, Id] = {}
        """Processes that launch work of a stream, where arrows tell."""
        self._first_cpu: int | None = None

    def of_thread(self, event: TorchEvent, place: str = ON_CPU) -> int:
        """Return the lane of a thread, or that of its frames of Python: they cross the ranges that they open."""
        key = (event.get("pid"), event.get("tid"), place)
        lane = self.by_key.get(key)
        if lane is None:
            if self._first_cpu is None and isinstance(key[0], int):
                self._first_cpu = key[0]
            lane = self._writer.lane(
                "thread",
                process=text_of(key[0]),
                pid=number_of(key[0]),
                thread=text_of(key[1]),
                tid=number_of(key[1]),
                title="" if place == ON_CPU else place,
            )
            if place == FRAMES:
                self._writer.frames(lane)
            self._know(key, lane)
        return lane

    def of_device(self, event: TorchEvent, args: Args, place: str) -> int:
        """Return the lane of a stream, or of ranges and waits of a device."""
        key = (event.get("pid"), event.get("tid"), place)
        lane = self.by_key.get(key)
        if lane is None:
            device = args.get("device", args.get("Device Id", key[0]))
            stream = args.get("stream", args.get("Stream Id", key[1]))
            if place == ITERATIONS:
                device, stream = self._device_of(key[0]), -1
            if key[0] in OF_AUTOGRAD:  # whose threads are devices
                device, stream = key[1], 0
            lane = self._writer.lane(
                "stream" if place == ON_STREAM else "range",
                process=text_of(key[0]),
                pid=number_of(key[0]),
                thread="",
                tid=number_of(key[1]),
                device=number_of(device),
                stream=number_of(stream),
                title="" if place == ON_STREAM else of_stream(place, number_of(stream)) if place == WAITS else place,
            )
            self._know(key, lane)
        return lane

    def _know(self, key: LaneKey, lane: int) -> None:
        self.by_key[key] = lane
        self._keys[lane] = key

    def take(self, lane: int, pid: Id, tid: Id, place: str) -> None:
        """Take in a lane that was made elsewhere, so that it is named with the others."""
        self._keys.setdefault(lane, (pid, tid, place))

    def drive(self, stream: int, calling: int) -> None:
        """Say that a call on the lane `calling` launched what a stream did: its process drives the stream."""
        self._drivers.setdefault(stream, self._keys[calling][0])

    @property
    def is_full(self) -> bool:
        """Return True once no more names are taken."""
        return len(self._processes) + len(self._threads) >= _MOST_KNOWN

    def describe_process(self, pid: Id, what: str, text: str) -> None:
        """Take in the "name" or the "labels" of a process."""
        self._processes.setdefault(pid, {})[what] = text

    def name_thread(self, pid: Id, tid: Id, name: str) -> None:
        """Take in the name of a thread."""
        self._threads[pid, tid] = name

    def process_name(self, pid: Id) -> str:
        """Return the name of a process, "" if it has none."""
        return self._processes.get(pid, {}).get("name", "")

    def name_all(self) -> None:
        """Give each lane the name of its process and thread, and each stream the process that drives it."""
        labelled = [pid for pid, about in self._processes.items() if about.get("labels") == "CPU"]
        owner = labelled[0] if len(labelled) == 1 else self._first_cpu
        for lane, (pid, tid, place) in self._keys.items():
            driver = self._drivers.get(lane, owner)
            process = pid if place in THREADS or driver is None else driver
            name = self.process_name(process) or text_of(process)
            thread = self._threads.get((pid, tid))
            self._writer.describe_lane(lane, process=name, pid=number_of(process), thread=thread)
