"""Stacks of Python's threads in this process, as lines that can be compared: who stands where.

A process that hangs in a collective still answers, because such calls let go of Python's lock; one that does not answer
at all is told as such by whoever asked.
"""

import sys
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import FrameType

MOST_FRAMES = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class StackGroup:
    """A stack and the processes that have it, the outermost call first."""

    stack: tuple[str, ...]
    where: tuple[str, ...]


MAIN = "MainThread"
"""What the thread is called that does the work of a process."""


def stacks(*, without: Iterable[int] = (), main: int = 0) -> dict[str, tuple[str, ...]]:
    """Return the stack of every thread by its name, the outermost call first; `without` are idents to leave out.

    `main` is the ident of the thread that does the work, where that is not the interpreter's own main thread, which
    then only waits.
    """
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    if main and main != threading.main_thread().ident:
        names[main] = MAIN
        without = (*without, threading.main_thread().ident or 0)
    skipped = set(without)
    return {
        names.get(ident, f"thread {ident}"): lines(frame)
        for ident, frame in sys._current_frames().items()
        if ident not in skipped
    }


def lines(frame: FrameType | None) -> tuple[str, ...]:
    """Return the calls that led to a frame, the outermost first, as `function (file:line)`."""
    frames: list[str] = []
    while frame is not None and len(frames) < MOST_FRAMES:
        code = frame.f_code
        name = getattr(code, "co_qualname", code.co_name)  # Python 3.10, as trainers may have it, knows no classes
        frames.append(f"{name} ({_short(code.co_filename)}:{frame.f_lineno})")
        frame = frame.f_back
    return tuple(reversed(frames))


def grouped(stacks_of: Mapping[str, Mapping[str, tuple[str, ...]]]) -> list[StackGroup]:
    """Return equal stacks together, those of most processes first; keys are processes, and in them threads."""
    by_stack: dict[tuple[str, ...], list[str]] = {}
    for process, threads in stacks_of.items():
        for thread, stack in threads.items():
            where = process if thread == MAIN else f"{process} {thread}"
            by_stack.setdefault(stack, []).append(where)
    groups = [StackGroup(stack=stack, where=tuple(sorted(where))) for stack, where in by_stack.items()]
    return sorted(groups, key=lambda group: (-len(group.where), group.where))


def _short(path: str) -> str:
    """Return the end of a path that says enough: from the package on, or its last two parts."""
    for mark in ("/site-packages/", "/lib/python3."):
        if mark in path:
            return path.rpartition(mark)[2]
    return "/".join(path.rsplit("/", 2)[-2:])
