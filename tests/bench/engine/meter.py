"""CPU time and memory of a tree of processes, read once a second from /proc, and the CPU time of the whole machine.

One reading takes a few milliseconds of a core. Memory in which shared pages count once costs more, so it is read every
tenth time.
"""

import os
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

EVERY_SECONDS = 1.0
SHARED_EVERY = 10  # readings
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStat:
    """What the kernel says of a process: its parent, its own CPU seconds, its resident bytes, and when it began."""

    parent: int
    cpu_seconds: float
    resident_bytes: int
    start: int


class ProcessMeter:
    """Read the tree of processes below `roots` until the block ends. Times are Unix seconds."""

    def __init__(self, roots: Callable[[], Iterable[int]]) -> None:
        self._roots = roots
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True, name="process-meter")
        self._cpu: dict[tuple[int, int], float] = {}
        self.times: list[float] = []
        self.own_seconds: list[float] = []
        self.machine_seconds: list[float] = []
        self.most_resident_bytes = 0
        self.most_shared_once_bytes = 0

    def __enter__(self) -> "ProcessMeter":
        self._read(with_shared=False)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join()

    def own_between(self, begin: float, end: float) -> float:
        """Return the CPU seconds of the tree between two moments."""
        return value_at(end, self.times, self.own_seconds) - value_at(begin, self.times, self.own_seconds)

    def machine_between(self, begin: float, end: float) -> float:
        """Return the CPU seconds of everything on the machine between two moments."""
        return value_at(end, self.times, self.machine_seconds) - value_at(begin, self.times, self.machine_seconds)

    def _follow(self) -> None:
        number = 0
        while not self._ended.wait(EVERY_SECONDS):
            number += 1
            self._read(with_shared=number % SHARED_EVERY == 0)
        self._read(with_shared=False)

    def _read(self, *, with_shared: bool) -> None:
        stats = read_stats()
        members = below(self._roots(), {pid: stat.parent for pid, stat in stats.items()})
        for pid in members:
            self._cpu[pid, stats[pid].start] = stats[pid].cpu_seconds  # what has ended keeps its last reading
        self.times.append(time.time())
        self.own_seconds.append(sum(self._cpu.values()))
        self.machine_seconds.append(busy_seconds())
        resident = sum(stats[pid].resident_bytes for pid in members)
        self.most_resident_bytes = max(self.most_resident_bytes, resident)
        if with_shared:
            shared_once = sum(shared_once_bytes(pid) for pid in members)
            self.most_shared_once_bytes = max(self.most_shared_once_bytes, shared_once)


def value_at(moment: float, times: Sequence[float], values: Sequence[float]) -> float:
    """Return what a counter stood at, on the straight line between its readings; outside of them the nearest one."""
    after = bisect_right(times, moment)
    if after == 0:
        return values[0]
    if after == len(times):
        return values[-1]
    share = (moment - times[after - 1]) / (times[after] - times[after - 1])
    return values[after - 1] + share * (values[after] - values[after - 1])


def below(roots: Iterable[int], parents: Mapping[int, int]) -> set[int]:
    """Return the processes among `parents` that are one of the roots or descend from one."""
    children: dict[int, list[int]] = {}
    for pid, parent in parents.items():
        children.setdefault(parent, []).append(pid)
    members: set[int] = set()
    waiting = [pid for pid in roots if pid in parents]
    while waiting:
        pid = waiting.pop()
        if pid not in members:
            members.add(pid)
            waiting += children.get(pid, [])
    return members


def read_stats() -> dict[int, ProcessStat]:
    """Return every process that there is now."""
    stats = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                text = (entry / "stat").read_text()
            except OSError:  # it has ended meanwhile
                continue
            fields = text.rpartition(")")[2].split()  # from the third field of proc_pid_stat(5) on
            stats[int(entry.name)] = ProcessStat(
                parent=int(fields[1]),
                cpu_seconds=(int(fields[11]) + int(fields[12])) / _TICKS,
                resident_bytes=int(fields[21]) * _PAGE_BYTES,
                start=int(fields[19]),
            )
    return stats


def busy_seconds() -> float:
    """Return the CPU seconds that all cores have worked since the machine started."""
    user, nice, system, _idle, _wait, irq, soft_irq, steal = (
        int(word) for word in Path("/proc/stat").read_text().split(maxsplit=9)[1:9]
    )
    return (user + nice + system + irq + soft_irq + steal) / _TICKS


def shared_once_bytes(pid: int) -> int:
    """Return the memory of a process in which a page that n processes map counts an nth (PSS); 0 if it is gone."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:")), 0)
