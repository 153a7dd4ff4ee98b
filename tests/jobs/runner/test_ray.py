"""The runner as a real Ray job: orphan processes of Ray's workers are found, Ray's own processes spared, its stop
obeyed."""

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from tests.jobs.runner.conftest import House
from tests.jobs.runner.fake_console import FakeConsole
from tests.journeys.environments import make_environment
from tests.ray_head import RayHead
from tests.waiting import wait_until
from tests.warm_workers.workers import cold_workers

pytestmark = pytest.mark.ray

SECRET = "known-to-the-run-alone"
SHOWN_BY_RAY = ("/api/jobs/", "/api/v0/runtime_envs", "/api/v0/actors?detail=1", "/api/v0/workers?detail=1")
"""What Ray tells of jobs and processes to whoever may ask it."""
PREAMBLE = """
import subprocess
import ray
ray.init(log_to_driver=False)
@ray.remote(num_cpus=1, lifetime="detached", name=f"survivor-{os.getpid()}")
class Survivor:
    def variables(self):
        return [os.environ.get(name, "") for name in ("PLAIN_NAME", "NCCL_DEBUG", "PITWALL_SECRETS")]
    def leave_a_child(self):
        return subprocess.Popen(["sleep", "600"], start_new_session=True).pid
survivor = Survivor.remote()
(run_dir / "variables").write_text(json.dumps(ray.get(survivor.variables.remote())))
(run_dir / "child").write_text(str(ray.get(survivor.leave_a_child.remote())))
metric(1)
"""
OWN_STARTS = {
    "verl": """
from hydra import compose, initialize_config_module
from verl.trainer.main_ppo import run_ppo
with initialize_config_module("verl.trainer.config", version_base=None):
    config = compose("ppo_trainer")
run_ppo(config, task_runner_class=Worker)
""",
    "openrlhf": """
from openrlhf.cli import train_ppo_ray
class Started(Exception):
    pass
def no_strategy(args):
    raise Started
train_ppo_ray.get_strategy = no_strategy
try:
    train_ppo_ray.train(None)
except Started:
    ray.get(Worker.remote().run.remote(None))
""",
}
"""How the trainers themselves start Ray for reinforcement learning, up to where they would need a GPU."""
WORKER = """
import ray
@ray.remote(num_cpus=1)
class Worker:
    def run(self, config):
        seen = [os.environ.get(name, "") for name in ("PLAIN_NAME", "NCCL_DEBUG", "PITWALL_SECRETS")]
        (run_dir / "variables").write_text(json.dumps(seen))
"""


class Jobs:
    """The Job API of the tests' Ray head."""

    def __init__(self, head: RayHead) -> None:
        self.api = head.client()

    def submit(self, house: House, module: str, **more: str) -> str:
        env = {**house.environ(), "RAY_JOB_STOP_WAIT_TIME_S": "120", **more}
        body = {"entrypoint": f"cd {house.folder} && {sys.executable} -m {module}", "runtime_env": {"env_vars": env}}
        answer = wait_until(lambda: self._accepted(body), 60, "Ray took no job")
        return str(answer.json()["submission_id"])

    def _accepted(self, body: dict[str, object]) -> httpx.Response | None:
        answer = self.api.post("/api/jobs/", json=body)
        return None if answer.status_code == 500 else answer.raise_for_status()  # 500: its agent has not come up

    def status(self, job: str) -> str:
        return str(self.api.get(f"/api/jobs/{job}").json()["status"])

    def end_of(self, job: str, seconds: float = 600) -> str:
        wait_until(lambda: self.status(job) in ("SUCCEEDED", "FAILED", "STOPPED"), seconds)
        answer = self.api.get(f"/api/jobs/{job}").json()
        print(answer["message"])
        return str(answer["status"])


@pytest.fixture
def head(ray_head: RayHead) -> Iterator[Jobs]:
    jobs = Jobs(ray_head)
    with cold_workers(ray_head.environ):  # a forked one shows the variables of its server, so no mark of the attempt
        yield jobs
    jobs.api.close()


def is_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def runners(house: House) -> list[psutil.Process]:
    found = []
    for process in house.marked():
        with contextlib.suppress(psutil.Error):  # it has ended since
            found += [process] if process.cmdline()[1:] == ["-m", "jobs.runner"] else []
    return found


def child_of(house: House) -> int:
    return int((house.run_dir / "child").read_text())


@pytest.mark.slow("a job of Ray, an actor that outlives it, and a job that ends it")
def test_what_an_actor_left_is_ended_and_the_job_succeeds(house: House, console: FakeConsole, head: Jobs) -> None:
    house.trainer(PREAMBLE)
    console.variables, console.secrets = {"NCCL_DEBUG": "INFO"}, {"PLAIN_NAME": SECRET}

    job = head.submit(house, "jobs.runner", PYTHONPATH=str(house.folder))
    wait_until((house.run_dir / "child").exists, 120)
    shown = [head.api.get(address).text for address in SHOWN_BY_RAY]

    assert json.loads((house.run_dir / "variables").read_text()) == [SECRET, "INFO", "PLAIN_NAME"]
    assert console.run in shown[0]
    assert "worker_process_setup_hook" in shown[1]
    assert [SECRET in text for text in shown] == [False] * len(SHOWN_BY_RAY)
    assert head.end_of(job) == "SUCCEEDED"  # so Ray's supervisor of the job was not taken for an orphan
    assert console.terminal_event["state"] == "finished"
    cleanup = console.terminal_event["meta"]
    assert cleanup["processes_left"] == 0
    assert any("sleep 600" in text for text in cleanup["ended"])
    assert any("Survivor" in text for text in cleanup["ended"])
    assert is_gone(child_of(house))
    wait_until(lambda: house.marked() == [], 60)  # the supervisor leaves with its job


@pytest.mark.proof
@pytest.mark.parametrize("trainer", OWN_STARTS)
def test_workers_of_another_trainer_have_the_variables_when_it_starts_ray_its_own_way(
    house: House, console: FakeConsole, head: Jobs, trainer: str
) -> None:
    python = make_environment(trainer)
    (packages,) = Path(python).parent.parent.glob("lib/python*/site-packages")
    house.trainer(WORKER + OWN_STARTS[trainer] + "metric(1)\n")
    console.variables, console.secrets = {"NCCL_DEBUG": "INFO"}, {"PLAIN_NAME": SECRET}

    job = head.submit(house, "jobs.runner", PYTHONPATH=f"{house.folder}{os.pathsep}{packages}")

    assert head.end_of(job) == "SUCCEEDED"
    assert json.loads((house.run_dir / "variables").read_text()) == [SECRET, "INFO", "PLAIN_NAME"]


@pytest.mark.proof
def test_folders_of_a_deleted_run_are_removed_through_the_nodes_of_ray(
    house: House, console: FakeConsole, head: Jobs
) -> None:
    del console
    for name in ("r-1/a1/checkpoints/step-2", "r-2/a1"):
        (house.run_root / name).mkdir(parents=True)
    rows = head.api.get("/api/v0/nodes").json()["data"]["result"]["result"]
    node = next(row["node_id"] for row in rows if row["state"] == "ALIVE")
    named = {"PITWALL_FOLDERS": json.dumps(["r-1"])}

    lost = head.submit(house, "jobs.runner.remove_folders", **named, PITWALL_NODES=json.dumps([node, "0" * 56]))
    assert head.end_of(lost) == "FAILED"  # a node gave no answer: it is tried again
    assert not (house.run_root / "r-1").exists()
    again = head.submit(house, "jobs.runner.remove_folders", **named, PITWALL_NODES=json.dumps([node, node]))

    assert head.end_of(again) == "SUCCEEDED"
    assert [path.name for path in house.run_root.iterdir()] == ["r-2"]


def test_a_stop_from_ray_lets_the_trainer_save_and_the_terminal_event_arrive(
    house: House, console: FakeConsole, head: RayHead
) -> None:
    house.trainer(PREAMBLE + "wait_until(commands)\nmetric(2)\nsys.exit(10)\n")
    job = head.submit(house, "jobs.runner")
    console.wait_for(lambda: console.of_kind("metric"))
    head.api.post(f"/api/jobs/{job}/stop").raise_for_status()

    assert head.end_of(job) == "STOPPED"
    assert console.terminal_event["state"] == "stopped"
    assert console.terminal_event["meta"]["processes_left"] == 0
    assert is_gone(child_of(house))


def test_a_killed_runner_is_cleaned_up_by_a_job_of_its_own(house: House, console: FakeConsole, head: Jobs) -> None:
    house.trainer(PREAMBLE + "time.sleep(600)\n")
    job = head.submit(house, "jobs.runner")
    console.wait_for(lambda: console.of_kind("metric"))
    (runner,) = wait_until(lambda: runners(house), 60)

    runner.kill()
    assert head.end_of(job) == "FAILED"
    with console.condition:
        console.is_fenced = True  # the console has ended the attempt meanwhile
    cleanup = head.submit(house, "jobs.runner.cleanup")

    assert head.end_of(cleanup) == "SUCCEEDED"
    assert console.terminal_event["state"] == "failed"
    assert console.terminal_event["meta"]["processes_left"] == 0
    assert is_gone(child_of(house))
