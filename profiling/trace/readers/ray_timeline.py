"""Timelines of Ray: `ray.timeline(filename=...)` or the dashboard's download. A list of events in us of the clock.

Ray shows what its tasks wait for and where they run, one lane a worker, and nothing of what a method does.
"""

from pathlib import Path
from typing import TypedDict

import orjson

from profiling.trace import clock
from profiling.trace.category import Category
from profiling.trace.formats.json_list import JsonList
from profiling.trace.formats.torch_trace import OF_RAY
from profiling.trace.formats.unpack import UnpackedFile
from profiling.trace.limits import Limits, Progress
from profiling.trace.writer import StoreWriter


class _RayEvent(TypedDict, total=False):
    """An event as Ray writes it; times in us. In somebody's file it may be anything: `read` leaves out what fails."""

    ph: str
    cat: str
    name: str
    pid: str
    tid: str
    ts: float
    dur: float
    args: dict[str, object]


class RayTimelineReader:
    """Reads one timeline of a cluster."""

    name = "ray-timeline"
    title = "a timeline of Ray"
    suffixes = (".json",)

    def sniff(self, _path: Path, head: bytes, /) -> bool:
        """A list of events of tasks."""
        return head.lstrip().startswith(b"[") and OF_RAY.search(head) is not None

    def read(self, path: Path, writer: StoreWriter, *, progress: Progress, limits: Limits) -> None:
        """Put the timeline into a store."""
        unusable = 0
        with UnpackedFile(path, limits=limits, progress=progress) as file:
            listed = JsonList(file, key="traceEvents")
            for piece in listed.pieces():
                for event in piece:
                    try:
                        if event["ph"] == "X":
                            _add(event, writer)
                    except (KeyError, TypeError, ValueError, OverflowError):
                        unusable += 1
                if writer.events >= limits.events:
                    writer.note("warning", f"Only the first {writer.events:,} events were read; the rest is left out.")
                    break
            if listed.problem:
                writer.note("warning", listed.problem)
        if unusable:
            writer.note("warning", f"{unusable:,} events were left out: a time or a name is missing or is none.")
        writer.meta("tool", "ray")


def _add(event: _RayEvent, writer: StoreWriter) -> None:
    """Add one event; a task is a range, and what Ray does around it is overhead."""
    kind = str(event.get("cat", ""))
    name = str(event["name"])
    args = event.get("args")
    lane = writer.lane("thread", process=str(event["pid"]), pid=-1, thread=str(event.get("tid", "")))
    is_task = kind.startswith(("task::", "task:execute", "actor"))
    details = orjson.dumps({k: v for k, v in args.items() if v is not None}).decode() if isinstance(args, dict) else ""
    writer.add(
        lane,
        clock.of_microseconds(event["ts"]),
        round(event["dur"] * 1000),
        writer.name(name),
        Category.RANGE if is_task else Category.OTHER,
        info=writer.info(details) if details else 0,
    )


PLUGIN = RayTimelineReader()
