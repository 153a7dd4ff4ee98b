"""The contract of a backend of marks, and the lookup in its folder: one file a backend, found by its name.

A backend sees each mark open and close. What it raises never reaches training: the facade (profiling.profile) switches
it off with one line in the log.
"""

from typing import Any, Protocol, cast

from profiling import plugins
from profiling.memory_marks import MarkMemory


class Profiler(Protocol):
    """A backend of marks. One object serves all threads of a process.

    Its file is read in every process: it imports no library before a mark needs it, and is as good where the library is
    missing, which `problem` says. While a backend is off, nothing of it is called.
    """

    name: str
    """That of its file."""
    records_details: bool
    """Whether marks inside phases become spans while this backend is on."""

    def problem(self) -> str:
        """Return why it cannot work in this process, in a sentence, "" if it can."""

    def begin(self, phase: str, step: int, name: str) -> Any:
        """Open a mark on the calling thread; what it returns is handed to `end`. Marks of a thread nest.

        What it opens in a library it calls `range_name(phase, name)`.
        """

    def end(self, token: Any) -> MarkMemory | None:
        """Close the mark, also where what it wrapped raised; return what was measured over it, if this one measures."""


def load_profiler(name: str) -> Profiler:
    """Return the backend of that name. Raises: UnknownPlugin, naming those there are."""
    return cast(Profiler, plugins.load("profiling.profilers", name))


def range_name(phase: str, name: str) -> str:
    """Return how a mark is called in traces: `update`, or `update/forward` for a detail of it."""
    return f"{phase}/{name}" if name else phase
