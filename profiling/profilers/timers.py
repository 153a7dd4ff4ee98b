"""Time and memory: what the process holds when a mark opens and when it closes.

Resident memory is read from `/proc/self/statm` (2 µs); other systems have no readings. The device's bytes come from the
caller (`profile.configure(device_bytes=...)`): this package knows no device.
"""

import os
from collections.abc import Callable

from profiling.profilers.profiler import Memory

_PAGE = os.sysconf("SC_PAGE_SIZE")


class Timers:
    """The facade itself takes the time; this adds memory."""

    name = "timers"
    records_details = True

    def __init__(self) -> None:
        self.device_bytes: Callable[[], int] | None = None
        self._statm = -1
        self._pid = 0

    def problem(self) -> str:
        """It works where the kernel tells of memory."""
        return "" if os.path.exists("/proc/self/statm") else "This system has no /proc/self/statm."  # noqa: PTH110

    def begin(self, phase: str, step: int, name: str) -> tuple[int, int]:  # noqa: ARG002
        """Read both."""
        return self._resident(), self.device_bytes() if self.device_bytes else -1

    def end(self, token: tuple[int, int]) -> Memory:
        """Read both again."""
        resident, device = token
        return Memory(
            resident_begin=resident,
            resident_end=self._resident(),
            device_begin=device,
            device_end=self.device_bytes() if self.device_bytes else -1,
        )

    def _resident(self) -> int:
        if self._pid != os.getpid():  # the file of a forked child is another one
            self._statm, self._pid = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC), os.getpid()
        return int(os.pread(self._statm, 64, 0).split(b" ", 2)[1]) * _PAGE


PLUGIN = Timers()
