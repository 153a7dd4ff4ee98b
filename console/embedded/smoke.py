"""The demo without a person: start a console in a fresh directory, wait for the end, evaluate what it learned."""

import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from console.command_line.api_json import RunResultJson
from console.command_line.run_table import run_table, wanted
from console.embedded.ports import free_block
from console.embedded.process_tree import die_with_parent
from console.embedded.services import MANAGE

MIN_REWARD = 0.85  # mean over the last steps; the demo reaches 0.93
NUM_LAST_STEPS = 20
MIN_ACCURACY = 0.9  # share of held-out problems; the demo reaches 0.97
# A smoke test checks this checkout alone: it must not write to the database or the queue that somebody uses.
OUTSIDE = ("DATABASE_URL", "REDIS_URL", "RAY_ADDRESS", "RAY_AUTH_TOKEN", "PITWALL_PUBLIC_URL")
START_SECONDS = 120.0
STOP_SECONDS = 90.0
ROWS = 12
MAX_STEPS = 4000  # all points of a run of so many steps are read

SHOWN = {
    "reward": "reward/mean",
    "held-out": "eval/accuracy",
    "KL": "kl/reference",
    "tokens": "response/length_mean",
    "s/step": "time/step_seconds",
}

Columns = Mapping[str, Mapping[int, float]]  # metric name -> step -> value, of role driver


class SmokeFailed(RuntimeError):
    """The console or the run did not come as far as a verdict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningResult:
    """What the demo learned; `reward` is the mean over the last 20 steps, `accuracy` the newest held-out one."""

    reward: float
    accuracy: float

    @property
    def is_good(self) -> bool:
        """Return whether both are high enough; a missing number (NaN) never is."""
        return self.reward >= MIN_REWARD and self.accuracy >= MIN_ACCURACY

    def __str__(self) -> str:
        reward = f"mean reward of the last {NUM_LAST_STEPS} steps {self.reward:.3f} (needs {MIN_REWARD})"
        return f"{reward}, held-out accuracy {self.accuracy:.3f} (needs {MIN_ACCURACY})"


def evaluate(columns: Columns) -> LearningResult:
    """Return the verdict on a run's metrics; NaN where there are fewer than 20 steps, or no held-out evaluation."""
    rewards = [value for _, value in sorted(columns.get("reward/mean", {}).items())][-NUM_LAST_STEPS:]
    accuracies = [value for _, value in sorted(columns.get("eval/accuracy", {}).items())]
    return LearningResult(
        reward=statistics.fmean(rewards) if len(rewards) == NUM_LAST_STEPS else float("nan"),
        accuracy=accuracies[-1] if accuracies else float("nan"),
    )


def table(columns: Columns) -> str:
    """Return the run as about a dozen lines, each the means over its steps."""
    last = max((step for values in columns.values() for step in values), default=0)
    width = max(1, -(-last // ROWS))
    lines = [f"{'steps':>9}" + "".join(f"{title:>10}" for title in SHOWN)]
    for first in range(1, last + 1, width):
        steps = range(first, min(first + width, last + 1))
        cells = [_mean([columns[name][s] for s in steps if s in columns.get(name, {})]) for name in SHOWN.values()]
        lines.append(f"{f'{steps[0]}-{steps[-1]}':>9}" + "".join(f"{cell:>10}" for cell in cells))
    return "\n".join(lines)


def _mean(values: Sequence[float]) -> str:
    return f"{statistics.fmean(values):.3f}" if values else "—"


def read_columns(run_id: str) -> Columns:
    """Return what the driver of the run's latest attempt reported."""
    from jobs.telemetry.series import read_series

    answer = read_series(run_id=run_id, names={*SHOWN.values(), *wanted()}, num_points=MAX_STEPS)
    newest = max((series.attempt for series in answer.series), default=1)
    return {
        series.name: dict(zip(map(int, series.x), map(float, series.y), strict=True))
        for series in answer.series
        if series.role == "driver" and series.attempt == newest
    }


def summary(run_id: str, columns: Columns) -> str:
    """Return what the run came to: state, first and last values, seconds per phase."""
    from jobs.models import Run
    from jobs.runs.header import run_header

    header = run_header(Run.objects.get(pk=run_id))
    result = RunResultJson(
        id=header.id,
        name=header.name,
        state=header.state,
        step=header.step,
        num_steps=header.num_steps,
        elapsed_seconds=header.elapsed_seconds,
        cause={"text": header.cause.get("text", ""), "log_line": header.cause.get("log_line", "")},
    )
    return run_table(result, [{"name": name, "y": list(values.values())} for name, values in columns.items()])


def in_fresh_directory(arguments: Sequence[str]) -> int:
    """Run `manage.py smoke --here` in a data directory of its own; return its exit code and remove the directory."""
    data_dir = Path(tempfile.mkdtemp(prefix="pw-smoke-"))
    env = {name: value for name, value in os.environ.items() if name not in OUTSIDE}
    env |= {"PITWALL_DATA_DIR": str(data_dir), "PITWALL_PORT": str(free_block(1, seed=f"web of {data_dir}")[0])}
    smoke = _start([sys.executable, MANAGE, "smoke", "--here", *arguments], env=env)
    try:
        return smoke.wait()
    finally:
        _stop(smoke)
        shutil.rmtree(data_dir, ignore_errors=True)


def run_demo(data_dir: Path, *, changes: Sequence[str], seconds: float, say: Callable[[str], None]) -> str:
    """Start the console here, wait until its demo run has ended, stop it; return the run's id.

    Raises: SmokeFailed if the console does not start, or the run does not end in time.
    """
    terminal = data_dir / "terminal.log"
    command = [sys.executable, MANAGE, "up", "--demo", *(f"--set={change}" for change in changes)]
    with terminal.open("wb") as output:
        console = _start(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        run_id = _wait_for_id(console, terminal)
        say(f"The console runs; the demo is run {run_id}.")
        _wait_for_end(console, run_id, seconds=seconds, say=say)
        return run_id
    except SmokeFailed:
        say("\n".join(terminal.read_text(errors="replace").splitlines()[-80:]))
        raise
    finally:
        _stop(console)


def leave_when_told() -> None:
    """Make SIGTERM end this process as an exit does, so that what it started is stopped and what it wrote removed."""
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))


def _start(command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
    """Start a process that is told to end if this one dies."""
    parent = os.getpid()
    return subprocess.Popen(command, preexec_fn=lambda: die_with_parent(signal.SIGTERM, parent), **options)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Tell a process to end, and wait for it; kill it if that takes too long."""
    process.terminate()  # SIGINT is ignored by what a shell started in the background
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()


def _wait_for_id(console: subprocess.Popen[bytes], terminal: Path) -> str:
    deadline = time.monotonic() + START_SECONDS
    while True:
        if match := re.search(r"The demo run is queued: \S+/runs/(\S+)", terminal.read_text(errors="replace")):
            return match[1]
        if console.poll() is not None:
            raise SmokeFailed(f"The console ended with exit code {console.returncode} before it queued the demo.")
        if time.monotonic() > deadline:
            raise SmokeFailed(f"The console did not queue the demo within {START_SECONDS:.0f} s.")
        time.sleep(0.2)


def _wait_for_end(console: subprocess.Popen[bytes], run_id: str, *, seconds: float, say: Callable[[str], None]) -> None:
    from jobs.models import ENDED, Run

    deadline = time.monotonic() + seconds
    shown = ""
    while True:
        run = Run.objects.get(pk=run_id)
        line = f"{run.state}, step {run.step} of {run.num_steps} {run.wait_reason or run.activity}".rstrip()
        if line != shown and (run.step % 10 == 0 or run.state in ENDED):
            say(line)
            shown = line
        if run.state in ENDED:
            if run.state != "finished":
                raise SmokeFailed(f"The demo run is {run.state}: {run.cause.get('text', 'no cause was named')}")
            return
        if console.poll() is not None:
            raise SmokeFailed(f"The console ended with exit code {console.returncode} before the run did.")
        if time.monotonic() > deadline:
            raise SmokeFailed(f"The demo run did not end within {seconds:.0f} s; it is {line}.")
        time.sleep(0.5)
