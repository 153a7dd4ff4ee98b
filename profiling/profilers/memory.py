"""Memory in use, for planning: as `timers`, but freed memory goes back to the system, at once and before each phase.

So the peak of a phase is what the phase itself needed. On CPU it costs page faults: an update of the bundled
model takes nearly twice its time. It is meant for runs that measure, not for long ones.
"""

from profiling.memory_marks import MarkMemory, MemoryMarks, Opened
from profiling.process_memory import return_freed_memory, return_freed_memory_at_once


class MemoryInUse:
    """Peaks without what malloc keeps."""

    name = "memory"
    records_details = True

    def __init__(self) -> None:
        self.marks = MemoryMarks()
        self._is_set = False

    def problem(self) -> str:
        """It works where the kernel tells of memory."""
        return self.marks.problem()

    def begin(self, phase: str, step: int, name: str) -> Opened:  # noqa: ARG002
        """Give back what was freed, unless inside a phase, and read what is held."""
        if not self._is_set:
            return_freed_memory_at_once()
            self._is_set = True
        if self.marks.is_idle:
            return_freed_memory()
        return self.marks.begin()

    def end(self, token: Opened) -> MarkMemory:
        """Read again."""
        return self.marks.end(token)


PLUGIN = MemoryInUse()
