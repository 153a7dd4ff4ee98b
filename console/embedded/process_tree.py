"""Who is whose child on this Linux machine, and how a child dies with its parent. Standard library only."""

import contextlib
import ctypes
import os
import signal
import time
from collections import defaultdict
from pathlib import Path

PR_SET_PDEATHSIG = 1  # linux/prctl.h
PR_SET_CHILD_SUBREAPER = 36

_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent(signal_number: int, parent_pid: int) -> None:
    """Make the kernel send this process a signal when its parent dies; exit at once if it is dead already.

    For `preexec_fn`. The signal also comes when the parent's *thread* that forked ends, so fork from the main thread.
    """
    _libc.prctl(PR_SET_PDEATHSIG, signal_number, 0, 0, 0)
    if os.getppid() != parent_pid:
        os._exit(1)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent dies, so that none can slip away."""
    if _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "cannot become the reaper of orphaned processes")


def parent_of(pid: int) -> int | None:
    """Return the parent's process id, or None if there is no such process or it has ended (a zombie)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    state, parent = stat.rpartition(")")[2].split()[:2]  # the name before it may hold spaces and brackets
    return None if state in "ZX" else int(parent)


def descendants(pid: int, *, spare: frozenset[int] = frozenset()) -> list[int]:
    """Return the process ids of all living descendants of `pid`, nearest first, without `spare` and what is below them.

    One pass over /proc answers for all: a process that is being forked meanwhile is found below its parent, or not.
    """
    children: dict[int, list[int]] = defaultdict(list)
    for candidate in _pids():
        parent = parent_of(candidate)
        if parent is not None:
            children[parent].append(candidate)
    pids, frontier = [], [pid]
    while frontier:
        frontier = [child for parent in frontier for child in children[parent] if child not in spare]
        pids += frontier
    return pids


def kill_descendants(*, spare: frozenset[int] = frozenset(), seconds: float = 10.0) -> list[int]:
    """Kill every descendant of this process that is not in `spare` nor below one of them; return those still there.

    Needs `adopt_orphans`: then what a killed process leaves behind becomes our child and is found in the next round.
    """
    deadline = time.monotonic() + seconds
    while True:
        left = descendants(os.getpid(), spare=spare)
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        _reap(spare)
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.02)


def _reap(spare: frozenset[int]) -> None:
    """Collect the exit status of ended children, but not of `spare`, which somebody else waits for."""
    for pid in _pids():
        if pid not in spare:
            with contextlib.suppress(ChildProcessError, OSError):
                os.waitpid(pid, os.WNOHANG)


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
