"""Files that only grow, whole lines at a time, also when the disk is full.

A reserve of a few MiB stands in the run directory from the start. When the disk is full it is given up, so that the
runner can still write down that the disk was full.
"""

import contextlib
import os
import threading
from pathlib import Path

RESERVE_BYTES = 4 << 20


class Reserve:
    """Disk space kept back for the runner's last lines."""

    def __init__(self, path: Path, *, size: int = RESERVE_BYTES) -> None:
        self._path = path
        if not path.exists():
            with contextlib.suppress(OSError), path.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, size)

    def release(self) -> bool:
        """Give the space back to the disk; False if that was done before."""
        try:
            self._path.unlink()
        except OSError:
            return False
        return True


class AppendFile:
    """Append lines so that each call's bytes are there completely or not at all."""

    def __init__(self, path: Path, *, reserve: Reserve) -> None:
        self.path = path
        self._reserve = reserve
        self._lock = threading.Lock()
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        _drop_torn_line(self._fd)

    def append(self, data: bytes) -> None:
        """Append; gives up the reserve if the disk is full. Raises: OSError if it cannot be written even then."""
        with self._lock:
            try:
                self._append(data)
            except OSError:
                if not self._reserve.release():
                    raise
                self._append(data)

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)

    def _append(self, data: bytes) -> None:
        size = os.fstat(self._fd).st_size
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(self._fd, rest) :]
        except OSError:
            os.ftruncate(self._fd, size)
            raise


def _drop_torn_line(fd: int) -> None:
    """Cut off what a killed writer left of its last line."""
    size = os.fstat(fd).st_size
    end = size
    while end > 0:
        start = max(0, end - 65536)
        cut = os.pread(fd, end - start, start).rfind(b"\n")
        if cut >= 0:
            end = start + cut + 1
            break
        end = start
    if end != size:
        os.ftruncate(fd, end)
