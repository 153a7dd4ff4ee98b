"""Roles with one fault each, to see that the engine notices."""

import math
import os
import time
from typing import Any

import jobs.engine.roles.gloo_transfer as gloo_transfer
from jobs.engine.algorithm import Counts, Loss, PolicyOutputs
from jobs.engine.batch import Batch
from jobs.engine.roles.generator import Generator
from jobs.engine.roles.parts import PartFile
from jobs.engine.roles.policy import Policy
from jobs.engine.roles.trained_model import Update


class DeafGenerator(Generator):
    """Takes part in the first sync only; afterwards it receives the weights and throws them away."""

    _num_syncs = 0

    def start_update(self) -> None:
        """Nothing is prepared, after the first time."""
        if self._num_syncs == 0:
            super().start_update()

    def receive_update(self, metadata: dict[str, list[Any]]) -> None:
        """Receive, to keep the sender going, and forget."""
        if self._num_syncs == 0:
            super().receive_update(metadata)
            return
        import torch

        engine = self._llm.llm_engine.engine_core.engine_core.model_executor.driver_worker.worker.weight_transfer_engine
        for dtype, shape in zip(metadata["dtype_names"], metadata["shapes"], strict=True):
            engine._group.broadcast(torch.empty(shape, dtype=getattr(torch, dtype)), 0).wait()

    def finish_update(self) -> None:
        """Nothing is put to use, after the first time."""
        if self._num_syncs == 0:
            super().finish_update()
        self._num_syncs += 1


class SwitchableGenerator(Generator):
    """Can finish an update the wrong way."""

    def finish_without_reset(self) -> None:
        """Leave the prefix cache of the old weights."""
        self._llm.collective_rpc("finish_weight_update")

    def finish_without_head(self) -> None:
        """Leave the packed copy of the tied output layer."""
        refresh = gloo_transfer.refresh_tied_head
        gloo_transfer.refresh_tied_head = lambda *_: None
        try:
            self.finish_update()
        finally:
            gloo_transfer.refresh_tied_head = refresh


class FarPolicy(Policy):
    """A policy rank on a node that shares no file system with the driver: rank 1 finds another directory there."""

    def __init__(self, *, rank: int, **arguments: Any) -> None:
        super().__init__(rank=rank, **arguments)
        self._root = f"/nowhere-{os.getpid()}" if rank == 1 else ""

    def sees(self, folder: str, token: str) -> bool:
        """Look on this rank's own disk."""
        return super().sees(self._root + folder, token)

    def save_parts(self, folder: str, limit_bytes: int) -> list[PartFile]:
        """Write to this rank's own disk."""
        return super().save_parts(self._root + folder, limit_bytes)

    def load_parts(self, folder: str, states: list[str], limit_bytes: int) -> None:
        """Read from this rank's own disk."""
        super().load_parts(self._root + folder, states, limit_bytes)


class WatchedPolicy(Policy):
    """Tells how much of the model's file this rank has read."""

    def _load(self) -> Any:
        from jobs.engine.roles import sharded_load

        read, self._read_bytes = sharded_load.read_outline, float("nan")

        def watch(file: Any, *_: object, **_more: object) -> Any:
            tensors = read(file)
            held = [t for t in tensors.values() if t.device.type != "meta"]
            self._read_bytes = float(sum(t.numel() * t.element_size() for t in held))
            return tensors

        sharded_load.read_outline = watch
        try:
            return super()._load()
        finally:
            sharded_load.read_outline = read

    def readings(self) -> dict[str, float]:
        """As ever, and those bytes; NaN for all of the file."""
        return {**super().readings(), "read_bytes": self._read_bytes}


class MovedPolicy(Policy):
    """A policy rank whose states leave for the host in turns, as those on a GPU do."""

    def states_off(self) -> None:
        """As on a GPU; host memory cannot be pinned here."""
        self._moves.states_off()

    def weights_off(self) -> None:
        """As on a GPU."""
        self._moves.weights_off()

    def back(self) -> None:
        """As on a GPU."""
        self._moves.back()


class DivergingPolicy(Policy):
    """The loss is not a number from the fourth step on."""

    _num_updates = 0

    def update(self, *arguments: Any) -> list[Update]:
        """Count the steps."""
        self._num_updates += 1
        return super().update(*arguments)

    def _loss(self, micro: Batch, counts: Counts) -> Loss:
        loss, shares = super()._loss(micro, counts)
        return (loss * math.nan if self._num_updates >= 4 else loss), shares


class LatePolicy(Policy):
    """Rank 1 sleeps before each forward pass."""

    def __init__(self, *, rank: int, **arguments: Any) -> None:
        super().__init__(rank=rank, **arguments)
        self._delay = 0.15 if rank == 1 else 0.0

    def _outputs(self, batch: Batch) -> PolicyOutputs:
        time.sleep(self._delay)
        return super()._outputs(batch)
