"""NVTX ranges in the domain `pitwall`: what nsys shows beside kernels. A range's payload is its step.

Version 0.2.11 of the package writes ranges that every nsys reads; see requirements. Names are few and interned, so the
step is the payload and a range around the phases (profiling.recorders.nsys), never part of a name.
"""

import os
from functools import cache
from typing import Any

from profiling.memory_marks import MarkMemory
from profiling.profilers.profiler import range_name

DOMAIN = "pitwall"


class NvtxMarks:
    """Push and pop on the calling thread."""

    name = "nvtx"
    records_details = True

    def problem(self) -> str:
        """It works where the package is installed."""
        try:
            package()
        except ImportError as error:
            return f"The package nvtx cannot be used here ({error}). Install nvtx==0.2.11."
        return ""

    def begin(self, phase: str, step: int, name: str) -> Any:
        """Push a range."""
        package().push_range(range_name(phase, name), domain=DOMAIN, payload=step)

    def end(self, token: Any) -> MarkMemory | None:  # noqa: ARG002
        """Pop it."""
        package().pop_range(domain=DOMAIN)
        return None


def has_listener() -> bool:
    """Return True if something has entered this process that takes NVTX ranges in, as nsys does."""
    return bool(os.environ.get("NVTX_INJECTION64_PATH"))


@cache
def package() -> Any:
    """Return the package `nvtx`. Raises: ImportError."""
    import nvtx  # type: ignore[import-untyped]  # it has no types

    return nvtx


PLUGIN = NvtxMarks()
