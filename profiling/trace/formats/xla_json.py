"""XLA's profiles as JSON for Chrome (`*.trace.json.gz` of JAX and TensorFlow, `perfetto_trace.json.gz` of JAX).

Processes are planes and threads are lines, which are named before the events; all arguments are texts.

    {"ph": "M", "pid": 3, "name": "process_name", "args": {"name": "/device:GPU:0"}}
    {"ph": "M", "pid": 3, "tid": 20, "name": "thread_name", "args": {"name": "Stream #20(Compute)"}}
    {"ph": "X", "pid": 3, "tid": 20, "ts": 1047.5, "dur": 2.8, "name": "fusion", "args": {"correlation_id": "33"}}

Source: openxla/xla, xla/tsl/profiler/convert/xplane_to_trace_events.cc and trace_events_to_json.cc.
"""

import re
from collections.abc import Mapping
from typing import Any

import orjson

from profiling.trace.category import Category
from profiling.trace.formats.xla import (
    INFO_KEYS,
    LONGEST_INFO,
    STEP_NUMBER,
    HostSteps,
    Kind,
    PlaneDevice,
    category_of,
    device_of,
    is_steps_of_device,
    kind_of_line,
    shown_name,
    stream_of,
)
from profiling.trace.writer import StoreWriter

_PLANE = re.compile(r"/device:[A-Z]+(?:_[A-Z]+)?:\d+|/host:CPU\b")
_MOST_PLANES = 10_000
_LONGEST_NUMBER = 18  # digits


class XlaEvents:
    """The planes of a trace, and putting their events into a store."""

    def __init__(self, writer: StoreWriter) -> None:
        self._writer = writer
        self._planes: dict[Any, tuple[str, PlaneDevice]] = {}
        self._lines: dict[tuple[Any, Any], tuple[int, Kind]] = {}
        self._line_names: dict[tuple[Any, Any], str] = {}
        self._steps = HostSteps()

    def __contains__(self, pid: object) -> bool:
        return pid in self._planes

    def __bool__(self) -> bool:
        return bool(self._planes)

    def name_plane(self, pid: Any, name: str) -> None:
        """Take in the name of a process, which is a plane if it is called like one."""
        if _PLANE.match(name) and len(self._planes) < _MOST_PLANES:
            self._planes[pid] = (name, device_of(name))

    def name_line(self, pid: Any, tid: Any, name: str) -> None:
        """Take in the name of a line of a plane."""
        if pid in self._planes:
            self._line_names[pid, tid] = name
            if is_steps_of_device(self._planes[pid][0], name):
                self._steps = HostSteps(are_wanted=False)

    def add(self, event: Mapping[str, Any], start: int, lasts: int) -> None:
        """Add an event of a plane, which begins at `start` and lasts so long. [ns]"""
        key = (event["pid"], event.get("tid"))
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = self._line(*key)
        lane, kind = line
        name, args = str(event["name"]), event.get("args") or {}
        link = _number(args.get("correlation_id")) if kind in ("device", "host") else 0
        number = _number(args[STEP_NUMBER]) if STEP_NUMBER in args else None
        step = self._steps.number(name, kind, number)
        is_hlo = bool(args.get("hlo_op"))
        category = category_of(name, kind, is_linked=link > 0, is_step=step is not None, is_hlo=is_hlo)
        details = {name: str(args[name])[:LONGEST_INFO] for name in INFO_KEYS if name in args}
        self._writer.add(
            lane,
            start,
            lasts,
            self._writer.name(shown_name(name, kind, step)),
            category,
            link=link,
            bytes=_number(args.get("bytes_transferred")) if category is Category.COPY else 0,
            info=self._writer.info(orjson.dumps(details).decode()) if details else 0,
        )

    def _line(self, pid: Any, tid: Any) -> tuple[int, Kind]:
        """Return the lane of a line, and what its events are."""
        plane, device = self._planes[pid]
        name = self._line_names.get((pid, tid), "")
        kind, number = kind_of_line(device, name), _number(tid)
        if kind == "host":
            thread = name or f"line {number}"
            lane = self._writer.lane("thread", process=plane.lstrip("/"), pid=-1, thread=thread, tid=number)
        elif kind == "device":
            stream = stream_of(name)
            title = "" if stream is not None else name
            at = number if stream is None else stream
            lane = self._writer.lane("stream", process="", pid=-1, device=device.number, stream=at, title=title)
        else:
            lane = self._writer.lane("range", process=plane.lstrip("/"), pid=-1, device=device.number, title=name)
        return lane, kind


def _number(value: object) -> int:
    """Return a number that is told as a text; 0 for what is none."""
    text = str(value)
    return int(text) if text.isdecimal() and text.isascii() and len(text) <= _LONGEST_NUMBER else 0
