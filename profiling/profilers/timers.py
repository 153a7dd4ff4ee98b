"""Time and memory: what the process holds when a mark opens, when it closes, and at most in between.

The facade itself takes the time. The peak of resident memory is what the system gave the process: it holds what malloc
keeps of earlier phases (the backend `memory` does without that).
"""

from profiling.memory_marks import MarkMemory, MemoryMarks, Opened


class Timers:
    """The facade itself takes the time; this adds memory."""

    name = "timers"
    records_details = True

    def __init__(self) -> None:
        self.marks = MemoryMarks()

    def problem(self) -> str:
        """It works where the kernel tells of memory."""
        return self.marks.problem()

    def begin(self, phase: str, step: int, name: str) -> Opened:  # noqa: ARG002
        """Read what is held."""
        return self.marks.begin()

    def end(self, token: Opened) -> MarkMemory:
        """Read again."""
        return self.marks.end(token)


PLUGIN = Timers()
