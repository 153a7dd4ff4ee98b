"""The worker and the reconciler as processes of their own: a real Valkey, a database file, a server like Ray."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.jobs.fake_ray import TOKEN, FakeRay, serve
from tests.migrated_database import put_database
from tests.services import Valkey

ROOT = Path(__file__).resolve().parents[2]


class House:
    """A data directory of its own, and the commands of the console run in it."""

    def __init__(self, folder: Path, redis_url: str, ray: FakeRay) -> None:
        self.env = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("PITWALL_", "RAY_"))},
            "DJANGO_SETTINGS_MODULE": "console.settings",
            "PITWALL_DATA_DIR": str(folder),
            "DATABASE_URL": f"sqlite:///{folder}/pitwall.sqlite3",
            "REDIS_URL": redis_url,
            "RAY_ADDRESS": ray.address,
            "RAY_AUTH_TOKEN": TOKEN,
        }
        self.processes: list[subprocess.Popen[bytes]] = []
        self.log = folder / "log"

    def run(self, *arguments: str) -> str:
        """Run a command to its end and return what it printed."""
        command = [sys.executable, "manage.py", *arguments]
        return subprocess.run(
            command, cwd=ROOT, env=self.env, check=True, capture_output=True, text=True, timeout=180
        ).stdout

    def shell(self, code: str) -> str:
        """Run Python in the house and return what it printed."""
        return self.run("shell", "--no-imports", "-c", code).strip()

    def start(self, name: str) -> subprocess.Popen[bytes]:
        """Start a command that stays."""
        with self.log.open("ab") as log:
            command = [sys.executable, "manage.py", name]
            process = subprocess.Popen(command, cwd=ROOT, env=self.env, stdout=log, stderr=log)
        self.processes.append(process)
        return process

    def wait(self, condition: Callable[[], Any], what: str, *, seconds: float = 480) -> Any:
        """Return the first true value of `condition`."""
        deadline = time.monotonic() + seconds
        while not (value := condition()):
            assert time.monotonic() < deadline, f"{what} did not happen: {self.log.read_text()[-4000:]}"
            time.sleep(0.05)
        return value


@pytest.fixture
def ray() -> Iterator[FakeRay]:
    with serve() as server:
        yield server


@pytest.fixture
def house(tmp_path: Path, valkey: Valkey, ray: FakeRay) -> Iterator[House]:
    put_database(tmp_path)
    house = House(tmp_path, valkey.url, ray)
    yield house
    for process in house.processes:
        if process.poll() is None:
            process.kill()
        process.wait(60)


QUEUE = """
from django.utils import timezone
from jobs.runs.launch import create_run
from jobs.models import Project
project, _ = Project.objects.get_or_create(slug="p", name="P")
run, _ = create_run(project=project, spec={}, user=None, idempotency_key=None, now=timezone.now())
"""


@pytest.mark.proof
def test_a_task_reaches_the_worker_and_the_run_reaches_ray(house: House, ray: FakeRay) -> None:
    worker = house.start("worker")

    run_id = house.shell(
        QUEUE + "from jobs.processes.tasks import enqueue, submit\nenqueue(submit, run_id=run.pk)\nprint(run.pk)"
    )
    house.wait(lambda: ray.submitted, "the submission")

    assert ray.submitted[0]["submission_id"] == f"run-{run_id}-a1"
    state = house.shell(f"from jobs.models import Run; print(Run.objects.get(pk={run_id!r}).state)")
    assert state == "starting"
    assert house.log.read_text() == "", "the worker's log is for problems"
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(60) == 0


def listens(process: subprocess.Popen[bytes]) -> bool:
    """Return True once a process has a handler of SIGTERM."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    (caught,) = (int(line.split()[1], 16) for line in lines if line.startswith("SigCgt:"))
    return bool(caught >> (signal.SIGTERM - 1) & 1)


@pytest.mark.proof
def test_the_reconciler_starts_what_no_worker_took_and_is_alone(house: House, ray: FakeRay) -> None:
    run_id = house.shell(QUEUE + "print(run.pk)")

    first, second = house.start("reconcile"), house.start("reconcile")
    house.wait(lambda: ray.submitted, "the submission")

    assert [job["submission_id"] for job in ray.submitted] == [f"run-{run_id}-a1"]
    assert first.poll() is None
    assert second.poll() is None
    for process in (second, first):
        house.wait(partial(listens, process), "its handler of SIGTERM")  # it may have come up later than the other
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, house.log.read_text()


def test_when_the_reconciler_is_killed_the_next_one_takes_over(house: House, ray: FakeRay) -> None:
    first = house.start("reconcile")
    house.wait(lambda: ray.requests, "the first step")
    second = house.start("reconcile")
    house.wait(lambda: second.poll() is None and len(ray.requests) > 1, "more steps")

    first.kill()
    first.wait(10)
    asked = len(ray.requests)
    house.wait(lambda: len(ray.requests) > asked, "a step of the second")

    assert second.poll() is None


@pytest.mark.proof
def test_a_broker_that_is_away_does_not_fail_a_launch(house: House, ray: FakeRay) -> None:
    house.env["REDIS_URL"] = "redis://127.0.0.1:9/0"

    run_id = house.shell(
        QUEUE + "from jobs.processes.tasks import enqueue, submit\nenqueue(submit, run_id=run.pk)\nprint(run.pk)"
    )

    assert run_id.startswith("r-")
    house.start("reconcile")
    house.wait(lambda: ray.submitted, "the submission by the reconciler")
