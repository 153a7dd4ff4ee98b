"""What this process holds: resident memory and bytes of its device, now and at most since a moment.

Resident memory is read from `/proc/self/statm` (1 µs), its high-water mark with getrusage (0.7 µs); writing "5" to
`/proc/self/clear_refs` sets that mark back to what is resident now (0.5 µs; Linux 4.0, man proc_pid_clear_refs).
getrusage never says less than what the process held before it became this program, so near there the mark is read from
`/proc/self/status` (10 µs).
Where a kernel has no such file the peak is -1, not measured. The device is told by the caller: this package knows none.
"""

import contextlib
import ctypes
import os
import threading
from collections.abc import Callable
from resource import RUSAGE_SELF, getrusage
from typing import Protocol

NOT_MEASURED = -1
_PAGE = os.sysconf("SC_PAGE_SIZE")
_PROC = "/proc/self"
_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD = -3, -1  # of mallopt, malloc.h
_WHOLE_PAGES = 64 << 10  # blocks from this size on are returned to the system as soon as they are freed


class DeviceMemory(Protocol):
    """What a device's allocator says of this process, within microseconds."""

    def allocated_bytes(self) -> int:
        """Return what is held now; -1 where there is no device."""

    def peak_bytes(self) -> tuple[int, int]:
        """Return the most that was held, and the most that was reserved, since `reset_peak`; -1 where not measured."""

    def reset_peak(self) -> None:
        """Let the peaks begin at what is held now."""


class ProcessFiles:
    """The files of /proc of this process, open once; a forked child opens its own."""

    def __init__(self) -> None:
        self._is_open = False
        self._floor = 0
        self._statm = self._status = self._clear = NOT_MEASURED
        os.register_at_fork(after_in_child=self._forget)

    def resident_bytes(self) -> int:
        """Return what is resident now. Raises: OSError where the kernel does not tell."""
        if not self._is_open:
            self._open()
        return int(os.pread(self._statm, 64, 0).split(b" ", 2)[1]) * _PAGE

    def peak_bytes(self) -> int:
        """Return the most that was resident since `reset_peak`; -1 where that cannot be measured."""
        if not self._is_open:
            self._open()
        if self._clear < 0:
            return NOT_MEASURED
        peak = getrusage(RUSAGE_SELF).ru_maxrss << 10
        if peak > self._floor:
            return peak
        line = os.pread(self._status, 4096, 0).partition(b"\nVmHWM:")[2].lstrip()
        return int(line.split(b" ", 1)[0]) << 10 if line else NOT_MEASURED

    def reset_peak(self) -> None:
        """Let the peak begin at what is resident now."""
        if not self._is_open:
            self._open()
        if self._clear >= 0:
            os.write(self._clear, b"5")

    def _open(self) -> None:
        self._statm = os.open(f"{_PROC}/statm", os.O_RDONLY | os.O_CLOEXEC)
        self._status = os.open(f"{_PROC}/status", os.O_RDONLY | os.O_CLOEXEC)
        self._clear = NOT_MEASURED
        with contextlib.suppress(OSError):  # a sandbox without it, or a kernel that takes no "5"
            clear = os.open(f"{_PROC}/clear_refs", os.O_WRONLY | os.O_CLOEXEC)
            os.write(clear, b"5")
            self._clear = clear
            self._floor = getrusage(RUSAGE_SELF).ru_maxrss << 10
        self._is_open = True

    def _forget(self) -> None:
        self._is_open = False


FILES = ProcessFiles()


def resident_bytes() -> int:
    """Return what this process holds resident now; -1 where the kernel does not tell."""
    try:
        return FILES.resident_bytes()
    except OSError:
        return NOT_MEASURED


Peaks = tuple[int, ...]


class HighWater:
    """The most that was held since each of several moments, from a meter that remembers one moment alone.

    Before the meter is set back, what it says counts for every stretch that is open: stretches may nest, and overlap
    on several threads.
    """

    def __init__(self, *, read: Callable[[], Peaks], reset: Callable[[], None]) -> None:
        self._read, self._reset = read, reset
        self._open: dict[int, list[Peaks]] = {}
        self._lock = threading.Lock()

    @property
    def is_idle(self) -> bool:
        """Whether no stretch is open."""
        return not self._open

    def begin(self) -> list[Peaks]:
        """Open a stretch."""
        stretch: list[Peaks] = []
        with self._lock:
            if self._open:
                self._count(self._read())
            self._reset()
            self._open[id(stretch)] = stretch
        return stretch

    def end(self, stretch: list[Peaks]) -> Peaks:
        """Close a stretch; return the most of each quantity that was held within it, -1 for one not measured."""
        with self._lock:
            now = self._read()
            if len(self._open) > 1 or stretch:
                self._count(now)
                now = stretch[0]
            del self._open[id(stretch)]
        return now

    def _count(self, now: Peaks) -> None:
        for stretch in self._open.values():
            stretch[:] = [tuple(map(max, stretch[0], now)) if stretch else now]


def return_freed_memory() -> None:
    """Give memory that was freed back to the system, so that what is resident is what is in use (glibc; else nothing).

    5 to 7 ms after an update of the bundled model, and pages are faulted in again when they are needed.
    """
    _libc_call("malloc_trim", 0)


def return_freed_memory_at_once() -> None:
    """Let every freed block of 64 KiB and more go back to the system from now on (glibc; else nothing)."""
    _libc_call("mallopt", _M_MMAP_THRESHOLD, _WHOLE_PAGES)
    _libc_call("mallopt", _M_TRIM_THRESHOLD, _WHOLE_PAGES)


def _libc_call(name: str, *arguments: int) -> None:
    with contextlib.suppress(OSError, AttributeError):  # another libc has neither
        getattr(ctypes.CDLL(None), name)(*arguments)
