"""Stacks that follow each other as events: a frame lasts as long as it is at the same place of the stack."""

from collections.abc import Sequence

from profiling.trace.category import Category
from profiling.trace.limits import Limits
from profiling.trace.writer import StoreWriter

ORIGIN = 946_684_800 * 10**9
"""2000-01-01 in Unix ns: from there on lies what has no clock."""


class StackFrames:
    """The frames of one lane. `stand` is called in the order of time, `finish` last."""

    def __init__(self, lane: int, writer: StoreWriter, limits: Limits, *, category: Category) -> None:
        self._lane = lane
        self._writer = writer
        self._most = limits.events
        self._category = category
        self._open: list[tuple[str, int]] = []
        self._at = 0

    def stand(self, at: int, stack: Sequence[str]) -> None:
        """Take a stack, the outermost frame first, from `at` [Unix ns] on, until the next call."""
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
