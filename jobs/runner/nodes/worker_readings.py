"""Memory of each process of a trainer that does not tell it itself, under the names of the built-in trainer's."""

import contextlib
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import psutil

from jobs.runner.captures.attachable import AttachableWorker
from jobs.runner.nodes.devices import device_bytes_by_pid
from jobs.runner.nodes.node import PERIOD_SECONDS


class WorkerReading(NamedTuple):
    """`memory_bytes`, and on GPUs `device_memory_bytes`, of the process of a role and rank."""

    role: str
    rank: int
    values: Mapping[str, float]


class WorkerSampler:
    """Reads the processes on this node that train. `there` returns those that have said who they are.

    Where the driver does not tell which process holds what, `say` is told so once.
    """

    def __init__(self, there: Callable[[], Iterable[AttachableWorker]], *, say: Callable[[str], None]) -> None:
        self._there, self._say = there, say
        self._due_at = 0.0
        self._has_said = False

    def read_if_due(self, now: float) -> Sequence[WorkerReading]:
        """Return the readings, none if the last ones are younger than two seconds; `now` is monotonic seconds."""
        if now < self._due_at:
            return ()
        self._due_at = now + PERIOD_SECONDS
        here = socket.gethostname()  # the number of a process on another node says nothing here
        workers = [worker for worker in self._there() if worker.node == here]
        on_device = {worker.pid for worker in workers if worker.device == "cuda"}
        held = device_bytes_by_pid() if on_device else {}
        if on_device and not self._has_said and not on_device & (held or {}).keys():
            self._has_said = True
            self._say(
                "Device memory by process is not known: the driver does not tell which of this run's processes holds "
                "what, as in a container with process numbers of its own. That of each device is."
            )
        readings = []
        for worker in workers:
            with contextlib.suppress(psutil.Error):  # it has just ended
                values = {"memory_bytes": float(psutil.Process(worker.pid).memory_info().rss)}
                if held and worker.pid in held:
                    values["device_memory_bytes"] = float(held[worker.pid])
                readings.append(WorkerReading(worker.role, worker.rank, values))
        return readings
