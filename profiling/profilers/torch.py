"""`record_function` ranges, so that a torch trace names our phases; only while one is being recorded.

Outside a recording a `record_function` would cost 6 µs for nothing. torch is imported by whoever records.
"""

import sys
from typing import Any

from profiling.memory_marks import MarkMemory
from profiling.profilers.profiler import range_name


class TorchMarks:
    """Ranges of torch's own profiler."""

    name = "torch"
    records_details = True

    def __init__(self) -> None:
        self.is_recording = False  # set by profiling.recorders.torch: torch itself does not tell of all its modes

    def problem(self) -> str:
        """It needs nothing before a recording starts."""
        return ""

    def begin(self, phase: str, step: int, name: str) -> Any:  # noqa: ARG002
        """Open a range, if a torch trace is being recorded."""
        if not self.is_recording:
            return None
        mark = sys.modules["torch"].profiler.record_function(range_name(phase, name))
        mark.__enter__()
        return mark

    def end(self, token: Any) -> MarkMemory | None:
        """Close it."""
        if token is not None:
            token.__exit__(None, None, None)
        return None


PLUGIN = TorchMarks()
