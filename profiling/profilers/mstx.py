"""MSTX ranges for Ascend NPUs. Written after the documented calls of `torch_npu.npu.mstx`; not run on Ascend.

A message outside MSPTI may have 128 bytes in older versions and 156 in newer ones, so names are cut at 128.
"""

import importlib
from functools import cache
from typing import Any

from profiling.memory_marks import MarkMemory
from profiling.profilers.profiler import range_name

MAX_BYTES = 128


class MstxMarks:
    """Ranges by number: they need no order, so threads do not disturb each other."""

    name = "mstx"
    records_details = True

    def problem(self) -> str:
        """It works where torch_npu is installed."""
        try:
            _mstx()
        except Exception as error:
            return f"torch_npu with its mstx is not usable here ({error})."
        return ""

    def begin(self, phase: str, step: int, name: str) -> Any:  # noqa: ARG002
        """Start a range; its number is what ends it."""
        message = range_name(phase, name).encode()[:MAX_BYTES].decode(errors="ignore")
        return _mstx().range_start(message)

    def end(self, token: Any) -> MarkMemory | None:
        """End it. 0 is the number of a range that nobody listens to."""
        if token:
            _mstx().range_end(token)
        return None


@cache
def _mstx() -> Any:
    return importlib.import_module("torch_npu").npu.mstx


PLUGIN = MstxMarks()
