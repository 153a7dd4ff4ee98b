"""Move what a policy rank holds to host memory while a rollout engine has its device, and back.

DeepSpeed's own `offload_states` does it in ZeRO-1 and 2. It has none for a plain optimizer (ZeRO-0), and in ZeRO-3 only
for an optimizer that is compiled on the spot; there the tensors are moved one by one.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor


class StateMoves:
    """Of one DeepSpeed engine. First its states leave, then, once they were sent, its weights; both come back together.

    `is_pinned`: host memory from which a GPU copies fastest. With `is_on_host` masters and optimizer states are there
    for good, and DeepSpeed must not bring them to the device. The tensors stay the same objects, and only what they
    hold moves, so whoever knows them goes on knowing them. All ranks make the same calls.
    """

    def __init__(self, engine: Any, *, stage: int, is_pinned: bool, is_on_host: bool = False) -> None:
        self._engine, self._stage, self._is_pinned, self._is_on_host = engine, stage, is_pinned, is_on_host
        self._moved: list[tuple[Tensor, torch.device]] = []

    def states_off(self) -> None:
        """Move optimizer states, float32 copies of the weights and kept gradients."""
        if self._has_own_moves:
            from deepspeed.runtime.zero.offload_config import OffloadStateTypeEnum as State

            states = [] if self._is_on_host else [State.hp_params, State.optim_states]
            self._offload([State.lp_grads, *states])
        else:
            self._move(self._states())

    def weights_off(self) -> None:
        """Move the weights as well; in ZeRO-3 a rank's shards stay."""
        if self._has_own_moves:
            from deepspeed.runtime.zero.offload_config import OffloadStateTypeEnum as State

            self._offload([State.lp_params])
            self._move(p for p in self._engine.module.parameters() if not p.requires_grad)  # it moves what is trained
        elif self._stage == 0:
            self._move(self._engine.module.parameters())

    def back(self) -> None:
        """Bring all back to where it was."""
        if self._has_own_moves:
            self._engine.reload_states()
        for tensor, device in self._moved:
            tensor.data = tensor.data.to(device)
        self._moved.clear()

    @property
    def _has_own_moves(self) -> bool:
        return self._stage in (1, 2)

    def _offload(self, states: list[Any]) -> None:
        self._engine.offload_states(include=states, pin_memory=self._is_pinned)

    def _states(self) -> Iterator[Tensor]:
        optimizer = self._engine.optimizer
        for held in getattr(optimizer, "optimizer", optimizer).state.values():
            yield from (value for value in held.values() if torch.is_tensor(value))
        if self._stage == 3:
            yield from optimizer.fp32_partitioned_groups_flat
        else:
            yield from (p.grad for p in self._engine.module.parameters() if p.grad is not None)

    def _move(self, tensors: Iterable[Tensor]) -> None:
        for tensor in tensors:
            if tensor.device.type != "cpu":
                self._moved.append((tensor, tensor.device))
                tensor.data = tensor.data.to("cpu")
