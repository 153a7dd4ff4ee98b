"""Processes that we did not write say who they are and record: those that torchrun starts, and Ray's workers."""

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from jobs.runner.captures.attachable import RAY_JOB, AttachableWorkers, attach_environment
from profiling.captures.capture import recordings
from tests.ray_head import RayHead
from tests.waiting import wait_until
from tests.warm_workers.workers import cold_workers

WAIT_SECONDS = 120.0
WORK = """
import os, time
from pathlib import Path
def work(end):
    import torch  # here: a driver of Ray does without
    a = torch.ones(32, 32)
    while not Path(end).exists():
        a = torch.tanh(a @ a / 32)
        time.sleep(0.01)
"""


@contextmanager
def started(folder: Path, body: str, *launcher: str, **env: str) -> Iterator[None]:
    """Run a program as a trainer of a run in `folder` until the file `end` is there."""
    (folder / "program.py").write_text(WORK + textwrap.dedent(body))
    environ = attach_environment({**os.environ, **env}, folder)
    (folder / "attach").mkdir()
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, *launcher, "program.py"], cwd=folder, env=environ, stdout=log, stderr=subprocess.STDOUT
        )
        try:
            yield
            (folder / "end").touch()
            assert process.wait(WAIT_SECONDS) == 0, (folder / "log").read_text()
        finally:
            process.kill()
            process.wait()


def workers_of(folder: Path, role_of: Callable[[str], str]) -> AttachableWorkers:
    return AttachableWorkers(folder, role_of=role_of, no_nsys="none")


def record(workers: AttachableWorkers, folder: Path, names: list[str]) -> list[str]:
    """Record the workers of these names for a moment, and return the names of the files."""
    there = workers.there()
    about = {"tool": "stacks", "folder": str(recordings(folder))}
    asked = [(there[name], workers.ask(there[name], "start", name=name, **about)) for name in names]
    wait_until(lambda: all(workers.answer(worker, number) for worker, number in asked), WAIT_SECONDS)
    stopped = [(worker, workers.ask(worker, "stop")) for worker, _ in asked]
    wait_until(lambda: all(workers.answer(worker, number) for worker, number in stopped), WAIT_SECONDS)
    told = [workers.answer(worker, number) or {} for worker, number in stopped]
    assert [message["problem"] for message in told] == [""] * len(names)
    return [Path(message["path"]).name for message in told]


@pytest.mark.proof
def test_every_rank_that_torchrun_starts_is_a_worker_and_torchrun_is_none(tmp_path: Path) -> None:
    body = """
    import torch.distributed as dist
    dist.init_process_group("gloo")
    work("end")
    dist.destroy_process_group()
    """
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nnodes=1", "--nproc-per-node=2")
    with started(tmp_path, body, *torchrun):
        workers = workers_of(tmp_path, lambda actor: "policy" if not actor else "")
        wait_until(lambda: len(workers.there()) == 2, WAIT_SECONDS)

        assert sorted(workers.there()) == ["policy-0", "policy-1"]
        assert record(workers, tmp_path, ["policy-1"]) == ["policy-1.stacks.txt"]


@pytest.mark.ray
def test_ray_workers_are_named_by_their_class(ray_head: RayHead, tmp_path: Path) -> None:
    body = """
    import ray
    @ray.remote
    class PolicyModelActor:
        def train(self, rank, size):
            import torch.distributed as dist
            dist.init_process_group("gloo", init_method=f"file://{os.getcwd()}/group", rank=rank, world_size=size)
            work(END)
    END = os.path.abspath("end")
    ray.init(log_to_driver=False)
    actors = [PolicyModelActor.remote() for _ in range(2)]
    ray.get([actor.train.remote(rank, 2) for rank, actor in enumerate(actors)])
    """
    body = body.replace("{os.getcwd()}", str(tmp_path))
    env = ray_head.environment | {RAY_JOB: '{"runtime_env": {"env_vars": {"A": "b"}}}'}
    with cold_workers(ray_head.environ), started(tmp_path, body, **env):
        workers = workers_of(tmp_path, lambda actor: {"PolicyModelActor": "policy"}.get(actor, ""))
        wait_until(lambda: len(workers.there()) == 2, WAIT_SECONDS)

        assert sorted(workers.there()) == ["policy-0", "policy-1"]
        assert record(workers, tmp_path, ["policy-0"]) == ["policy-0.stacks.txt"]


@pytest.mark.parametrize("odd", ['"pid": -5', '"rank": Infinity', '"pid": 1e999', '"pid": 1e30', '"rank": "x"'])
def test_a_process_that_tells_nonsense_keeps_nobody_else_from_being_seen(tmp_path: Path, odd: str) -> None:
    workers = workers_of(tmp_path, lambda _actor: "policy")
    fine = f'"pid": {os.getpid()}, "rank": 0, "actor": ""'
    (tmp_path / "attach" / "1.worker.json").write_text(f"{{{fine}}}")
    (tmp_path / "attach" / "2.worker.json").write_text(f"{{{fine}, {odd}}}")

    assert list(workers.there()) == ["policy-0"]
