"""A house as the cluster receives it, with a trainer of the test's own in the place of the engine."""

import contextlib
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.jobs.runner.fake_console import TOKEN, FakeConsole

REPOSITORY = Path(__file__).resolve().parents[3]
PREAMBLE = """
import json, os, signal, sys, time
from pathlib import Path
from profiling import events
run_dir = Path(sys.argv[1])
attempt = int(os.environ["PITWALL_ATTEMPT"])
log = events.EventLog(run_dir / "events.jsonl")
def metric(step, **values):
    log.write(events.metric(values or {"loss": 1.0 / step}, attempt=attempt, step=step))
def commands():
    path = run_dir / "commands.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
def wait_until(condition):
    while not condition():
        time.sleep(0.01)
"""


class House:
    """Starts real runner processes against a fake console, and leaves none behind."""

    def __init__(self, folder: Path, console: FakeConsole) -> None:
        self.folder = folder
        self.console = console
        self.token = TOKEN
        self.run_root = folder / "runs"
        self.run_dir = self.run_root / console.run / f"a{console.attempt}"
        (folder / "jobs" / "engine").mkdir(parents=True)
        (folder / "jobs" / "__init__.py").touch()
        (folder / "jobs" / "engine" / "__init__.py").touch()
        for name in ("runner", "adapters", "catalog", "box", "engine/algorithms"):  # whose names the catalog lists
            (folder / "jobs" / name).symlink_to(REPOSITORY / "jobs" / name)
        (folder / "profiling").symlink_to(REPOSITORY / "profiling")
        self.processes: list[subprocess.Popen[str]] = []

    def trainer(self, body: str) -> None:
        """Make `body` the trainer."""
        text = PREAMBLE + textwrap.dedent(body)
        (self.folder / "jobs" / "engine" / "__main__.py").write_text(text)

    def without_inputs(self) -> None:
        """Let the engine's part in preparing another trainer's inputs do nothing: it has a test of its own."""
        data = self.folder / "jobs" / "engine" / "data"
        data.mkdir(exist_ok=True)
        (data / "materialize.py").write_text("")

    def start(self, module: str = "jobs.runner", **env: Any) -> subprocess.Popen[str]:
        """Start a runner."""
        process = subprocess.Popen(
            [sys.executable, "-m", module],
            cwd=self.folder,
            env={**os.environ, **self.environ(), **{k: str(v) for k, v in env.items()}},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.processes.append(process)
        return process

    def environ(self) -> dict[str, str]:
        return {
            "PITWALL_URL": self.console.url,
            "PITWALL_TOKEN": self.token,
            "PITWALL_RUN": self.console.run,
            "PITWALL_ATTEMPT": str(self.console.attempt),
            "PITWALL_RUN_ROOT": str(self.run_root),
            "PITWALL_DEVICE": "cpu",
        }

    def finish(self, process: subprocess.Popen[str], *, code: int = 0, timeout: float = 400) -> str:
        """Wait for the end of a runner and return what it said."""
        said, _ = process.communicate(timeout=timeout)
        assert process.returncode == code, said
        return said

    def marked(self) -> list[psutil.Process]:
        """Return the processes on this machine that carry this run's mark."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                is_marked = process.environ().get("PITWALL_RUN_ROOT") == str(self.run_root)
                if is_marked and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def close(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
            if process.stdout:
                process.stdout.close()
        for orphan in self.marked():
            with contextlib.suppress(psutil.Error):
                orphan.kill()


@pytest.fixture
def console() -> Iterator[FakeConsole]:
    fake = FakeConsole(spec={"name": "test"}).start()
    yield fake
    fake.stop()


@pytest.fixture
def house(tmp_path: Path, console: FakeConsole) -> Iterator[House]:
    made = House(tmp_path, console)
    yield made
    made.close()


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """Return a folder on a disk of 12 MiB of its own."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", folder], capture_output=True, check=False
    )
    if mount.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {mount.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", folder], check=True)
