"""Profiles for speedscope (py-spy, Austin, many converters): stacks as they opened and closed, or as they were sampled.

Times count from the beginning of each profile, or are no times at all (bytes, samples), so there is no clock.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from profiling.trace.category import Category
from profiling.trace.formats.stack_frames import DEEPEST, ORIGIN, StackFrames
from profiling.trace.formats.whole_file import whole_json
from profiling.trace.limits import Limits, Progress, Unreadable
from profiling.trace.writer import StoreWriter

_MOST_NAMED = 3
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
        parsed = whole_json(path, writer, progress=progress, limits=limits)
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
    if profile["type"] == "sampled":
        for at, stack in _sampled(profile, title, len(names), writer):
            frames.stand(ORIGIN + round((at - first) * scale), [names[index] for index in stack])
    else:
        for at, name in _evented(profile, title, names, writer):
            when = ORIGIN + round((at - first) * scale)
            if name is None:
                frames.close(when)
            else:
                frames.open(when, name)
    frames.finish()


def _sampled(
    profile: dict[str, Any], title: str, num_frames: int, writer: StoreWriter
) -> Iterator[tuple[float, Sequence[int]]]:
    """Yield each stack as it begins to be seen. What names no frames, or has no weight, is left out by name."""
    samples, weights = profile["samples"], profile["weights"]
    if len(samples) != len(weights):
        raise Unreadable(f"{title} has {len(samples):,} samples and {len(weights):,} weights: each sample needs one.")
    at = profile.get("startValue", 0)
    wrong: list[str] = []
    for i, (stack, weight) in enumerate(zip(samples, weights, strict=True), 1):
        if not (isinstance(stack, list) and all(_is_frame(index, num_frames) for index in stack)):
            wrong.append(f"number {i:,} is {str(stack)[:60]}" if len(wrong) < _MOST_NAMED else "")
        elif not (isinstance(weight, int | float) and math.isfinite(weight) and weight >= 0):
            wrong.append(f"number {i:,} weighs {str(weight)[:40]}" if len(wrong) < _MOST_NAMED else "")
        else:
            yield at, stack[:DEEPEST]
            at += weight
    yield at, ()
    if wrong:
        writer.note(
            "warning",
            f"{len(wrong):,} samples were left out of {title}: {'; '.join(filter(None, wrong))}. A sample is a list of "
            f"frames, numbers from 0 to {num_frames - 1:,}, and its weight is 0 or more.",
        )


def _is_frame(index: object, num_frames: int) -> bool:
    return isinstance(index, int) and 0 <= index < num_frames


def _evented(
    profile: dict[str, Any], title: str, names: Sequence[str], writer: StoreWriter
) -> Iterator[tuple[float, str | None]]:
    """Yield each frame that opens, None for one that closes. What closes an outer frame closes all down to it first."""
    stack: list[int] = []
    open_frames: Counter[int] = Counter()
    at = profile.get("startValue", 0)
    unusable = 0
    for event in profile["events"]:
        if event["at"] < at:
            raise Unreadable(f"The events of {title} are not in the order of their times.")
        at, frame = event["at"], event["frame"]
        if not _is_frame(frame, len(names)):
            raise Unreadable(
                f"An event of {title} is of the frame {str(frame)[:40]}; there are those from 0 to {len(names) - 1:,}."
            )
        if event["type"] == "O":
            stack.append(frame)
            open_frames[frame] += 1
            yield at, names[frame]
        elif open_frames[frame]:
            closed = -1
            while closed != frame:
                closed = stack.pop()
                open_frames[closed] -= 1
                unusable += closed != frame
                yield at, None
        else:
            unusable += 1
    if stack:
        writer.note("warning", f"{len(stack):,} frames are still open at the end; they end with the profile.")
    if unusable:
        writer.note("warning", f"{unusable:,} frames were not closed in the order in which they were opened.")
    for _ in stack:
        yield profile.get("endValue", at), None


PLUGIN = SpeedscopeReader()
