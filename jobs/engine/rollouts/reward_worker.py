"""One process of a reward pool, seen from the run: what is sent to it, what it answers, and how it ends."""

import contextlib
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Literal

from jobs.catalog.spec.reward_parts import TOKEN_PREFIX
from jobs.engine.rollouts.reward import FileLimits
from jobs.engine.rollouts.reward_process import UP

_DUMP_SECONDS = 10.0
_READ_BYTES = 65536
_MOST_UNREAD_BYTES = 1 << 20  # of a reply; those that are meant are short
_MOST_ERROR_BYTES = 1 << 20  # of what the code has printed: a run scores for days
_SECRETS = ("PITWALL_TOKEN", "RAY_AUTH_TOKEN", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")  # what scoring has no use for
# Hashes of texts differ between processes unless told otherwise, and with them the order of a set: what a completion
# earns must not depend on which process scores it.
_SAME_EVERYWHERE = {"PYTHONHASHSEED": "0"}


_UNLIMITED = FileLimits()


def _is_secret(name: str) -> bool:
    return name in _SECRETS or name.startswith(TOKEN_PREFIX)


class RewardWorker:
    """A process that loads a reward's source and then scores one completion after the other.

    It is `starting` until Python is up, `loading` until the source is executed, then `idle` or `scoring` the completion
    with the batch's `index`, `since` then. `deadline` is when a state has lasted too long; both in monotonic seconds.
    `turn` counts what it has scored: a reply to an earlier one, by a process that it has forked, comes out by it.
    Nothing here waits for the process: `read` is called when `stdout` is readable, `flush` when `stdin` takes more.
    """

    def __init__(self, source: str, *, file_name: str, deadline: float, limits: FileLimits = _UNLIMITED) -> None:
        self.state: Literal["starting", "loading", "idle", "scoring"] = "starting"
        self.deadline = deadline
        self.index = -1
        self.turn = 0
        self.since = 0.0
        self._cpu_before = 0.0
        self._load = {"source": source, "file_name": file_name, "limits": asdict(limits)}
        self._name = file_name
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  closed by close()
        self._process = subprocess.Popen(
            [sys.executable, "-u", "-m", "jobs.engine.rollouts.reward_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
            cwd=Path(__file__).parents[3],
            env=_SAME_EVERYWHERE | {name: value for name, value in os.environ.items() if not _is_secret(name)},
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self.stdin, self.stdout = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self.stdin, False)
        self._unread = self._unsent = b""

    @property
    def is_loaded(self) -> bool:
        """True once it can score."""
        return self.state in ("idle", "scoring")

    @property
    def is_sending(self) -> bool:
        """True while a part of a request waits for the process to read."""
        return bool(self._unsent)

    def load(self, *, deadline: float) -> None:
        """Send the source; its reply says whether it could be executed."""
        self.state, self.deadline = "loading", deadline
        self._send(self._load)

    def score(self, call: tuple[str, str, str], *, index: int, since: float, deadline: float, counts_cpu: bool) -> None:
        """Send a completion; its reply holds the reward. `counts_cpu`: `cpu_seconds` will be asked for."""
        self.state, self.index, self.since, self.deadline = "scoring", index, since, deadline
        self._cpu_before = self._cpu_seconds() if counts_cpu else 0.0
        self.turn += 1
        self._send({"turn": self.turn, "number": index + 1, "call": call})

    def rest(self) -> None:
        """The reply is here: the next completion may come."""
        self.state, self.index = "idle", -1
        errors = self._errors.fileno()
        if os.fstat(errors).st_size > _MOST_ERROR_BYTES:
            os.ftruncate(errors, 0)
            os.lseek(errors, 0, os.SEEK_SET)  # for the process, too, which shares the place where it writes

    def _send(self, request: Mapping[str, object]) -> None:
        self._unsent += json.dumps(request).encode() + b"\n"
        self.flush()

    def flush(self) -> None:
        """Write what the pipe takes now."""
        try:
            while self._unsent:
                self._unsent = self._unsent[os.write(self.stdin, self._unsent) :]
        except BlockingIOError:
            return
        except OSError:  # it has closed its end: that it has ended shows on stdout
            self._unsent = b""

    def read(self) -> list[bytes] | None:
        """Return the lines that are whole by now, None at the end of the stream.

        Until the process is up other lines are skipped: the interpreter of the node may greet. A line that becomes too
        long is cut to nothing, which is no reply.
        """
        chunk = os.read(self.stdout, _READ_BYTES)
        if not chunk:
            return None
        *lines, self._unread = (self._unread + chunk).split(b"\n")
        if len(self._unread) > _MOST_UNREAD_BYTES:
            self._unread = b""
            lines.append(b"")
        return lines if self.state != "starting" else [line for line in lines if line == UP]

    def close(self) -> None:
        """End the process and whatever it started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    def cpu_seconds(self) -> float:
        """Return the CPU time that the present call has taken; infinite where the system does not say."""
        used = self._cpu_seconds() - self._cpu_before
        return used if math.isfinite(used) else math.inf

    def _cpu_seconds(self) -> float:
        try:
            fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return math.inf
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def where(self) -> str:
        """Ask the process where it is (it dumps its stack on SIGUSR1): "reward.py line 5 in reward", "" if unknown."""
        begin = os.fstat(self._errors.fileno()).st_size
        where = ""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGUSR1)
            deadline = time.monotonic() + _DUMP_SECONDS
            while not where and time.monotonic() < deadline:
                time.sleep(0.05)
                where = self._own_frame(os.pread(self._errors.fileno(), _READ_BYTES, begin).decode(errors="replace"))
        return where

    def _own_frame(self, dump: str) -> str:
        """Return the innermost frame of the user's file in faulthandler's stack."""
        for line in dump[: dump.rfind("\n") + 1].splitlines():  # it is written in many small pieces
            if line.strip().startswith(f'File "{self._name}"'):
                return line.strip().removeprefix("File ").replace('"', "").replace(", line", " line")
        return ""

    def last_error_line(self) -> str:
        """Return the last line that it has written to stderr."""
        size = os.fstat(self._errors.fileno()).st_size
        lines = os.pread(self._errors.fileno(), 4096, max(0, size - 4096)).decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""
