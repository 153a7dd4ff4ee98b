"""Find every process of an attempt on this node, end what is left, and prove that nothing is.

Three nets, because each has holes: descendants (orphans are adopted by the runner), the trainer's session, and the
marks PITWALL_RUN and PITWALL_ATTEMPT in the environment, which Ray hands to the workers of the job.
"""

import contextlib
import os
import socket
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import NotRequired, TypedDict

import psutil

from jobs.runner.nodes.devices import device_bytes_of
from profiling.captures.capture import leaving_sign

TERM_SECONDS = 3.0
KILL_SECONDS = 5.0
KILL_ROUNDS = 5


class Cleanup(TypedDict):
    """The clean-up report, `meta` of a terminal event: what is left of an attempt, and where it was looked for."""

    processes_left: int
    device_bytes_left: int | None  # None: a node has devices that cannot be read
    ended: list[str]  # what had to be ended
    nodes: list[str]
    checked_at: str  # ISO 8601
    nodes_unchecked: NotRequired[list[str]]


def find(*, run: str, attempt: int, session: int | None, helper: int | None = None) -> list[psutil.Process]:
    """Return the processes of the attempt, without the caller, its ancestors and the Ray job's own supervision.

    `helper` is a child that works for the caller (`jobs.runner.nodes.remote_nodes`), so no part of what is left.
    """
    me = psutil.Process()
    children = {process.pid for process in me.children(recursive=True)} - {helper}
    spared = (_supervision(me) - children) | {helper}
    orphans = []
    for process in psutil.process_iter():
        if process.pid in spared or process.pid == me.pid:
            continue
        if process.pid in children or _session(process.pid) == session or _is_marked(process, run, attempt):
            with contextlib.suppress(psutil.Error):
                if process.status() != psutil.STATUS_ZOMBIE:
                    orphans.append(process)
    return orphans


def kill_orphans(
    *,
    run: str,
    attempt: int,
    session: int | None = None,
    helper: int | None = None,
    leave_seconds: float,
    write_seconds: float = 0.0,
    recordings: Path | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Cleanup:
    """Wait for the attempt's processes to leave, end those that do not, and return the clean-up report.

    Those of nsys get `write_seconds` more once the others are gone: they write the report of what was recorded then.
    So do workers that write their trace on the way out, as signs in the folder `recordings` say.
    `session` is that of the trainer, `helper` as in `find`.
    """
    by_pid: dict[int, psutil.Process] = {}
    ended: list[str] = []

    def look() -> list[psutil.Process]:
        orphans = find(run=run, attempt=attempt, session=session, helper=helper)
        by_pid.update({process.pid: process for process in orphans})
        return orphans

    if write_seconds:
        _end(
            lambda: [process for process in look() if not _is_writer(process, recordings)], leave_seconds, clock, ended
        )
    left = _end(look, write_seconds or leave_seconds, clock, ended)
    _reap()
    return {
        "processes_left": len(left),
        "device_bytes_left": device_bytes_of(list(by_pid)),
        "ended": ended[:50],
        "nodes": [socket.gethostname()],
        "checked_at": datetime.now(UTC).isoformat(timespec="milliseconds"),
    }


def _end(
    look: Callable[[], list[psutil.Process]], seconds: float, clock: Callable[[], float], ended: list[str]
) -> list[psutil.Process]:
    """Give what `look` finds `seconds` to leave, then end it; tell that in `ended`, and return what is still there."""
    waiting = _wait_gone(look, seconds, clock)
    ended += [_describe(process) for process in waiting]
    for process in waiting:
        with contextlib.suppress(psutil.Error):
            process.terminate()
    left = _wait_gone(look, TERM_SECONDS, clock) if waiting else []
    for _ in range(KILL_ROUNDS):  # what another has started meanwhile (nsys its worker) was not among those before
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        left = _wait_gone(look, KILL_SECONDS / KILL_ROUNDS, clock) if left else []
    return left


def _wait_gone(
    look: Callable[[], list[psutil.Process]], seconds: float, clock: Callable[[], float]
) -> list[psutil.Process]:
    """Return what is still there after at most `seconds`; new processes that appear meanwhile count too."""
    deadline = clock() + seconds
    while True:
        _reap()  # who waits for a process takes one that nobody has collected for alive
        alive = look()
        rest = deadline - clock()
        if not alive or rest <= 0:
            return alive
        psutil.wait_procs(alive, timeout=min(rest, 0.25))


def _supervision(me: psutil.Process) -> set[int]:
    """Return the ancestors of this process, and what the Ray job supervisor started besides it."""
    spared = {me.pid}
    with contextlib.suppress(psutil.Error):
        for ancestor in me.parents():
            spared.add(ancestor.pid)
            if "JobSupervisor" in " ".join(ancestor.cmdline()):
                spared |= {process.pid for process in ancestor.children(recursive=True)}
    return spared


def _session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except OSError:
        return -1


def _is_marked(process: psutil.Process, run: str, attempt: int) -> bool:
    try:
        env: Mapping[str, str] = process.environ()
    except (psutil.Error, OSError):
        return False
    if env.get("PITWALL_ANSWER") or env.get("PITWALL_MERGE"):
        return False  # short jobs that were asked for of a run, and are not of its attempt
    if env.get("PITWALL_RUN") != run or env.get("PITWALL_ATTEMPT") != str(attempt):
        return False
    return not _is_supervisor(process)


def _is_writer(process: psutil.Process, recordings: Path | None) -> bool:
    """Return True for a worker that leaves and writes, and for nsys: its command, its agent, what makes the report."""
    if recordings is not None and leaving_sign(recordings, process.pid).exists():
        return True
    try:
        return Path(process.exe()).name.startswith(("nsys", "Qdstrm"))
    except (psutil.Error, OSError):
        return False


def _is_supervisor(process: psutil.Process) -> bool:
    """Another job of this attempt (a clean-up, one that is being submitted) is supervised by Ray, not left over."""
    with contextlib.suppress(psutil.Error):
        return "JobSupervisor" in " ".join(process.cmdline())
    return False


def _describe(process: psutil.Process) -> str:
    try:
        return f"{process.pid} {' '.join(process.cmdline())[:120] or process.name()}"
    except psutil.Error:
        return str(process.pid)


def _reap() -> None:
    """Collect adopted children that have ended; the trainer itself was collected by its owner."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
