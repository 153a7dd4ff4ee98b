"""Which call launched which work, in Chrome traces of AMD's older tools, which draw it as an arrow.

    rpd2tracing.py (rocmProfileData)   kind `api_op`: begins 2 us before the call ends, or with the work if that is
                                       earlier, and ends where the work begins
    rocprof (version 1 and 2)          kind `DataFlow`: begins in the middle of the call, or with the work if that is
                                       earlier, and ends (as a step, `t`) where the work begins; whole us

Source: rocmProfileData, tools/rpd2tracing.py; rocprofiler, bin/tblextr.py and bin/sqlitedb.py; and real traces of both.
"""

from collections.abc import Mapping
from typing import Any

from profiling.trace.writer import StoreWriter

_SLACK: Mapping[str, tuple[int, int]] = {"api_op": (1999, 0), "DataFlow": (999, 999)}
"""By so much later than an arrow begins its call may begin, and its work than it ends. [ns]"""
_MOST = 1_000_000


class DrawnLaunches:
    """Arrows of a trace, as they come: the begin of each before its end."""

    def __init__(self, writer: StoreWriter) -> None:
        self._writer = writer
        self._begun: dict[tuple[str, str], tuple[int, int]] = {}

    def add(self, event: Mapping[str, Any], lane: int | None, at: int) -> int | None:
        """Take in an end of an arrow in a lane (None: nothing was recorded there) at a time [Unix ns].

        Returns the lane of the call where the arrow is whole.
        """
        kind = event["cat"]
        key = kind, str(event["id"])
        before, after = _SLACK[kind]
        if event["ph"] == "s":
            if lane is not None and len(self._begun) < _MOST:
                self._begun[key] = lane, at + before
            return None
        begun = self._begun.pop(key, None)
        if begun is None or lane is None:
            return None
        self._writer.launch(*begun, lane, at, at + after)
        return begun[0]


def is_drawn(kind: object) -> bool:
    """Return True for the kind of such an arrow."""
    return kind in _SLACK
