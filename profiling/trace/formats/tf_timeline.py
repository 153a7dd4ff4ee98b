"""Timelines of TensorFlow's sessions as JSON for Chrome (`timeline.Timeline(...).generate_chrome_trace_format()`).

Processes are devices and what was traced of them; threads are rows, so that what overlaps lies side by side.

    /job:localhost/replica:0/task:0/device:GPU:0 Compute    operators, as the executor ran them on the CPU
    /device:GPU:0/stream:13 Compute                         what a stream did
    /device:GPU:0/stream:all Compute, .../memcpy Compute    the kernels and the copies of all streams once more

Older ones say `/gpu:0` for `/device:GPU:0`. Source: tensorflow/python/client/timeline.py, and real ones.
"""

import re
from collections.abc import Mapping
from typing import Any

import orjson

from profiling.trace.category import Category, of_kernel
from profiling.trace.writer import StoreWriter

KIND = "Op"
"""The kind of all its events."""
_PROCESS = re.compile(
    r"(?P<job>/job:[^/]{1,100}(?:/\w{1,40}:\d{1,9})*)?/(?:device:)?(?P<device>[A-Za-z_]{1,20}):(?P<number>\d{1,9})"
    r"(?:/(?P<part>memcpy|stream:\w{1,20}))? Compute"
)
_ONCE_MORE = frozenset({"memcpy", "stream:all"})
_COPY = re.compile(r"MEMCPY(?:[HDPA]to[HDPA])?", re.I)
_OF_THE_EXECUTOR = re.compile(r"#id=\d+.*$")
_MOST_PROCESSES = 10_000


class TensorflowTimeline:
    """The processes of a trace that are such devices, and putting their events into a store."""

    def __init__(self, writer: StoreWriter) -> None:
        self._writer = writer
        self._processes: dict[Any, re.Match[str]] = {}
        self._has_streams: set[str] = set()
        """Devices that tell of each stream."""
        self._lanes: dict[tuple[Any, Any], int] = {}

    def __contains__(self, pid: object) -> bool:
        return pid in self._processes

    def name_process(self, pid: Any, name: str) -> None:
        """Take in the name of a process."""
        match = _PROCESS.fullmatch(name)
        if match is None or len(self._processes) >= _MOST_PROCESSES:
            return
        self._processes[pid] = match
        if match["part"] and match["part"] not in _ONCE_MORE:
            self._has_streams.add(match["number"])

    def add(self, event: Mapping[str, Any], start: int, lasts: int) -> None:
        """Add an event of such a process, which begins at `start` and lasts so long. [ns]"""
        process = self._processes[event["pid"]]
        part = process["part"]
        if part in _ONCE_MORE and process["number"] in self._has_streams:
            return
        key = event["pid"], event.get("tid")
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = self._lane(process, event.get("tid"))
        name = _OF_THE_EXECUTOR.sub("", str(event["name"]))
        args = event.get("args") or {}
        node = str(args.get("name", ""))[:500] if isinstance(args, Mapping) else ""
        self._writer.add(
            lane,
            start,
            lasts,
            self._writer.name(name),
            _of_stream(name) if part else Category.OPERATOR,
            info=self._writer.info(orjson.dumps({"node": node}).decode()) if node else 0,
        )

    def _lane(self, process: re.Match[str], tid: object) -> int:
        """Return the lane of a row; rows of one stream are one lane, as they are of one stream."""
        part, device = process["part"], int(process["number"])
        if part:
            stream = part.partition(":")[2]
            number, title = (int(stream), "") if stream.isdecimal() and stream.isascii() else (-1, part)
            return self._writer.lane("stream", process="", pid=-1, device=device, stream=number, title=title)
        called = f"{process['device'].upper()}:{device}"
        row = tid if isinstance(tid, int) and 0 <= tid < 1 << 31 else 0
        return self._writer.lane("thread", process="TensorFlow", pid=-1, thread=f"{called} row {row}", tid=row)


def _of_stream(name: str) -> Category:
    """Return what a stream did."""
    if _COPY.match(name):
        return Category.COPY
    return Category.MEMSET if name.upper().startswith("MEMSET") else of_kernel(name)
