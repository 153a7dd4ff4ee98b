"""The runner as a real Ray job: leftovers of Ray's workers are found, Ray's own processes spared, its stop obeyed."""

import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from console.embedded.ray_head import answers, ray_service
from tests.jobs.runner.conftest import House
from tests.jobs.runner.fake_console import FakeConsole
from tests.jobs.runner.waiting import wait_until

pytestmark = pytest.mark.ray

PREAMBLE = """
import subprocess
import ray
ray.init(log_to_driver=False)
@ray.remote(num_cpus=1, lifetime="detached", name=f"survivor-{os.getpid()}")
class Survivor:
    def leave_a_child(self):
        return subprocess.Popen(["sleep", "600"], start_new_session=True).pid
survivor = Survivor.remote()
(run_dir / "child").write_text(str(ray.get(survivor.leave_a_child.remote())))
metric(1)
"""


class RayHead:
    """A Ray head of the tests' own, and its Job API."""

    def __init__(self, folder: Path) -> None:
        token = secrets.token_hex(16)
        service, address = ray_service(folder, os.environ, token=token, web_port=0)
        self._process = subprocess.Popen(
            service.argv, env=dict(service.env), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self.api = httpx.Client(
            base_url=address, headers={"Authorization": f"Bearer {token}"}, trust_env=False, timeout=40
        )
        wait_until(lambda: answers(address, token), 60)
        wait_until(lambda: self.api.get("/api/v0/nodes").json()["data"]["result"]["result"], 60)

    def submit(self, house: House, module: str) -> str:
        env = {**house.environ(), "RAY_JOB_STOP_WAIT_TIME_S": "20"}
        body = {"entrypoint": f"cd {house.folder} && {sys.executable} -m {module}", "runtime_env": {"env_vars": env}}
        answer = self.api.post("/api/jobs/", json=body)
        answer.raise_for_status()
        return str(answer.json()["submission_id"])

    def status(self, job: str) -> str:
        return str(self.api.get(f"/api/jobs/{job}").json()["status"])

    def end_of(self, job: str, seconds: float = 60) -> str:
        wait_until(lambda: self.status(job) in ("SUCCEEDED", "FAILED", "STOPPED"), seconds)
        answer = self.api.get(f"/api/jobs/{job}").json()
        print(answer["message"])
        return str(answer["status"])

    def close(self) -> None:
        self.api.close()
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(60)


@pytest.fixture(scope="module")
def head() -> Iterator[RayHead]:
    folder = Path(tempfile.mkdtemp(prefix="pw-ray-"))  # short: Ray puts sockets below it
    made = RayHead(folder)
    yield made
    made.close()
    shutil.rmtree(folder, ignore_errors=True)


def is_gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def child_of(house: House) -> int:
    return int((house.run_dir / "child").read_text())


def test_what_an_actor_left_is_ended_and_the_job_succeeds(house: House, console: FakeConsole, head: RayHead) -> None:
    house.trainer(PREAMBLE)

    job = head.submit(house, "jobs.runner")

    assert head.end_of(job) == "SUCCEEDED"  # so Ray's supervisor of the job was not taken for a leftover
    assert console.last_word["state"] == "finished"
    proof = console.last_word["meta"]
    assert proof["processes_left"] == 0
    assert any("sleep 600" in text for text in proof["ended"])
    assert any("Survivor" in text for text in proof["ended"])
    assert is_gone(child_of(house))
    wait_until(lambda: house.marked() == [], 10)  # the supervisor leaves with its job


def test_a_stop_from_ray_lets_the_trainer_save_and_the_last_word_arrive(
    house: House, console: FakeConsole, head: RayHead
) -> None:
    house.trainer(PREAMBLE + "wait_until(commands)\nmetric(2)\nsys.exit(10)\n")
    job = head.submit(house, "jobs.runner")
    console.wait_for(lambda: console.of_kind("metric"), 60)
    head.api.post(f"/api/jobs/{job}/stop").raise_for_status()

    assert head.end_of(job) == "STOPPED"
    assert console.last_word["state"] == "stopped"
    assert console.last_word["meta"]["processes_left"] == 0
    assert is_gone(child_of(house))


def test_a_killed_runner_is_cleaned_up_by_a_job_of_its_own(house: House, console: FakeConsole, head: RayHead) -> None:
    house.trainer(PREAMBLE + "time.sleep(600)\n")
    job = head.submit(house, "jobs.runner")
    console.wait_for(lambda: console.of_kind("metric"), 60)
    (runner,) = [p for p in house.marked() if p.cmdline()[1:] == ["-m", "jobs.runner"]]

    runner.kill()
    assert head.end_of(job) == "FAILED"
    with console.condition:
        console.is_fenced = True  # the console has ended the attempt meanwhile
    cleanup = head.submit(house, "jobs.runner.cleanup")

    assert head.end_of(cleanup) == "SUCCEEDED"
    assert console.last_word["state"] == "failed"
    assert console.last_word["meta"]["processes_left"] == 0
    assert is_gone(child_of(house))
