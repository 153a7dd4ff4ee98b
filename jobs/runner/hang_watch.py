"""Another trainer that makes no progress: where its processes stand, seen from outside by py-spy.

No progress is no new step for as long as with the built-in trainer (profiling/hangs.py), while its logs stand still,
too; or four times as long whatever it prints. It is reported once until the next step. Only processes on the runner's
node are seen. py-spy comes with Ray; it reads another process's memory, which a container may not allow.
"""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import psutil

from profiling.hangs import LEAST_SECONDS, hang_lines, hang_meta, patience
from profiling.stacks import grouped

LOOK_SECONDS = 5.0
ANSWER_SECONDS = 10.0  # for one process
MOST_PROCESSES = 64
NOISY = 4.0  # times the patience with a trainer that goes on printing
_LOGS = ("driver-0.stdout", "driver-0.stderr")

Threads = Mapping[str, tuple[str, ...]]


class Report(Protocol):
    """What the watch tells."""

    def say(self, text: str) -> None:
        """Say something in the run's logs."""
        ...

    def note(self, text: str, meta: Mapping[str, object]) -> None:
        """Tell something worth remembering."""
        ...


class OutsideWatch:
    """Looks at steps and logs; `processes` returns those of the attempt on this node."""

    def __init__(
        self,
        *,
        run_dir: Path,
        report: Report,
        processes: Callable[[], Sequence[psutil.Process]],
        program: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`program` is py-spy; None: that of this interpreter's environment."""
        self._logs = [run_dir / "log" / name for name in _LOGS]
        self._report, self._processes, self._clock = report, processes, clock
        self._program = program or Path(sys.executable).with_name("py-spy")
        self._seconds: list[float] = []
        self._since = self._printed_at = self._next_look = clock()
        self._step = 0
        self._printed = -1
        self._dump: threading.Thread | None = None
        self._has_reported = False

    def look_if_due(self, *, step: int) -> None:
        """Look whether there is progress; `step` is the newest step of the trainer. Stacks are read in a thread."""
        now = self._clock()
        if now < self._next_look:
            return
        self._next_look = now + LOOK_SECONDS
        if step != self._step:
            self._progress(step, now)
        if (printed := self._bytes_printed()) != self._printed:
            self._printed, self._printed_at = printed, now
        limit, waited, silent = patience(self._seconds), now - self._since, now - self._printed_at
        is_hanging = waited >= limit and (silent >= LEAST_SECONDS or waited >= NOISY * limit)
        if is_hanging and not self._has_reported:
            self._has_reported = True
            self._dump = threading.Thread(target=self._tell, args=(waited, step), name="hang watch", daemon=True)
            self._dump.start()

    def wait(self, seconds: float) -> None:
        """Wait until stacks that are being read are reported, but no longer than `seconds`."""
        if self._dump is not None:
            self._dump.join(seconds)

    def _progress(self, step: int, now: float) -> None:
        if self._step:  # the time to the first step is that of loading, too
            self._seconds = [*self._seconds, (now - self._since) / max(1, step - self._step)][-50:]
        if self._has_reported:
            self._report.note(f"The run goes on after {now - self._since:.0f} s", {})
        self._step, self._since, self._has_reported = step, now, False

    def _bytes_printed(self) -> int:
        sizes = 0
        for path in self._logs:
            try:
                sizes += path.stat().st_size
            except OSError:  # not there yet
                continue
        return sizes

    def _tell(self, waited: float, step: int) -> None:
        try:
            by_process, silent = self._ask()
        except Exception as error:  # whoever watches must not end what it watches
            self._report.say(f"No progress for {waited:.0f} s; its processes cannot be read: {error}")
            return
        groups = grouped(by_process)
        self._report.say("\n".join(hang_lines(groups, silent, waited)))
        text = f"No progress for {waited:.0f} s after step {step}: stacks of all processes are in the runner's log"
        self._report.note(text, {"hang": hang_meta(groups, silent, waited)})

    def _ask(self) -> tuple[dict[str, Threads], list[str]]:
        """Return the stacks of the attempt's Python processes by name, and why others gave none."""
        by_process: dict[str, Threads] = {}
        silent = []
        for process in [one for one in self._processes() if _is_python(one)][:MOST_PROCESSES]:
            name = f"{_name(process)}{', stopped by a signal' if _is_stopped(process.pid) else ''}"
            try:
                by_process[name] = dump(process.pid, program=self._program)
            except (OSError, ValueError, subprocess.SubprocessError) as error:
                silent.append(f"{name} ({error})")
        return by_process, silent


def dump(pid: int, *, program: Path) -> Threads:
    """Return the stack of each thread of a Python process by its name, the outermost call first.

    One that stands still already is read as it is: py-spy cannot stop it, and fails.

    Raises: ValueError with py-spy's reason; OSError without py-spy; subprocess.TimeoutExpired.
    """
    how = ("--nonblocking",) if _is_stopped(pid) else ()
    done = subprocess.run(
        [program, "dump", "--json", *how, "--pid", str(pid)], capture_output=True, timeout=ANSWER_SECONDS, check=False
    )
    if done.returncode:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise ValueError(next((line.removeprefix("Error: ") for line in lines if line), f"exit code {done.returncode}"))
    threads = {}
    for thread in json.loads(done.stdout):
        calls = (
            f"{one['name']} ({one['short_filename'] or one['filename']}:{one['line']})" for one in thread["frames"]
        )
        threads[str(thread["thread_name"] or f"thread {thread['thread_id']}")] = tuple(calls)[::-1]
    return threads


def _is_python(process: psutil.Process) -> bool:
    try:
        return Path(process.exe()).name.startswith("python")
    except (psutil.Error, OSError):
        return False


def _is_stopped(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
    except psutil.Error:
        return False


def _name(process: psutil.Process) -> str:
    """Return what a log calls a process: Ray's title of a worker, else the module that it runs; and its pid."""
    try:
        words = process.cmdline()
    except (psutil.Error, OSError):
        words = []
    if words and words[0].startswith("ray::"):
        return f"{words[0].removeprefix('ray::')} {process.pid}"
    module = words[words.index("-m") + 1] if "-m" in words[:-1] else Path(words[1]).name if len(words) > 1 else "python"
    return f"{module} {process.pid}"
