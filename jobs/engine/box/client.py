"""The run's hand on a server of boxes: pieces of code with their tests go to it, so many at a time."""

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobs.box.seccomp import NotConfined
from jobs.engine.box.server import RunLimits

_HOUSE = Path(__file__).parents[3]
_CHECK_SECONDS = 0.5
_UP_SECONDS = 60.0
_READ_BYTES = 1 << 16
_ENVIRONMENT = {"PYTHONHASHSEED": "0", "PYTHONUTF8": "1", "LANG": "C.UTF-8"}  # the same in every box; nothing of ours


class BoxLost(RuntimeError):
    """The server has ended, or says what is no answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What came of a piece of code: how many of its cases passed, and whether its time was up before the last."""

    num_passed: int
    timed_out: bool


class Boxes:
    """A server with `most` boxes open at a time. `lacks` says what this system cannot keep from the code, "" if all.

    Not to be shared by threads.
    """

    def __init__(self, *, cpu_seconds: int, memory_bytes: int, output_bytes: int, most: int) -> None:
        """Start the server. Raises: NotConfined where the system cannot box anything, BoxLost if it does not start."""
        self._most = most
        self._folder = tempfile.mkdtemp(prefix="pitwall-box-")
        limits = RunLimits(
            cpu_seconds=cpu_seconds, memory_bytes=memory_bytes, output_bytes=output_bytes, folder=self._folder
        )
        self._process = subprocess.Popen(
            [sys.executable, "-s", "-S", "-m", "jobs.engine.box.server", json.dumps(limits)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd=_HOUSE,
            env=_ENVIRONMENT,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._in, self._out = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._in, False)
        self._unread = self._unsent = b""
        try:
            (answer,) = self._answers(_UP_SECONDS)
            if "problem" in answer:
                raise NotConfined(answer["problem"])
        except BaseException:
            self.close()
            raise
        self.lacks = str(answer["lacks"])

    def run(self, jobs: Sequence[Mapping[str, Any]], *, check: Callable[[], None]) -> list[Verdict]:
        """Return the verdict of each job (see server.py), in order. `check` is called about twice a second.

        Raises: BoxLost; what `check` raises. Boxes that are open then answer to nobody, so close the server.
        """
        verdicts: dict[int, Verdict] = {}
        sent = 0
        while len(verdicts) < len(jobs):
            while sent < len(jobs) and sent - len(verdicts) < self._most:
                self._unsent += json.dumps({**jobs[sent], "number": sent}).encode() + b"\n"
                sent += 1
            for answer in self._answers(_CHECK_SECONDS, may_be_none=True):
                verdicts[answer["number"]] = Verdict(
                    num_passed=len(set(answer["passed"])), timed_out=bool(answer["timed_out"])
                )
            check()
        return [verdicts[number] for number in range(len(jobs))]

    def close(self) -> None:
        """End the server and its boxes; may be called again."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _answers(self, seconds: float, *, may_be_none: bool = False) -> list[dict[str, Any]]:
        """Send what is to be sent, wait so long for something, and return the answers that are whole."""
        readable, writable, _ = select.select([self._out], [self._in] if self._unsent else [], [], seconds)
        if writable:
            with contextlib.suppress(BlockingIOError, BrokenPipeError):
                self._unsent = self._unsent[os.write(self._in, self._unsent) :]
        if not readable:
            if may_be_none:
                return []
            raise BoxLost(f"it did not start within {seconds:g} s")
        chunk = os.read(self._out, _READ_BYTES)
        if not chunk:
            raise BoxLost("it has ended")
        *lines, self._unread = (self._unread + chunk).split(b"\n")
        return [json.loads(line) for line in lines]
