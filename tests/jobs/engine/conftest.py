"""How to run the engine on the tests' Ray head as the runner does: as a process of its own.

Two runs are made once and read by many tests, of other processes of `make test` and of later ones: they are kept under
a digest of all that makes them, which is the code, the locked versions and the CPU.
"""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.ray_head import RayHead
from tests.waiting import wait_until

HOUSE = Path(__file__).parents[3]
RUN_SECONDS = 1200
GOLDEN = HOUSE / "build" / "golden"
MAKES_A_RUN = (
    "jobs/engine",
    "jobs/box",
    "jobs/catalog",
    "jobs/adapters",
    "profiling",
    "tests/jobs/engine",
    "tests/warm_workers",
)
LOCKS = ("engine.lock", "torch-cpu.lock")
GRPO: dict[str, Any] = {
    "algorithm": "grpo",
    "hardware": {"layout": "split"},
    "profile": {"nsys_ready": "off"},
    "knobs": {
        "train.num_steps": 6,
        "rollout.prompts_per_step": 8,
        "rollout.samples_per_prompt": 4,
        "eval.num_prompts": 16,
        "eval.every_steps": 3,
        "checkpoint.every_steps": 3,
    },
}


def events_of(run_dir: Path) -> list[dict[str, Any]]:
    """Return the events of a run so far, without a last line that is not whole yet."""
    path = run_dir / "events.jsonl"
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in lines]


@dataclass
class EndedRun:
    """A finished run of the engine: its exit code, events and directory."""

    run_dir: Path
    code: int
    output: str
    events: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def read(cls, run_dir: Path, *, code: int) -> "EndedRun":
        """Read what a run has left."""
        output = (run_dir / "driver.log").read_text(errors="replace")
        return cls(run_dir=run_dir, code=code, output=output, events=events_of(run_dir))

    def of(self, kind: str) -> list[dict[str, Any]]:
        """The events of a kind, in order."""
        return [e for e in self.events if e["kind"] == kind]

    def series(self, name: str) -> dict[int, float]:
        """A metric by step."""
        return {e["step"]: float(e["values"][name]) for e in self.of("metric") if name in e["values"]}

    @property
    def cause(self) -> dict[str, Any]:
        """The cause of the failure."""
        return next(e["cause"] for e in reversed(self.of("state")) if e["state"] == "failed")


class Running:
    """The engine as a child process; with `is_warm` one that is forked as the head's workers are.

    Who kills such a process is told that it is gone a moment before it is.
    """

    def __init__(
        self, run_dir: Path, spec: dict[str, Any], head: RayHead, program: tuple[str, ...], *, is_warm: bool = False
    ) -> None:
        run_dir.mkdir(parents=True, exist_ok=True)
        (run_dir / "spec.json").write_text(json.dumps(spec))
        command = [sys.executable, "-m", *program, str(run_dir)]
        self.run_dir = run_dir
        self._out = (run_dir / "driver.log").open("wb")
        environment = {**os.environ, **head.environment, "PYTHONPATH": head.path, "PYTHONWARNINGS": "ignore"}
        environment |= head.warm_driver if is_warm else {}
        environment.pop("PITWALL_ATTEMPT", None)
        self.process = subprocess.Popen(command, cwd=HOUSE, stdout=self._out, stderr=self._out, env=environment)

    def events(self) -> list[dict[str, Any]]:
        """What was told so far."""
        return events_of(self.run_dir)

    def wait_for_step(self, step: int) -> None:
        """Return when the step has been told."""

        def is_there() -> bool:
            has_ended = self.process.poll() is not None
            told = [e["step"] for e in self.events() if "time/step_seconds" in e.get("values", {})]
            assert not has_ended or max(told, default=0) >= step, self.output()
            return max(told, default=0) >= step

        wait_until(is_there, RUN_SECONDS, self.output)

    def hold_no_longer(self, step: int) -> None:
        """Let a run go on that is held before this step (holding_run)."""
        (self.run_dir / f"go-{step}").touch()

    def output(self) -> str:
        """What the driver printed."""
        return (self.run_dir / "driver.log").read_text(errors="replace")

    def wait(self, seconds: float = RUN_SECONDS) -> EndedRun:
        """Return when the engine has ended."""
        try:
            code = self.process.wait(seconds)
        finally:
            self.process.kill()
            self._out.close()
        return EndedRun.read(self.run_dir, code=code)


@cache
def digest() -> str:
    """Return what all recorded runs depend on, in 16 hex digits."""
    found = (path for folder in MAKES_A_RUN for path in (HOUSE / folder).rglob("*"))
    files = [path for path in found if path.is_file() and path.parent.name != "__pycache__"]
    files += [HOUSE / "requirements" / name for name in LOCKS]
    whole = hashlib.sha256()
    for path in sorted(files):
        whole.update(f"{path.relative_to(HOUSE)}\n".encode())
        whole.update(hashlib.sha256(path.read_bytes()).digest())
    cpu = next((line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")), "")
    whole.update(cpu.encode())
    return whole.hexdigest()[:16]


def golden_run(name: str, attempt: str, make: Callable[[Path], EndedRun], folder: Path) -> EndedRun:
    """Return a copy, in `folder`, of the run `name`; `make` runs it in a directory that ends in `attempt`.

    Who asks for a run that another process is making waits for it. A run that fails is not kept.
    """
    kept = GOLDEN / digest() / name
    kept.mkdir(parents=True, exist_ok=True)
    for old in GOLDEN.iterdir():
        if old.name != digest():
            shutil.rmtree(old, ignore_errors=True)
    run_dir = folder / name / attempt
    with (kept / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (kept / "is_whole").exists():
            shutil.copytree(kept / attempt, run_dir)
            return EndedRun.read(run_dir, code=0)
        ended = make(run_dir)
        if ended.code == 0:
            shutil.rmtree(kept / attempt, ignore_errors=True)
            shutil.copytree(run_dir, kept / attempt)
            (kept / "is_whole").touch()
        return ended


@pytest.fixture(scope="session")
def start_engine(ray_head: RayHead) -> Any:
    """Start the engine on a spec; `program` (a module and its first arguments) replaces it by a test's own.

    A worker that is ready for nsys starts cold, which takes twice as long, so a spec says if it is to be.
    """
    engine = ("jobs.engine", "--device=cpu")

    def start(run_dir: Path, spec: dict[str, Any], *, program: tuple[str, ...] = engine) -> Running:
        return Running(run_dir, {"profile": {"nsys_ready": "off"}} | spec, ray_head, program, is_warm=True)

    return start


@pytest.fixture(scope="session")
def grpo(start_engine: Any, tmp_path_factory: pytest.TempPathFactory) -> EndedRun:
    """A whole run of six steps."""

    def make(run_dir: Path) -> EndedRun:
        return start_engine(run_dir, GRPO).wait()  # type: ignore[no-any-return]

    return golden_run("grpo", "a2", make, tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="session")
def stopped(start_engine: Any, tmp_path_factory: pytest.TempPathFactory) -> EndedRun:
    """The same spec with ZeRO-3 and the reference in the policy's ranks, told to stop after its second step."""

    def make(run_dir: Path) -> EndedRun:
        knobs = GRPO["knobs"] | {"memory.zero_stage": "3", "train.num_steps": 400}
        spec = GRPO | {"hardware": {"layout": "shared"}, "knobs": knobs}
        running = start_engine(run_dir, spec, program=("tests.jobs.engine.holding_run", "3"))
        running.wait_for_step(2)
        (running.run_dir / "commands.jsonl").write_text('{"number": 1, "verb": "stop", "payload": {}}\n')
        running.hold_no_longer(3)
        return running.wait()  # type: ignore[no-any-return]

    return golden_run("stopped", "a1", make, tmp_path_factory.mktemp("runs"))
