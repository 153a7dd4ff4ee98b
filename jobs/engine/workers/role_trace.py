"""The trace of a role that traces processes of its own: begun and ended between two calls of the role.

Its library takes one request at a time. A call may be a whole rollout, so nobody waits for its end without a limit.
"""

import contextlib
import threading
from pathlib import Path
from typing import Any

IDLE_SECONDS = 60.0  # for the call under way to end; the driver waits longer
END_IDLE_SECONDS = 120.0  # the same at the end of a recording: what was traced would be lost


class RoleTrace:
    """At most one trace at a time. `calls` is the lock that is held by the call under way."""

    def __init__(self, calls: threading.Lock) -> None:
        self._calls = calls
        self._target: Any = None
        self._stem = Path()
        self.is_recording = False
        self._is_overdue = False  # it was to end in the middle of a call, and nobody waits for it any more

    def start(self, target: Any, stem: Path) -> str:
        """Begin to trace the role's object `target`; return why not, "" if it has begun."""
        if not self._calls.acquire(timeout=IDLE_SECONDS):
            return f"It is in the middle of a call that takes more than {IDLE_SECONDS:.0f} s. Record whole steps."
        try:
            self.between_calls()
            target.start_trace()
        finally:
            self._calls.release()
        self._target, self._stem, self.is_recording = target, stem, True
        return ""

    def stop(self) -> tuple[list[Path], str]:
        """End it; return its files, or why there are none."""
        self.is_recording = False
        if not self._calls.acquire(timeout=END_IDLE_SECONDS):
            self._is_overdue = True
            return [], (
                f"It was in the middle of a call for more than {END_IDLE_SECONDS:.0f} s when the recording was to end, "
                "so its trace is dropped. Record whole steps."
            )
        try:
            return self._target.stop_trace(self._stem), ""
        finally:
            self._calls.release()

    def between_calls(self) -> None:
        """End a trace that nobody waits for any more: its processes would trace on for ever. Hold `calls`."""
        if not self._is_overdue:
            return
        self._is_overdue = False
        with contextlib.suppress(Exception):  # the capture has failed already, and training goes on
            for path in self._target.stop_trace(self._stem):
                path.unlink(missing_ok=True)
