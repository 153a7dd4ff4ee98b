"""Bring the policy's weights to the rollout engines, through vLLM's weight-transfer lifecycle; the same calls on CPU
and GPU.
"""

import math
from typing import Any

from jobs.engine.workers.worker_group import WorkerGroup

_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


class WeightSync:
    """One broadcast group: policy rank 0 sends, every rollout worker receives.

    `num_bytes` is what one sync sends to each of them, in the policy's own types; 0 before `connect`.
    """

    def __init__(self, workers: WorkerGroup) -> None:
        self._workers = workers
        self._metadata: dict[str, list[Any]] = {}
        self.num_bytes = 0

    def connect(self) -> None:
        """Form the group; a collective of policy rank 0 and all rollout engines. Raises: WorkerFailed."""
        workers = self._workers
        first = workers.policies[0]
        (self._metadata,) = workers.gather([first.call("weight_metadata")])
        sizes = [
            _BYTES[d] * math.prod(s)
            for d, s in zip(self._metadata["dtype_names"], self._metadata["shapes"], strict=True)
        ]
        self.num_bytes = sum(sizes)
        host, port = workers.address_of(first)
        num_workers = workers.gather([g.call("num_workers") for g in workers.generators])
        world_size = 1 + sum(num_workers)
        joins = [first.call("open_transfer", host, port, world_size)]
        offset = 1
        for generator, count in zip(workers.generators, num_workers, strict=True):
            joins.append(generator.call("join_transfer", host, port, world_size, offset))
            offset += count
        workers.gather(joins)

    def sync(self, *, step: int) -> None:
        """Send all weights; when it returns every engine answers with them and with an empty prefix cache.

        `step` is where the spans of both sides are shown. Raises: WorkerFailed, also if an engine kept its cache.
        """
        workers = self._workers
        sending = [p.call("send_weights", step=step, phase="weight_sync") for p in workers.policies]
        taking = [g.call("take_weights", self._metadata, step=step, phase="weight_sync") for g in workers.generators]
        workers.gather(taking + sending)
