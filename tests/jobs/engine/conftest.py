"""One Ray head for all engine tests, and how to run the engine on it as the runner does: as a process of its own."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

HOUSE = Path(__file__).parents[3]
RUN_SECONDS = 240


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="session")
def ray_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A local head with 8 logical CPUs, in a session of its own; ended by its process group."""
    folder = Path("/tmp") / f"pw-ray-{os.getpid()}"  # Ray's socket paths must stay short
    port = _free_port()
    log = (tmp_path_factory.mktemp("ray") / "head.log").open("wb")
    head = subprocess.Popen(
        [
            *(sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", "--disable-usage-stats"),
            *("--node-ip-address=127.0.0.1", f"--port={port}", f"--temp-dir={folder}", "--num-cpus=8"),
            *("--include-dashboard=false", "--object-store-memory=300000000"),
            *("--min-worker-port=21000", "--max-worker-port=21200"),
        ],
        cwd=HOUSE,
        stdout=log,
        stderr=log,
        start_new_session=True,
        env=os.environ | {"PYTHONPATH": str(HOUSE), "PYTHONWARNINGS": "ignore"},
    )
    try:
        deadline = time.monotonic() + 90
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            assert head.poll() is None, Path(log.name).read_text()
            assert time.monotonic() < deadline, "the Ray head did not start within 90 s"
            time.sleep(0.1)
        yield f"127.0.0.1:{port}"
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(head.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                head.wait(3)
        log.close()


@dataclass
class Ended:
    """A finished run of the engine: its exit code, events and directory."""

    run_dir: Path
    code: int
    output: str
    events: list[dict[str, Any]] = field(default_factory=list)

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
    """The engine as a child process."""

    def __init__(self, run_dir: Path, spec: dict[str, Any], address: str, program: tuple[str, ...]) -> None:
        run_dir.mkdir(parents=True, exist_ok=True)
        (run_dir / "spec.json").write_text(json.dumps(spec))
        command = [sys.executable, "-m", *program, str(run_dir)]
        self.run_dir = run_dir
        self._out = (run_dir / "driver.log").open("wb")
        environment = os.environ | {"RAY_ADDRESS": address, "PYTHONPATH": str(HOUSE), "PYTHONWARNINGS": "ignore"}
        environment.pop("PITWALL_ATTEMPT", None)
        self.process = subprocess.Popen(command, cwd=HOUSE, stdout=self._out, stderr=self._out, env=environment)

    def events(self) -> list[dict[str, Any]]:
        """What was told so far."""
        path = self.run_dir / "events.jsonl"
        lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
        return [json.loads(line) for line in lines]

    def wait_for_step(self, step: int) -> None:
        """Return when the step has been told."""
        deadline = time.monotonic() + RUN_SECONDS
        while not any(
            e["kind"] == "metric" and "time/step_seconds" in e["values"] and e["step"] >= step for e in self.events()
        ):
            assert self.process.poll() is None, self.output()
            assert time.monotonic() < deadline, self.output()
            time.sleep(0.1)

    def output(self) -> str:
        """What the driver printed."""
        return (self.run_dir / "driver.log").read_text(errors="replace")

    def wait(self) -> Ended:
        """Return when the engine has ended."""
        try:
            code = self.process.wait(RUN_SECONDS)
        finally:
            self.process.kill()
            self._out.close()
        return Ended(run_dir=self.run_dir, code=code, output=self.output(), events=self.events())


@pytest.fixture(scope="session")
def start_engine(ray_address: str) -> Any:
    """Start the engine on a spec; `program` (a module and its first arguments) replaces it by a test's own."""
    engine = ("jobs.engine", "--device=cpu")

    def start(run_dir: Path, spec: dict[str, Any], *, program: tuple[str, ...] = engine) -> Running:
        return Running(run_dir, spec, ray_address, program)

    return start
