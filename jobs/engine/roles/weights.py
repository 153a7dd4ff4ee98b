"""Bring the policy's weights to the rollout engines, through vLLM's weight-transfer lifecycle; the same calls on CPU
and GPU.
"""

import math
from typing import Any

from jobs.engine.workers.worker_group import WorkerGroup
from profiling.profile import mark

_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


class WeightSync:
    """One broadcast group: policy rank 0 sends, every rollout worker receives. Engines have devices of their own.

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
        self._count()
        host, port = workers.address_of(first)
        num_workers = workers.gather([g.call("num_workers") for g in workers.generators])
        world_size = 1 + sum(num_workers)
        joins = [first.call("open_transfer", host, port, world_size)]
        offset = 1
        for generator, count in zip(workers.generators, num_workers, strict=True):
            joins.append(generator.call("join_transfer", host, port, world_size, offset))
            offset += count
        workers.gather(joins)

    def _count(self) -> None:
        """Ask what a sync sends."""
        (self._metadata,) = self._workers.gather([self._workers.policies[0].call("weight_metadata")])
        sizes = [
            _BYTES[d] * math.prod(s)
            for d, s in zip(self._metadata["dtype_names"], self._metadata["shapes"], strict=True)
        ]
        self.num_bytes = sum(sizes)

    def sync(self, *, step: int) -> None:
        """Send all weights; when it returns every engine answers with them and with an empty prefix cache.

        `step` is where the spans of both sides are shown. Raises: WorkerFailed, also if an engine kept its cache.
        """
        workers = self._workers
        sending = [p.call("send_weights", step=step, phase="weight_sync") for p in workers.policies]
        taking = [g.call("take_weights", self._metadata, step=step, phase="weight_sync") for g in workers.generators]
        workers.gather(taking + sending)

    def is_turn(self, role: str) -> bool:  # noqa: ARG002 (they never wait)
        """Return whether a role ("policy" or "vllm") has the devices that it needs: always."""
        return True

    def engines_turn(self, *, step: int) -> None:
        """Let the engines draw; see TakingTurns."""

    def policies_turn(self, *, step: int, is_renewed: bool) -> None:
        """Let the policy work; see TakingTurns."""


class TakingTurns(WeightSync):
    """Each rollout engine sits on the devices of policy ranks. While the one works, the other keeps nothing there.

    An engine that draws is awake and the ranks' states are on the host; else it sleeps. Weights are handed over in
    between, when both have theirs on the device: engine k reads them from the memory of the ranks that it shares
    devices with, filling by filling. The calls are the same on CPU, where they move no memory (Device).
    """

    def __init__(self, workers: WorkerGroup) -> None:
        super().__init__(workers)
        self._is_drawing = False  # an engine goes to sleep as soon as it is loaded
        self._is_current = False

    def connect(self) -> None:
        """Get ready to lend weights to every engine. Raises: WorkerFailed."""
        workers = self._workers
        self._count()
        spread = len(workers.policies) // len(workers.generators)
        opened = [p.call("open_lender", is_source=p.rank % spread == 0) for p in workers.policies]
        opened += [g.call("join_shared", g.rank * spread) for g in workers.generators]
        workers.gather(opened)

    def sync(self, *, step: int) -> None:
        """Hand all weights over; when it returns it is the engines' turn, with these weights and an empty cache."""
        if self._is_drawing:
            self.policies_turn(step=step, is_renewed=True)
        self._is_current = False
        self.engines_turn(step=step)

    def is_turn(self, role: str) -> bool:
        """Return whether it is the turn of "policy" or "vllm"."""
        return self._is_drawing == (role == "vllm")

    def engines_turn(self, *, step: int) -> None:
        """Let the engines draw, with weights that are handed over if theirs are not those of the policy."""
        if self._is_drawing:
            return
        self._policies("states_off", step)
        self._engines("wake_weights", step)
        if not self._is_current:
            self._hand_over(step)
        self._policies("weights_off", step)
        self._engines("wake_cache", step)
        self._is_drawing = self._is_current = True

    def policies_turn(self, *, step: int, is_renewed: bool) -> None:
        """Let the policy work. `is_renewed`: it is going to learn, so the engines need not keep its weights of now."""
        if not self._is_drawing:
            return
        self._engines("sleep", step, 2 if is_renewed else 1)
        self._policies("back", step)
        self._is_drawing, self._is_current = False, not is_renewed

    def _hand_over(self, step: int) -> None:
        self._engines("start_update", step)
        while (filling := _merged(self._policies("lend_weights", step))) is not None:
            self._engines("read_update", step, filling)
        self._engines("finish_update", step)
        self._policies("end_lending", step)

    def _policies(self, method: str, step: int) -> list[Any]:
        workers = self._workers
        return workers.gather([p.call(method, step=step, phase="weight_sync") for p in workers.policies])

    def _engines(self, method: str, step: int, *arguments: Any) -> None:
        workers = self._workers
        workers.gather([g.call(method, *arguments, step=step, phase="weight_sync") for g in workers.generators])


def _merged(fillings: list[dict[str, Any] | None]) -> dict[str, Any] | None:
    """Return the filling that all ranks have laid out, with where each has it; None past the last."""
    there = [filling for filling in fillings if filling is not None]
    if not there:
        return None
    handles = {device: handle for filling in there for device, handle in filling["ipc_handles"].items()}
    return there[0] | {"ipc_handles": handles}


def weight_sync(workers: WorkerGroup) -> WeightSync | None:
    """Return how weights come to the engines of a run; None where it has none."""
    if not workers.generators:
        return None
    return TakingTurns(workers) if workers.share_devices else WeightSync(workers)


class Turns:
    """Whose turn it is to use the devices: with engines of their own, or none, always everybody's."""

    def __init__(self, weights: WeightSync | None) -> None:
        self._weights = weights

    def of_engines(self, *, step: int) -> None:
        """Let the rollout engines draw, where they take turns with the policy."""
        if self._weights is not None and not self._weights.is_turn("vllm"):
            with mark("weight_sync", step=step):
                self._weights.engines_turn(step=step)

    def of_policy(self, *, step: int, is_renewed: bool = False) -> None:
        """Let the policy work, where it takes turns; `is_renewed` if it will learn before the engines draw again."""
        if self._weights is not None and not self._weights.is_turn("policy"):
            with mark("weight_sync", step=step):
                self._weights.policies_turn(step=step, is_renewed=is_renewed)
