"""How much of a node's CPU cores the processes of a run take: what is left of its use is other programs'."""

import contextlib
import time
from collections.abc import Callable

import psutil

RECHECK_SECONDS = 30.0
"""So long a process is asked again whose it is: between its fork and its start it has its parent's environment."""


class RunCpuTime:
    """Counts the CPU time of everything that has the run's mark (PITWALL_RUN) in its environment.

    The time of a child that was waited for is in its parent's count, so what ends between two readings is not lost
    unless nobody of the run waited for it.
    """

    def __init__(self, *, run: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._run, self._clock = run, clock
        self._own: dict[int, psutil.Process] = {}
        self._others: dict[int, float] = {}  # pid -> when it was first seen
        self._seconds, self._read_at = self._total(), self._clock()

    def cores(self) -> float:
        """Return how many cores' worth of CPU time the run took since the call before, on average."""
        seconds, now = self._total(), self._clock()
        cores = max(0.0, seconds - self._seconds) / max(now - self._read_at, 1e-3)
        self._seconds, self._read_at = seconds, now
        return cores

    def _total(self) -> float:
        self._refresh()
        total = 0.0
        for process in self._own.values():
            with contextlib.suppress(psutil.Error):
                total += sum(process.cpu_times()[:4])  # user, system, and those of children that were waited for
        return total

    def _refresh(self) -> None:
        now, pids = self._clock(), psutil.pids()
        alive = set(pids)
        self._own = {pid: process for pid, process in self._own.items() if pid in alive}
        self._others = {pid: seen for pid, seen in self._others.items() if pid in alive}
        for pid in pids:
            if pid in self._own or now - self._others.get(pid, now) > RECHECK_SECONDS:
                continue
            with contextlib.suppress(psutil.Error, OSError):
                process = psutil.Process(pid)
                if process.environ().get("PITWALL_RUN") == self._run:
                    self._own[pid] = process
                    self._others.pop(pid, None)
                    continue
            self._others.setdefault(pid, now)
