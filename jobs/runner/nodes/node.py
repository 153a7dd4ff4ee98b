"""Readings of a node: CPU, memory, disk, devices; on the runner's own also what the trainer's processes take of it."""

import contextlib
import shutil
import time
from pathlib import Path

import psutil

from jobs.runner.nodes.cpu_time import RunCpuTime
from jobs.runner.nodes.devices import device_readings
from jobs.runner.trainer import memory_of_tree

PERIOD_SECONDS = 2.0
MIN_CPU_SECONDS = 0.5


class NodeReader:
    """Reads the node it is made on. `cpu_percent` is the mean over all cores since the reading before.

    `run_cpu_cores` of its `cpu_cores` cores were the run's own since then: what the node used beyond that, other
    programs did. To be used from one thread: psutil keeps that time by thread.
    """

    def __init__(self, *, run_dir: Path, run: str) -> None:
        self._run_dir = run_dir
        self._own = RunCpuTime(run=run)
        psutil.cpu_percent()  # the first call only starts the clock
        self._cpu_read_at = time.monotonic()

    def read(self) -> dict[str, float]:
        """Return the readings; names end in their unit. No CPU use where the time was too short for it."""
        memory = psutil.virtual_memory()
        values = {
            "memory_used_bytes": float(memory.total - memory.available),
            "memory_total_bytes": float(memory.total),
        }
        now = time.monotonic()
        if now - self._cpu_read_at >= MIN_CPU_SECONDS:
            values["cpu_percent"] = psutil.cpu_percent()
            values["cpu_cores"] = float(psutil.cpu_count() or 1)
            values["run_cpu_cores"] = self._own.cores()
            self._cpu_read_at = now
        with contextlib.suppress(OSError):
            disk = shutil.disk_usage(self._run_dir)
            values |= {"disk_free_bytes": float(disk.free), "disk_total_bytes": float(disk.total)}
        with contextlib.suppress(Exception):  # a driver that hiccups costs its readings, not the run
            values |= device_readings()
        return values


class NodeSampler:
    """Takes a reading of the runner's own node when one is due, and of what the trainer's processes take of it."""

    def __init__(self, *, run_dir: Path, run: str) -> None:
        self._reader = NodeReader(run_dir=run_dir, run=run)
        self._due_at = 0.0

    def read_if_due(self, now: float, *, trainer_pid: int) -> dict[str, float]:
        """Return the readings, or nothing if the last ones are younger than two seconds."""
        if now < self._due_at:
            return {}
        self._due_at = now + PERIOD_SECONDS
        num_processes, rss = memory_of_tree(trainer_pid)
        own = {"trainer_memory_bytes": float(rss), "trainer_processes": float(num_processes)}
        return self._reader.read() | own
