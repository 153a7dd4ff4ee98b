"""Folded stacks (`outermost;...;innermost count` a line): perf, py-spy `--format raw`, austin, async-profiler.

Counts are of samples, or of what the tool counted (of austin, us): there is no time of day. They are drawn as a flame
graph: equal stacks together, neighbours with the same callers beside each other, each as wide as its count.
"""

import re
from pathlib import Path

from profiling.trace.category import Category
from profiling.trace.formats.stack_frames import DEEPEST, ORIGIN, StackFrames
from profiling.trace.formats.whole_file import whole_file
from profiling.trace.limits import Limits, Progress, Unreadable
from profiling.trace.writer import StoreWriter

_COMMENT = ("#", "//")
_LOOKED_AT = 40
_ENOUGH = 0.75
_SCALES = (10**6, 10**3, 1)
_LONGEST = 24 * 3600 * 10**9
_MOST_STACKS = 1_000_000
_LONGEST_COUNT = 15
_HEAD = 4096
_OF_AUSTIN = re.compile(r"^# mode: (?:wall|cpu)$", re.M)
"""In the head of what austin writes: its counts are us."""
_TIMED = "Folded stacks of austin tell how long each was seen, and not when: they are drawn one after another."


class FoldedStacksReader:
    """Reads one file."""

    name = "folded-stacks"
    title = "folded stacks"
    suffixes = (".txt", ".folded", ".collapsed")

    def sniff(self, _path: Path, head: bytes, /) -> bool:
        """Lines that end in a number, most of them with several frames."""
        lines = [line for line in _text(head).split("\n")[:_LOOKED_AT] if _is_content(line)]
        if head[-1:] not in (b"\n", b"\0") and len(lines) > 1 and len(head) >= 1 << 16:
            lines.pop()
        stacks = [counted[0] for line in lines if (counted := _counted(line))]
        is_clear = len(stacks) >= max(_ENOUGH * len(lines), 1) and len(lines) - len(stacks) <= max(len(lines) // 4, 1)
        return is_clear and 2 * sum(";" in stack for stack in stacks) > len(stacks)

    def read(self, path: Path, writer: StoreWriter, *, progress: Progress, limits: Limits) -> None:
        """Put the stacks into a store. Raises: Unreadable."""
        counts: dict[tuple[str, ...], int] = {}
        unusable = 0
        text = _text(whole_file(path, writer, progress=progress, limits=limits))
        for line in text.split("\n"):
            counted = _counted(line) if _is_content(line) else None
            if counted and len(counts) < _MOST_STACKS:
                stack = tuple(counted[0].split(";", DEEPEST))
                counts[stack] = counts.get(stack, 0) + counted[1]
            elif _is_content(line):
                unusable += 1
        total = sum(counts.values())
        is_timed = _OF_AUSTIN.search(text[:_HEAD]) is not None
        scale = (
            1000
            if is_timed and total * 1000 <= _LONGEST
            else next((scale for scale in _SCALES if total * scale <= _LONGEST), 0)
        )
        if not scale:
            raise Unreadable(f"The counts of the stacks add up to {total:,}, which is more than can be drawn.")
        lane = writer.lane("thread", process="", pid=-1, thread="all stacks", tid=1)
        frames = StackFrames(lane, writer, limits, category=Category.PYTHON)
        at = ORIGIN
        for stack, count in sorted(counts.items()):
            frames.stand(at, stack)
            at += count * scale
        frames.stand(at, ())
        frames.finish()
        if unusable:
            writer.note("warning", f"{unusable:,} lines were left out: no count stands at the end.")
        writer.meta("clock", "none")
        writer.meta("tool", "folded stacks")
        if is_timed and scale == 1000:
            writer.note("info", f"{_TIMED} Neighbours are in the order of their names.")
            return
        unit = {10**6: "a millisecond", 10**3: "a microsecond", 1: "a nanosecond"}[scale]
        writer.note(
            "info",
            f"Folded stacks count, and have no times: {total:,} in all, one is drawn as {unit}. "
            "Neighbours are in the order of their names.",
        )


def _counted(line: str) -> tuple[str, int] | None:
    """Return the stack and the count of a line; None for another one. A regular expression would search blanks."""
    stack, *count = line.rsplit(None, 1) if line.strip() else [""]
    if not count or len(count[0]) > _LONGEST_COUNT or not (count[0].isascii() and count[0].isdecimal()):
        return None
    return stack.strip(), int(count[0])


def _is_content(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith(_COMMENT)


def _text(content: bytes) -> str:
    return content.decode("utf-8-sig", errors="replace").replace("\r", "")


PLUGIN = FoldedStacksReader()
