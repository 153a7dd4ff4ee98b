"""A reward of the user's own: the Python source of the spec, run in a process of its own.

The process can be ended when it hangs, and what it prints cannot disturb the run. Which line raised or hangs is read
from that process, so that the cause names it.
"""

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from jobs.catalog.spec.runspec import RewardSource
from jobs.engine.rollouts.reward import Completion, RewardFailed, Score
from jobs.engine.rollouts.reward_process import UP, RewardReply

_UP_SECONDS = 20.0  # for Python itself, which no reward is to blame for; less than a trial may take
_DUMP_SECONDS = 10.0
_SECRETS = ("PITWALL_TOKEN", "RAY_AUTH_TOKEN", "HF_TOKEN")  # what scoring has no use for


class CustomReward:
    """Score batches in the reward process; after a failure it is gone, and so is the run's batch."""

    def __init__(self, source: RewardSource, *, timeout_seconds: float) -> None:
        self._name = Path(source.file_name).name or "reward.py"
        self._timeout_seconds = timeout_seconds
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  closed by close()
        self._process = subprocess.Popen(
            [sys.executable, "-u", "-m", "jobs.engine.rollouts.reward_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
            cwd=Path(__file__).parents[3],
            env={name: value for name, value in os.environ.items() if name not in _SECRETS},
        )
        self._unread = b""
        try:
            self._come_up()
            self._ask({"source": source.source, "file_name": self._name}, what="loading")
        except RewardFailed:
            self.close()
            raise

    def score(self, completions: Sequence[Completion]) -> list[Score]:
        """Return the scores; the whole batch must be done within the time-out.

        Raises: RewardFailed of kind `raised`, `wrong_type`, `hung` or `died`.
        """
        batch = [[c.prompt, c.completion, c.answer] for c in completions]
        values = self._ask({"batch": batch}, what=f"scoring {len(batch)} completions")["rewards"]
        return [Score(total=v, parts={"custom": v}, is_right=None) for v in values]

    def close(self) -> None:
        """End the reward process and whatever it started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    def _come_up(self) -> None:
        """Return once the process answers, and can be asked where it stands."""
        end = time.monotonic() + _UP_SECONDS
        while (line := self._read_line(end - time.monotonic())) != UP:  # the interpreter of the node may greet, too
            if line is None:
                text = f"The process for the reward {self._name} did not start within {_UP_SECONDS:g} s. Try again."
                raise RewardFailed(text, kind="not_started")
            if not line:
                text = f"The process for the reward {self._name} ended while it started."
                raise RewardFailed(text, kind="not_started", log_line=self._last_error_line())

    def _ask(self, request: Mapping[str, object], *, what: str) -> RewardReply:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
            line = self._read_line(self._timeout_seconds)
        except BrokenPipeError:
            line = b""
        if line is None:
            raise self._hung(what)
        if not line:
            raise RewardFailed(
                f"The reward {self._name} ended its process while {what}.",
                kind="died",
                log_line=self._last_error_line(),
            )
        answer: RewardReply = json.loads(line)
        if "problem" in answer:
            raise RewardFailed(answer["problem"], kind=answer["kind"], log_line=answer.get("log_line", ""))
        return answer

    def _read_line(self, seconds: float) -> bytes | None:
        """Return the next line, b"" at the end of the stream, None when time is up."""
        assert self._process.stdout is not None
        deadline = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._unread:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    return None
                chunk = os.read(self._process.stdout.fileno(), 65536)
                if not chunk:
                    return b""
                self._unread += chunk
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def _hung(self, what: str) -> RewardFailed:
        """Ask the process where it is (it dumps its stack on SIGUSR1), then end it."""
        begin = os.fstat(self._errors.fileno()).st_size
        where = ""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGUSR1)
            deadline = time.monotonic() + _DUMP_SECONDS
            while not where and time.monotonic() < deadline:
                time.sleep(0.05)
                where = self._own_frame(os.pread(self._errors.fileno(), 65536, begin).decode(errors="replace"))
        self.close()
        at = f", at {where}" if where else ""
        return RewardFailed(
            f"The reward {self._name} did not answer within {self._timeout_seconds:g} s while "
            f"{what}{at}. Make it return faster.",
            kind="hung",
            log_line=where,
        )

    def _own_frame(self, dump: str) -> str:
        """Return "reward.py line 5 in reward" from faulthandler's stack, the innermost frame of the user's file."""
        for line in dump[: dump.rfind("\n") + 1].splitlines():  # it is written in many small pieces
            if line.strip().startswith(f'File "{self._name}"'):
                return line.strip().removeprefix("File ").replace('"', "").replace(", line", " line")
        return ""

    def _last_error_line(self) -> str:
        size = os.fstat(self._errors.fileno()).st_size
        lines = os.pread(self._errors.fileno(), 4096, max(0, size - 4096)).decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""


class Plugin:
    """How the registry opens it."""

    def open(self, source: RewardSource, *, timeout_seconds: float) -> CustomReward:
        """Start the reward's process and load the source in it."""
        return CustomReward(source, timeout_seconds=timeout_seconds)


PLUGIN = Plugin()
