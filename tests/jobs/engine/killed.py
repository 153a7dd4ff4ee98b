"""Program of test_first_failure: argument RUN_DIR. Kills real actors of real workers; writes who is blamed to
`found.json`."""

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import ray

from jobs.catalog.spec.parse import parse_spec
from jobs.catalog.spec.runspec import RunSpec
from jobs.engine.failures.failure_cause import cause_of
from jobs.engine.workers.worker import Worker, WorkerFailed
from jobs.engine.workers.worker_group import WorkerGroup
from tests.jobs.engine.ranks import make_workers

ROLE = "tests.jobs.engine.killed:LinkedRole"
PATIENCE = 60.0


class LinkedRole:
    """A rank that is connected with the others by gloo, and does nothing else."""

    def __init__(self, rank: int, world_size: int, host: str, port: int) -> None:
        import torch.distributed as distributed

        distributed.init_process_group("gloo", init_method=f"tcp://{host}:{port}", rank=rank, world_size=world_size)

    def pid(self) -> int:
        """Return the process."""
        return os.getpid()

    def draw(self, begun: str) -> None:
        """Say that it has begun, and be at work."""
        Path(begun).touch()
        time.sleep(PATIENCE)

    def reduce(self) -> float:
        """Wait for all ranks; raises when one is gone."""
        import torch
        import torch.distributed as distributed

        value = torch.ones(1)
        distributed.all_reduce(value)
        return float(value)


def linked(workers: WorkerGroup) -> list[int]:
    """Connect the policy ranks; return their processes."""
    host, port = workers.address_of(workers.policies[0])
    size = len(workers.policies)
    workers.gather([p.start(ROLE, rank=p.rank, world_size=size, host=host, port=port) for p in workers.policies])
    return [int(pid) for pid in workers.gather([p.call("pid") for p in workers.policies])]


def kill(pid: int) -> None:
    """Kill a process and return when it is gone."""
    os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(pid).wait(PATIENCE)


def in_its_constructor(workers: WorkerGroup, run_dir: Path) -> None:
    """Rank 0 is killed as soon as it is there: its constructor has opened the log, and may be at work yet."""
    log = run_dir / "log" / "policy-0.stdout"
    end = time.monotonic() + PATIENCE
    pid = None
    while pid is None:
        assert time.monotonic() < end, "no process opened the log"
        time.sleep(0.005)
        if log.exists():  # to look at every process takes a core
            pid = next((p.pid for p in psutil.process_iter() if _writes(p, str(log))), None)
    kill(pid)
    workers.address_of(workers.policies[0])


def between_two_calls(workers: WorkerGroup, run_dir: Path) -> None:
    """Rank 1 is killed when nothing is asked of it, and only rank 0 is asked for what cannot be without it."""
    del run_dir
    pids = linked(workers)
    assert workers.gather([p.call("reduce", step=4) for p in workers.policies]) == [2.0, 2.0]
    kill(pids[1])
    workers.gather([workers.policies[0].call("reduce", step=5)])


def in_a_rollout(workers: WorkerGroup, run_dir: Path) -> None:
    """Rank 1 is killed while both draw, as colocated ranks do."""
    pids = linked(workers)
    begun = run_dir / "begun"
    phase = {"step": 3, "phase": "rollout"}
    calls = [p.call("draw", str(begun if p.rank else begun.with_name("other")), **phase) for p in workers.policies]
    end = time.monotonic() + PATIENCE
    while not begun.exists():
        assert time.monotonic() < end, "the call did not begin"
        time.sleep(0.005)
    kill(pids[1])
    workers.gather(calls)


def one_after_the_other(workers: WorkerGroup, run_dir: Path) -> None:
    """Rank 1 is killed, then rank 0, both before the driver asks for anything."""
    del run_dir
    pids = linked(workers)
    kill(pids[1])
    _until_dead(workers.policies[1])
    kill(pids[0])
    _until_dead(workers.policies[0])
    workers.gather([p.call("reduce", step=6) for p in workers.policies])


def _writes(process: psutil.Process, log: str) -> bool:
    with contextlib.suppress(OSError):
        return str(Path(f"/proc/{process.pid}/fd/1").readlink()) == log
    return False


def _until_dead(worker: Worker) -> None:
    """Return when Ray knows of the death."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        try:
            ray.get(worker.actor.__ray_ready__.remote(), timeout=PATIENCE)
        except ray.exceptions.ActorUnavailableError:  # a death that it does not know of yet
            time.sleep(0.2)
        except ray.exceptions.RayActorError:
            return


def blamed(case: Callable[[WorkerGroup, Path], None], spec: RunSpec, run_dir: Path) -> dict[str, Any]:
    """Return whose fault it is."""
    workers = make_workers(spec, run_dir)
    try:
        case(workers, run_dir)
    except WorkerFailed as failed:
        cause = cause_of(failed, step=failed.step, log_tail={})
        found = {"role": failed.role, "rank": failed.rank, "how": failed.how, "step": failed.step, "text": failed.text}
        return found | {"cause": cause["text"]}
    finally:
        workers.close()
    return {}


def main() -> None:
    """Try every case on the spec in the run directory."""
    run_dir = Path(sys.argv[1])
    ray.init(address=os.environ["RAY_ADDRESS"], log_to_driver=False, logging_level="ERROR")
    spec = parse_spec(json.loads((run_dir / "spec.json").read_text()))
    cases = (in_its_constructor, between_two_calls, in_a_rollout, one_after_the_other)
    found = {case.__name__: blamed(case, spec, run_dir / case.__name__) for case in cases}
    (run_dir / "found.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
