"""A run of the engine as a Ray job, its runner with it, before a console that takes everything: as users have it."""

import contextlib
import json
import shlex
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil

from tests.jobs.engine.conftest import RUN_SECONDS
from tests.jobs.runner.fake_console import TOKEN, FakeConsole
from tests.ray_head import HOUSE, RayHead
from tests.waiting import wait_until

END_SECONDS = 600.0
OVER = ("SUCCEEDED", "FAILED", "STOPPED")
ENDS = ("normal end", "exit_actor", "ray_kill", "driver_error", "driver_exit")
"""What a run may do to itself: `ending_run`, which is of the engine and takes seconds to import."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShippedRun:
    """What a run's console has of it in the end: events, files by name with what was said of each, and the terminal
    event.

    `num_before` of the events had come when its runner was killed; all of them, if nobody killed it.
    """

    run_dir: Path
    events: list[dict[str, Any]]
    files: dict[str, bytes]
    about: dict[str, dict[str, str]]
    terminal_event: dict[str, Any]
    num_before: int

    def of(self, kind: str) -> list[dict[str, Any]]:
        """The events of a kind, in order."""
        return [event for event in self.events if event["kind"] == kind]


class SupervisedRun:
    """One run. `way`, if it is one of ending_run's, is what it does to itself once RUN_DIR/end is there."""

    def __init__(self, folder: Path, spec: dict[str, Any], head: RayHead, *, way: str = "") -> None:
        self.console = FakeConsole(spec=spec, run=f"r-{time.time_ns():x}").start()
        self.run_dir = folder / "runs" / self.console.run / "a1"
        self._api = head.client()
        self._env = {
            "PITWALL_URL": self.console.url,
            "PITWALL_TOKEN": TOKEN,
            "PITWALL_RUN": self.console.run,
            "PITWALL_ATTEMPT": "1",
            "PITWALL_RUN_ROOT": str(folder / "runs"),
            "PITWALL_DEVICE": "cpu",
            "PYTHONWARNINGS": "ignore",
            "RAY_JOB_STOP_WAIT_TIME_S": "120",
        }
        self._code = _house_that_ends(folder, way) if way in ENDS else HOUSE
        self._num_before = -1
        self._job = self._submit("jobs.runner")

    def events(self) -> list[dict[str, Any]]:
        """What the trainer has told so far."""
        path = self.run_dir / "events.jsonl"
        lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
        return [json.loads(line) for line in lines]

    def wait_for_step(self, step: int) -> None:
        """Return when the step has been told."""

        def is_there() -> bool:
            is_over = self._status() in OVER
            is_told = any(e["step"] >= step for e in self.events() if "time/step_seconds" in e.get("values", {}))
            assert is_told or not is_over, self.output()
            return is_told

        wait_until(is_there, RUN_SECONDS)

    def command(self, verb: str, **payload: Any) -> None:
        """Ask for something as the console does."""
        with self.console.condition:
            self.console.commands.append({"number": time.time_ns(), "verb": verb, "payload": payload})

    def driver(self) -> psutil.Process:
        """Return the trainer's driver."""
        return self._process("jobs.engine")

    def kill_runner(self) -> None:
        """Kill the runner; the clean-up job comes when the run is waited for."""
        self._process("jobs.runner").kill()
        wait_until(lambda: self._status() in OVER, END_SECONDS)
        with self.console.condition:
            self._num_before = len(self.console.events)

    def cancel(self) -> None:
        """End the job as Ray does when somebody stops it."""
        self._api.post(f"/api/jobs/{self._job}/stop").raise_for_status()

    def plant(self) -> None:
        """Let the run do to itself what it was made for."""
        (self.run_dir / "end").touch()

    def wait(self) -> ShippedRun:
        """Return what the console has, when the run has ended and its terminal event is there."""
        try:
            wait_until(lambda: self._status() in OVER, END_SECONDS)
            if self._num_before >= 0:
                job = self._submit("jobs.runner.cleanup")
                wait_until(lambda: self._status(job) in OVER, END_SECONDS)
            console = self.console
            with console.condition:
                assert console.of_kind("state", role="runner"), self.output()
                return ShippedRun(
                    run_dir=self.run_dir,
                    events=console.events,
                    files={name: bytes(console.files[name]) for name in console.ready},
                    about=dict(console.about),
                    terminal_event=console.terminal_event,
                    num_before=self._num_before if self._num_before >= 0 else len(console.events),
                )
        finally:
            self.close()

    def close(self) -> None:
        """End the job and the console, if that is still to be done."""
        with contextlib.suppress(Exception):
            self.cancel()
        self.console.stop()
        self._api.close()

    def output(self) -> str:
        """Return what the job printed, and its driver."""
        found = [str(self._api.get(f"/api/jobs/{self._job}/logs").json().get("logs", ""))[-3000:]]
        for path in sorted((self.run_dir / "log").glob("driver-0.*")):
            found.append(path.read_text(errors="replace")[-3000:])
        return "\n".join(found)

    def _submit(self, module: str) -> str:
        entrypoint = f"cd {shlex.quote(str(self._code))} && {shlex.join([sys.executable, '-m', module])}"
        body = {"entrypoint": entrypoint, "runtime_env": {"env_vars": self._env}}
        # a head that is just up may still wait for what starts jobs on its node, and says 500 meanwhile
        answer = wait_until(lambda: self._accepted(body), 60)
        return str(answer.json()["submission_id"])

    def _accepted(self, body: dict[str, Any]) -> httpx.Response | None:
        answer = self._api.post("/api/jobs/", json=body)
        return None if answer.status_code == httpx.codes.INTERNAL_SERVER_ERROR else answer.raise_for_status()

    def _status(self, job: str = "") -> str:
        return str(self._api.get(f"/api/jobs/{job or self._job}").json()["status"])

    def _process(self, module: str) -> psutil.Process:
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                is_it = process.cmdline()[1:3] == ["-m", module]
                if is_it and process.environ().get("PITWALL_RUN") == self.console.run:
                    return process
        raise AssertionError(f"{module} of {self.console.run} does not run")


def _house_that_ends(folder: Path, way: str) -> Path:
    """Return a copy of the code, of links, whose engine is ending_run's."""
    house = folder / f"house-{way}"
    if house.exists():
        return house
    (house / "jobs" / "engine").mkdir(parents=True)
    for name in ("jobs", "jobs/engine"):
        for path in (HOUSE / name).iterdir():
            if path.name not in ("engine", "__main__.py", "__pycache__"):
                (house / name / path.name).symlink_to(path)
    for name in ("profiling", "tests", "console"):
        (house / name).symlink_to(HOUSE / name)
    program = f'import sys\n\nfrom tests.proofs.ending_run import main\n\nsys.argv.insert(1, "{way}")\nmain()\n'
    (house / "jobs" / "engine" / "__main__.py").write_text(program)
    return house
