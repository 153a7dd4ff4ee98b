"""Profiles for speedscope (py-spy, Austin, many converters): stacks as they opened and closed, or as they were sampled.

Times count from the beginning of each profile, or are no times at all (bytes, samples), so there is no clock.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from profiling.trace.category import Category
from profiling.trace.formats.stack_frames import ORIGIN, StackFrames
from profiling.trace.formats.whole_file import whole_file
from profiling.trace.limits import Limits, Progress, Unreadable
from profiling.trace.writer import StoreWriter

_UNITS = {"nanoseconds": 1, "microseconds": 10**3, "milliseconds": 10**6, "seconds": 10**9}


class SpeedscopeReader:
    """Reads one file, a lane for each of its profiles."""

    name = "speedscope"
    title = "a profile of speedscope"
    suffixes = (".speedscope.json", ".speedscope.json.gz", ".json")

    def sniff(self, _path: Path, head: bytes, /) -> bool:
        """An object that names the schema, or the exporter."""
        is_object = head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{")
        return is_object and b"speedscope.app/file-format-schema.json" in head

    def read(self, path: Path, writer: StoreWriter, *, progress: Progress, limits: Limits) -> None:
        """Put every profile into a store. Raises: Unreadable."""
        content = whole_file(path, writer, progress=progress, limits=limits)
        try:
            parsed: Any = orjson.loads(content)
        except orjson.JSONDecodeError as error:
            raise Unreadable(f"The file is cut off or damaged: {error}.") from error
        names = [_name(frame) for frame in parsed["shared"]["frames"]]
        for i, profile in enumerate(parsed["profiles"]):
            _read_profile(profile, names, i, writer, limits)
        writer.meta("clock", "none")
        writer.meta("tool", str(parsed.get("exporter", "speedscope"))[:100])
        writer.note(
            "info", "A profile of speedscope does not say when it was recorded: it is laid out from 2000-01-01 on."
        )


def _name(frame: dict[str, Any]) -> str:
    """Return a frame as Python's frames are written: function (file:line)."""
    place = f" ({frame['file']}:{frame.get('line', '?')})" if frame.get("file") else ""
    return f"{frame['name']}{place}"


def _read_profile(profile: dict[str, Any], names: list[str], i: int, writer: StoreWriter, limits: Limits) -> None:
    unit = str(profile.get("unit", "none"))
    scale = _UNITS.get(unit)
    title = str(profile.get("name") or f"profile {i + 1}")
    lane = writer.lane("thread", process="", pid=-1, thread=title, tid=i + 1)
    frames = StackFrames(lane, writer, limits, category=Category.PYTHON)
    first = profile.get("startValue", 0)
    if scale is None:
        writer.note("info", f"{title} is not of time ({unit}): its lengths are {unit}, one drawn as a microsecond.")
        scale = 10**3
    pieces = _sampled(profile) if profile["type"] == "sampled" else _evented(profile, writer)
    for at, stack in pieces:
        frames.stand(ORIGIN + round((at - first) * scale), tuple(names[index] for index in stack))
    frames.finish()


def _sampled(profile: dict[str, Any]) -> Iterator[tuple[float, tuple[int, ...]]]:
    at = profile.get("startValue", 0)
    for stack, weight in zip(profile["samples"], profile["weights"], strict=True):
        yield at, tuple(stack)
        at += weight
    yield at, ()


def _evented(profile: dict[str, Any], writer: StoreWriter) -> Iterator[tuple[float, tuple[int, ...]]]:
    """Yield the stack after each event. What closes another frame than the innermost closes all down to it."""
    stack: list[int] = []
    at = profile.get("startValue", 0)
    unusable = 0
    for event in profile["events"]:
        if event["at"] < at:
            raise Unreadable(f"The events of {profile.get('name', 'a profile')} are not in the order of their times.")
        at = event["at"]
        if event["type"] == "O":
            stack.append(event["frame"])
        elif event["frame"] in stack:
            while stack.pop() != event["frame"]:
                unusable += 1
        else:
            unusable += 1
        yield at, tuple(stack)
    if stack:
        writer.note("warning", f"{len(stack):,} frames are still open at the end; they end with the profile.")
    if unusable:
        writer.note("warning", f"{unusable:,} frames were not closed in the order in which they were opened.")
    yield profile.get("endValue", at), ()


PLUGIN = SpeedscopeReader()
