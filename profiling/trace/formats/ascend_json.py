"""Processes of Ascend's traces for Chrome (`trace_view.json` of torch_npu, `msprof_*.json`) beside the program's own.

    Ascend Hardware     tasks by stream, each with a `Task Type`
    CANN                calls of the runtime; ascend_launches.py joins them with the tasks that they started
    (the program's)     operators; an arrow of kind `async_npu` joins one with each task of it, by their begins
    Communication       collectives of a group, and on planes what each is made of ("HCCL" in older traces)
    Overlap Analysis    what was derived from these

Iterations stand among the tasks, of kinds of their own (`Iteration Time`). The others have none, and are named before
their events. Source: msprof-analyze, compare_backend/profiling_parser, and trace_event_bean.py; read are real traces,
one of them with collectives.
"""

import re
from collections.abc import Mapping
from typing import Any, Literal

import orjson

from profiling.trace.category import Category, of_kernel, waits_on_device
from profiling.trace.formats.ascend_launches import AscendLaunches
from profiling.trace.formats.torch_event import text_of
from profiling.trace.lanes import of_stream
from profiling.trace.writer import StoreWriter

_PROCESSES: Mapping[str, Literal["hardware", "calls", "collectives", "derived"]] = {
    "Ascend Hardware": "hardware",
    "CANN": "calls",
    "Communication": "collectives",
    "HCCL": "collectives",
    "Overlap Analysis": "derived",
}
_COPY = re.compile(r"memcpy|reduce_async|sdma$", re.I)
"""A copy, or one that adds to what is there, of which collectives are made: no core computes."""
_DEVICE = re.compile(r"NPU ?(\d{1,5})")
_NO_CONNECTION = (1 << 32) - 1
_MOST = 10_000
_MOST_ARROWS = 1_000_000
_SHOWN = ("Task Type", "Model Id", "Task Id", "Batch Id")


class AscendEvents:
    """The processes of a trace that are Ascend's, and putting their events into a store."""

    def __init__(self, writer: StoreWriter) -> None:
        self._writer = writer
        self._processes: dict[Any, str] = {}
        self._devices: dict[Any, int] = {}
        self._threads: dict[tuple[Any, Any], str] = {}
        self._launches = AscendLaunches(writer)
        self._operators: dict[tuple[int, int], int] = {}
        self._begun: dict[str, int] = {}

    def __contains__(self, pid: object) -> bool:
        return pid in self._processes

    def name_process(self, pid: Any, name: str) -> None:
        """Take in the name of a process."""
        if name in _PROCESSES and len(self._processes) < _MOST:
            self._processes[pid] = name

    def label_process(self, pid: Any, labels: str) -> None:
        """Take in the label of a process, in which the number of its device may stand."""
        if pid in self._processes and (match := _DEVICE.fullmatch(labels)):
            self._devices[pid] = int(match[1])

    def name_thread(self, pid: Any, tid: Any, name: str) -> None:
        """Take in the name of a thread of such a process."""
        if pid in self._processes and len(self._threads) < _MOST:
            self._threads[pid, tid] = name

    def add(self, event: Mapping[str, Any], start: int, lasts: int) -> tuple[int, Any]:
        """Add an event which begins at `start` and lasts so long [ns]; return its lane, and the process it is of."""
        pid, tid, name, args = event["pid"], event.get("tid"), str(event["name"]), event.get("args") or {}
        process = self._processes[pid]
        kind = _PROCESSES[process]
        if kind == "hardware":
            category = Category.SYNC if waits_on_device(name) else Category.COPY if is_copy(name) else of_kernel(name)
            lane = self._device_lane(pid, args.get("Stream Id", tid), is_wait=category is Category.SYNC)
        elif kind == "calls":
            category = Category.SYNC if "Synchronize" in name else Category.RUNTIME
            lane = self._call_lane(pid, tid)
        else:
            category = Category.COMMUNICATION if self._holds_collectives(pid, tid) else Category.RANGE
            lane = self._range_lane(pid, tid)
        shown = {key: args[key] for key in _SHOWN if key in args}
        add = self._launches.call if kind == "calls" else self._launches.task
        add(
            lane=lane,
            ts=start,
            dur=lasts,
            name=self._writer.name(name),
            cat=category,
            link=_connection(args.get("connection_id")),
            info=self._writer.info(orjson.dumps(shown).decode()) if shown else 0,
        )
        return lane, pid

    def device(self, pid: Any) -> int:
        """Return the number of the device of a process, -1 for one that is none of Ascend's."""
        return self._device(pid) if pid in self._processes else -1

    def arrow(self, event: Mapping[str, Any], at: int) -> None:
        """Take in one end of an arrow from a call to a task, at a time [Unix ns]."""
        is_end = event["ph"] != "s"
        if event["pid"] in self._processes:
            lane = self._lane_of_end(event) if is_end else self._call_lane(event["pid"], event["tid"])
            self._launches.arrow(str(event["id"]), lane, at, is_end=is_end)

    def begin_of_operator(self, event: Mapping[str, Any], lane: int, at: int) -> None:
        """Take in that an arrow from an operator in this lane to a task begins, with the operator [Unix ns]."""
        if len(self._begun) < _MOST_ARROWS:
            number = self._operators.setdefault((lane, at), len(self._operators) + 1)
            self._begun[str(event["id"])] = number
            self._writer.join(number, lane, at)

    def end_of_operator(self, event: Mapping[str, Any], at: int) -> None:
        """Take in that such an arrow ends, with the task or the collective [Unix ns]."""
        number = self._begun.get(str(event["id"]))
        if number and event["pid"] in self._processes:
            self._launches.operator(number, self._lane_of_end(event), at)

    def finish(self) -> None:
        """Put into the store what was kept."""
        self._launches.finish()

    def _call_lane(self, pid: Any, tid: Any) -> int:
        process = self._processes[pid]
        return self._writer.lane(
            "thread", process=process, pid=_number(pid), thread=text_of(tid), tid=_number(tid), title=process
        )

    def _lane_of_end(self, event: Mapping[str, Any]) -> int:
        """Return the lane of the task or the collective at which an arrow ends."""
        pid, tid = event["pid"], event.get("tid")
        return self._device_lane(pid, tid, is_wait=False) if self._is_hardware(pid) else self._range_lane(pid, tid)

    def _range_lane(self, pid: Any, tid: Any) -> int:
        """Return the lane of collectives, as if it were a stream, or of what they are made of, or what was derived."""
        kind: Literal["stream", "range"] = "stream" if self._holds_collectives(pid, tid) else "range"
        title = f"{self._processes[pid]}: {self._threads.get((pid, tid), text_of(tid))}"
        return self._writer.lane(kind, process="", pid=-1, device=self._device(pid), stream=-1, title=title[:200])

    def _holds_collectives(self, pid: Any, tid: Any) -> bool:
        is_theirs = _PROCESSES[self._processes[pid]] == "collectives"
        return is_theirs and "Communication" in self._threads.get((pid, tid), "")

    def _device_lane(self, pid: Any, stream: Any, *, is_wait: bool) -> int:
        return self._writer.lane(
            "range" if is_wait else "stream",
            process="",
            pid=-1,
            device=self._device(pid),
            stream=_number(stream),
            title=of_stream("waits", _number(stream)) if is_wait else "",
        )

    def _device(self, pid: Any) -> int:
        """Return the number of the device of a process: as it is labelled, else by its order; else the first one."""
        hardware = sorted({number for other, number in self._devices.items() if self._is_hardware(other)})
        if pid not in self._devices:
            is_first = self._is_hardware(pid) or not hardware
            self._devices[pid] = (max(hardware, default=-1) + 1) if is_first else hardware[0]
        return self._devices[pid]

    def _is_hardware(self, pid: Any) -> bool:
        return self._processes.get(pid) == "Ascend Hardware"


def is_copy(name: str) -> bool:
    """Return True for a task of a device that moves memory, by its name."""
    return _COPY.search(name) is not None


def _connection(value: object) -> int:
    return value if isinstance(value, int) and 0 < value < _NO_CONNECTION else 0


def _number(value: object) -> int:
    return value if isinstance(value, int) and abs(value) < 1 << 31 else -1
