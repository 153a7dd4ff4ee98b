"""The trainer as a child process: it dies with the runner, and everything it starts can be found again."""

import contextlib
import ctypes
import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import psutil

from jobs.adapters.launching import Launch
from profiling.launch_nsys import command as under_nsys

STOPPED_EXIT_CODE = 10
FAST_STOP_SECONDS = 8.0  # from the command to SIGTERM when the cluster wants the job to end (Ray kills it after 20 s)
FAST_TERM_SECONDS = 5.0
HIDDEN = ("PITWALL_TOKEN", "PITWALL_URL")  # the trainer never talks to the console

PID_FILE = "trainer.pid"
_PATH = "PYTHONPATH"
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """How the trainer ended: an exit code from 0, or minus the number of the signal that ended it."""

    code: int

    @property
    def signal_name(self) -> str:
        """The name of the signal that ended it ("SIGKILL"); a shell's 128 + n counts too. Empty if none did."""
        number = -self.code if self.code < 0 else self.code - 128
        try:
            return signal.Signals(number).name if self.code < 0 or self.code > 128 else ""
        except ValueError:
            return ""


class TrainerNotStarted(OSError):
    """The trainer's program could not be started."""


class TrainerProcess:
    """The running child. To be started from the main thread: the death of the thread that forks is what it notices."""

    def __init__(self, process: subprocess.Popen[bytes], *, pid_file: Path | None = None) -> None:
        """`pid_file` names the trainer's own process once that runs under nsys, which passes no signal on."""
        self._process, self._pid_file = process, pid_file
        self.pid = process.pid

    def poll(self) -> Exit | None:
        """Return how it ended, None while it runs."""
        code = self._process.poll()
        return None if code is None else Exit(code=code)

    def wait(self, seconds: float) -> None:
        """Wait until it has ended, but no longer than `seconds`."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)

    def terminate(self) -> None:
        """Send SIGTERM to the driver, which is what saves and ends the rest."""
        if self._process.poll() is None:
            own = self._under_nsys()
            if own is None:
                self._process.terminate()
            else:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(own, signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL to the driver and its process group."""
        if self._process.poll() is None:
            if (own := self._under_nsys()) is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(own, signal.SIGKILL)  # it leads a group of its own
            try:
                os.killpg(self.pid, signal.SIGKILL)
            except ProcessLookupError:
                self._process.kill()

    def _under_nsys(self) -> int | None:
        """Return the trainer's process where that is another than ours: it is below ours, whatever the file says."""
        if self._pid_file is None:
            return None
        try:
            pid = int(self._pid_file.read_text())
            below = {child.pid for child in psutil.Process(self.pid).children(recursive=True)}
        except (OSError, ValueError, psutil.Error):
            return None  # it was started without nsys after all, or is not there yet
        return pid if pid in below else None


def start(
    *,
    launch: Launch,
    run_dir: Path,
    environ: Mapping[str, str],
    working_dir: Path | None = None,
    variables: Mapping[str, str] | None = None,
    nsys_trace: str = "",
) -> TrainerProcess:
    """Start the trainer in its own session, its output going straight to `log/driver-0.*`, not through this process.

    It works in `working_dir`; None: where the runner does, which is where the built-in trainer's code is. A PYTHONPATH
    of the launch stands before the one that is there, and everything else of it replaces what is there. The
    `variables` that people gave the run replace both. With `nsys_trace`, what nsys is to record ("nvtx", "cuda,nvtx"),
    it is started so that nsys can, where the node has nsys.
    Raises: TrainerNotStarted.
    """
    adopt_orphans()
    env = {k: v for k, v in environ.items() if k not in HIDDEN} | dict(launch.env)
    if (first := launch.env.get(_PATH)) and environ.get(_PATH):
        env[_PATH] = f"{first}{os.pathsep}{environ[_PATH]}"
    env |= dict(variables or {})
    log_dir = run_dir / "log"
    log_dir.mkdir(parents=True, exist_ok=True)
    with (log_dir / "driver-0.stdout").open("ab") as out, (log_dir / "driver-0.stderr").open("ab") as err:
        if not nsys_trace:
            return TrainerProcess(_popen(launch.argv, env, out, err, working_dir))
        pid_file = run_dir / PID_FILE
        argv = under_nsys(launch.argv, trace=nsys_trace, pid_file=pid_file)
        return TrainerProcess(_popen(argv, env, out, err, working_dir), pid_file=pid_file)


def adopt_orphans() -> None:
    """Make processes whose parent dies children of this one, so that nothing slips out of the tree."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_with_parent(parent: int) -> None:
    """Have the kernel end this process with the thread of process `parent` that started it."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before the line above
        os._exit(1)


def _popen(
    argv: tuple[str, ...], env: Mapping[str, str], out: IO[bytes], err: IO[bytes], working_dir: Path | None
) -> subprocess.Popen[bytes]:
    parent = os.getpid()
    try:
        return subprocess.Popen(
            argv,
            env=dict(env),
            cwd=working_dir,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
            preexec_fn=lambda: end_with_parent(parent),  # safe: no other thread runs yet
        )
    except OSError as error:
        raise TrainerNotStarted(f"{argv[0]} could not be started: {error.strerror or error}.") from error


class Escalation:
    """From a polite stop to SIGTERM to SIGKILL. The clock is given in; nothing is slept."""

    def __init__(self, *, grace_seconds: float, term_seconds: float) -> None:
        self._grace = grace_seconds
        self._term = term_seconds
        self._asked_at: float | None = None
        self.level = 0  # 0 nothing, 1 asked, 2 SIGTERM sent, 3 SIGKILL sent
        self.is_asked = False  # by people or by the cluster
        self.is_fast = False
        self.is_overdue = False

    def ask(self, now: float) -> None:
        """Begin, if it has not begun."""
        self.is_asked = True
        if self._asked_at is None:
            self._asked_at = now
            self.level = 1

    def hasten(self, now: float) -> None:
        """The cluster ends this job soon: use the short waits from now on."""
        if not self.is_fast:
            self.is_asked = self.is_fast = True
            self._grace, self._term = min(self._grace, FAST_STOP_SECONDS), min(self._term, FAST_TERM_SECONDS)
            self._asked_at = now
            self.level = max(1, self.level)

    def overdue(self, now: float) -> None:
        """The trainer said that its work is over, and does not end."""
        if not self.is_overdue and self.level < 2:
            self._asked_at, self._grace, self.level = now, 0.0, 1
        self.is_overdue = True

    def at_once(self, now: float) -> None:
        """Nothing of this attempt counts any more: no time to save."""
        self.hasten(now)
        self._grace = 0.0

    def act(self, now: float, *, terminate: Callable[[], None], kill: Callable[[], None]) -> None:
        """Do what is due."""
        if self._asked_at is None:
            return
        waited = now - self._asked_at
        if self.level == 1 and waited >= self._grace:
            self.level = 2
            terminate()
        elif self.level == 2 and waited >= self._grace + self._term:
            self.level = 3
            kill()


def memory_of_tree(pid: int) -> tuple[int, int]:
    """Return the number of processes under `pid`, itself included, and the bytes of memory that they have resident."""
    try:
        root = psutil.Process(pid)
        tree = [root, *root.children(recursive=True)]
    except psutil.Error:
        return 0, 0
    rss = 0
    for process in tree:
        try:
            rss += process.memory_info().rss
        except psutil.Error:
            continue
    return len(tree), rss
