"""What each process of another trainer holds is read under the names that the built-in trainer's have."""

import os
import socket
from collections.abc import Callable
from typing import Any

import pytest

from jobs.runner.captures.attachable import AttachableWorker
from jobs.runner.nodes import worker_readings
from jobs.runner.nodes.worker_readings import WorkerSampler

GONE = 1 << 30  # more than any process has


def worker(pid: int = os.getpid(), **more: Any) -> AttachableWorker:
    about = {"role": "policy", "rank": 0, "node": socket.gethostname(), "device": "cpu", "problems": {}, **more}
    return AttachableWorker(pid=pid, **about)


def sampler(*workers: AttachableWorker, say: Callable[[str], None] = pytest.fail) -> WorkerSampler:
    return WorkerSampler(lambda: workers, say=say)


def test_processes_that_live_on_this_node_are_read_every_two_seconds() -> None:
    read = sampler(worker(rank=3), worker(GONE, rank=1), worker(rank=2, node="elsewhere"))

    ((role, rank, values),) = read.read_if_due(10.0)

    assert (role, rank, list(values)) == ("policy", 3, ["memory_bytes"])
    assert values["memory_bytes"] > 1e6
    assert read.read_if_due(11.9) == ()
    assert len(read.read_if_due(12.0)) == 1


def test_device_memory_is_that_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_readings, "device_bytes_by_pid", lambda: {os.getpid(): 5, 1: 7})

    ((_, _, values),) = sampler(worker(device="cuda")).read_if_due(0.0)

    assert values["device_memory_bytes"] == 5.0


@pytest.mark.parametrize("told", [None, {1: 7}])
def test_what_the_driver_does_not_tell_is_said_once(monkeypatch: pytest.MonkeyPatch, told: dict[int, int]) -> None:
    monkeypatch.setattr(worker_readings, "device_bytes_by_pid", lambda: told)
    said: list[str] = []
    read = sampler(worker(device="cuda"), say=said.append)

    readings = [*read.read_if_due(0.0), *read.read_if_due(2.0)]

    assert [list(reading.values) for reading in readings] == [["memory_bytes"]] * 2
    (text,) = said
    assert "Device memory by process is not known" in text
