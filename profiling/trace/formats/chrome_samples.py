"""Samples of stacks in Chrome traces: events of phase `P`, and the list `samples` beside the events.

    {"ph": "P", "pid": 1, "tid": 7, "ts": 100.0, "name": "sample", "sf": 3}     or "stack": ["main", "step"]
    "samples": [{"cpu": 0, "tid": 7, "ts": 100.0, "name": "cycles", "sf": 3, "weight": 1}]
    "stackFrames": {"3": {"name": "step", "parent": "2", "category": "a.so"}, ...}

V8's profiles come in pieces of the same phase: `Profile` names the thread and when it begins, each `ProfileChunk` of
its id adds nodes of a tree, and samples as nodes with the us since the one before.

A stack stands until the next sample of its thread, but no longer than a few times what usually lies between two.
Source: "Trace Event Format", and Chromium's v8_cpu_profiler.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from profiling.trace import clock
from profiling.trace.category import Category
from profiling.trace.formats.stack_frames import DEEPEST, StackFrames, until
from profiling.trace.formats.torch_event import number_of, text_of
from profiling.trace.limits import Limits
from profiling.trace.writer import StoreWriter

_MOST = 2_000_000
_MOST_NODES = 1_000_000
_ROOTS = frozenset({"(root)"})

_Thread = tuple[Any, Any]
_Stack = tuple[Any, Any] | list[Any]
"""A node of a tree (its profile, or None for `stackFrames`, and its number), or names from the outside in."""


class ChromeSamples:
    """Samples of a trace, as they come; frames may come last."""

    def __init__(self, writer: StoreWriter, limits: Limits) -> None:
        self._writer = writer
        self._limits = limits
        self._samples: dict[_Thread, list[tuple[int, _Stack]]] = {}
        self._count = 0
        self._unnamed = 0
        self._profiles: dict[_Thread, tuple[_Thread, list[int]]] = {}
        """Of each profile of V8 its thread, and when its last sample was [us]."""
        self._nodes: dict[tuple[Any, Any], tuple[str, Any]] = {}
        """The name and parent of a node."""

    def add(self, event: Mapping[str, Any], at: int) -> None:
        """Take in an event of phase P at a time [Unix ns]. Raises: KeyError, TypeError, ValueError."""
        thread = event.get("pid"), event.get("tid")
        profile = event.get("pid"), event.get("id")
        name = event.get("name")
        if name == "Profile":
            self._profiles[profile] = thread, [int(event["args"]["data"]["startTime"])]
        elif name == "ProfileChunk":
            self._piece(profile, event["args"]["data"])
        elif "sf" in event:
            self._keep(thread, at, (None, str(event["sf"])))
        elif isinstance(event.get("stack"), list):
            self._keep(thread, at, event["stack"])

    def finish(self, frames: object, samples: object, base: int) -> list[tuple[int, _Thread]]:
        """Put all into the store, with what stands beside the events; return lanes with the threads they are of.

        `base` is what times count from. [Unix ns]
        """
        if isinstance(frames, dict):
            for key, frame in frames.items():
                if isinstance(frame, dict) and len(self._nodes) < _MOST_NODES:
                    parent = frame.get("parent")
                    self._nodes[None, key] = str(frame.get("name", "")), None if parent is None else str(parent)
        for sample in samples if isinstance(samples, list) else ():
            if isinstance(sample, dict) and {"ts", "sf"} <= sample.keys():
                at = clock.of_microseconds(sample["ts"], base)
                self._keep((sample.get("pid"), sample.get("tid")), at, (None, str(sample["sf"])))
        lanes = [(self._put(thread, rows), thread) for thread, rows in self._samples.items()]
        if self._count > _MOST:
            self._writer.note("warning", f"Only the first {_MOST:,} samples of stacks were read.")
        if self._unnamed:
            self._writer.note("warning", f"{self._unnamed:,} samples of stacks name no frame that the trace holds.")
        return lanes

    def _piece(self, profile: _Thread, data: Mapping[str, Any]) -> None:
        """Take in nodes and samples of a profile of V8."""
        thread, last = self._profiles[profile]
        tree = data.get("cpuProfile", {})
        for node in tree.get("nodes", ()):
            if len(self._nodes) < _MOST_NODES:
                self._nodes[profile, node["id"]] = _called(node["callFrame"]), node.get("parent")
        for node, later in zip(tree.get("samples", ()), data.get("timeDeltas", ()), strict=False):
            last[0] += int(later)
            self._keep(thread, last[0] * 1000, (profile, node))

    def _keep(self, thread: _Thread, at: int, stack: _Stack) -> None:
        self._count += 1
        if self._count <= _MOST:
            self._samples.setdefault(thread, []).append((at, stack))

    def _put(self, thread: _Thread, rows: list[tuple[int, _Stack]]) -> int:
        rows.sort(key=lambda row: row[0])
        pid, tid = thread
        lane = self._writer.lane(
            "thread", process=text_of(pid), pid=number_of(pid), thread=text_of(tid), tid=number_of(tid), title="samples"
        )
        times = np.array([at for at, _ in rows], np.int64)
        ends = until(times).tolist()
        by_node: dict[_Stack, list[str]] = {}
        frames = StackFrames(lane, self._writer, self._limits, category=Category.PYTHON)
        for i, (at, stack) in enumerate(rows):
            frames.stand(at, self._names(stack, by_node))
            if i + 1 == len(rows) or ends[i] < rows[i + 1][0]:
                frames.stand(ends[i], ())
        frames.finish()
        return lane

    def _names(self, stack: _Stack, by_node: dict[_Stack, list[str]]) -> list[str]:
        """Return the names of a stack from the outside in."""
        if isinstance(stack, list):
            return [str(name) for name in stack[:DEEPEST]]
        if stack not in by_node:
            names: list[str] = []
            where, at = stack
            while at is not None and len(names) < DEEPEST and (node := self._nodes.get((where, at))):
                name, at = node
                if name not in _ROOTS:
                    names.append(name)
            by_node[stack] = names[::-1]
        self._unnamed += not by_node[stack]
        return by_node[stack]


def _called(frame: Mapping[str, Any]) -> str:
    """Return the name of a function of V8, with the end of its file's name."""
    name = str(frame.get("functionName") or "(anonymous)")
    file = str(frame.get("url") or "").rsplit("/", 1)[-1]
    return f"{name} ({file})" if file else name
