"""Stacks that follow each other as events: a frame lasts as long as it is at the same place of the stack."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from profiling.trace.category import Category
from profiling.trace.limits import Limits
from profiling.trace.writer import StoreWriter

Ints = npt.NDArray[np.int64]

ORIGIN = 946_684_800 * 10**9
"""2000-01-01 in Unix ns: from there on lies what has no clock."""


DEEPEST = 2048
"""Frames of a stack; Python's own limit is 1000. What lies deeper is left out, or a short file would be many events."""


_LONGEST = 5


def until(times: Ints) -> Ints:
    """Return until when each of a thread's sampled stacks stands, by the times of the samples [n], in ns: until the
    next one, or as many times the median distance of two as _LONGEST says, whichever comes first.
    """
    usual = int(np.median(np.diff(times))) if len(times) > 1 else 0
    return np.minimum(np.append(times[1:], times[-1:] + usual), times + _LONGEST * max(usual, 1))


class StackFrames:
    """The frames of one lane, by whole stacks (`stand`) or one by one (`open`, `close`), in the order of time.

    `finish` is called last.
    """

    def __init__(self, lane: int, writer: StoreWriter, limits: Limits, *, category: Category) -> None:
        self._lane = lane
        self._writer = writer
        self._most = limits.events
        self._category = category
        self._open: list[tuple[str, int]] = []
        self._too_deep = 0
        self._at = 0

    def open(self, at: int, name: str) -> None:
        """Open a frame inside what is open; one deeper than DEEPEST is only counted."""
        self._at = at
        if len(self._open) < DEEPEST:
            self._open.append((name, at))
        else:
            self._too_deep += 1

    def close(self, at: int) -> None:
        """Close the innermost frame."""
        self._at = at
        if self._too_deep:
            self._too_deep -= 1
        elif self._open:
            self._close(at, len(self._open) - 1)

    def stand(self, at: int, stack: Sequence[str]) -> None:
        """Take a stack, the outermost frame first, from `at` [Unix ns] on, until the next call."""
        stack = stack[:DEEPEST]
        shared = 0
        for (name, _), other in zip(self._open, stack, strict=False):
            if name != other:
                break
            shared += 1
        self._close(at, shared)
        self._open += [(name, at) for name in stack[shared:]]
        self._at = at

    def finish(self) -> None:
        """Close what is open."""
        self._close(self._at, 0)
        if self._writer.events >= self._most:
            sentence = f"Only the first {self._writer.events:,} events were read; the rest is left out."
            self._writer.note("warning", sentence)

    def _close(self, at: int, shared: int) -> None:
        closed, self._open = self._open[shared:], self._open[:shared]
        for name, begin in closed:  # the outer frame first: of two that last alike it is drawn above
            if self._writer.events < self._most:
                self._writer.add(self._lane, begin, at - begin, self._writer.name(name), self._category)
