"""Readings of the node the runner sits on: CPU, memory, disk, devices, and what the trainer's processes take of it."""

import contextlib
import shutil
from pathlib import Path

import psutil

from jobs.runner.devices import device_readings
from jobs.runner.trainer import memory_of_tree

PERIOD_SECONDS = 2.0


class NodeSampler:
    """Takes a reading when one is due. `cpu_percent` is the mean over all cores since the reading before."""

    def __init__(self, *, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._due_at = 0.0
        psutil.cpu_percent()  # the first call only starts the clock

    def read_if_due(self, now: float, *, trainer_pid: int) -> dict[str, float]:
        """Return the readings, or nothing if the last ones are younger than two seconds."""
        if now < self._due_at:
            return {}
        self._due_at = now + PERIOD_SECONDS
        memory = psutil.virtual_memory()
        num_processes, rss = memory_of_tree(trainer_pid)
        values = {
            "cpu_percent": psutil.cpu_percent(),
            "memory_used_bytes": float(memory.total - memory.available),
            "memory_total_bytes": float(memory.total),
            "trainer_memory_bytes": float(rss),
            "trainer_processes": float(num_processes),
        }
        with contextlib.suppress(OSError):
            disk = shutil.disk_usage(self._run_dir)
            values |= {"disk_free_bytes": float(disk.free), "disk_total_bytes": float(disk.total)}
        with contextlib.suppress(Exception):  # a driver that hiccups costs its readings, not the run
            values |= device_readings()
        return values
