"""Bytes of logits that a view of them takes which is divided in place: counted with the same operations on the CPU."""

import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from jobs.planner.constant import shipped_constants
from jobs.planner.memory.logits import training_logits
from tests.jobs.planner.trainings import training

TOKENS, VOCAB, HIDDEN = 64, 4000, 8


class _MostBytes(TorchDispatchMode):
    """Follows the storages that operations make, and keeps the most that were there together."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: dict[int, int] = {}
        self.most = 0

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                if storage._cdata not in self.sizes:
                    self.sizes[storage._cdata] = storage.nbytes()
                    weakref.finalize(storage, self.sizes.pop, storage._cdata, None)
        self.most = max(self.most, sum(self.sizes.values()))
        return result


class _CrossEntropy(torch.autograd.Function):
    """Keeps the logits, and writes their gradient over them or beside them, as flash attention's kernel does."""

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, is_in_place: bool) -> torch.Tensor:
        ctx.save_for_backward(logits)
        ctx.is_in_place = is_in_place
        return logits[:, 0].float()

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None]:
        (logits,) = ctx.saved_tensors
        return logits if ctx.is_in_place else torch.empty_like(logits), None


@pytest.mark.parametrize("has_entropy", [False, True])
def test_the_division_before_the_loss_takes_most(has_entropy: bool) -> None:
    """verl, workers/actor/dp_actor.py: `output.logits.squeeze(0)`, `div_(temperature)`, cross entropy, entropy."""
    hidden = torch.randn(1, TOKENS, HIDDEN, dtype=torch.bfloat16, requires_grad=True)
    head = torch.randn(VOCAB, HIDDEN, dtype=torch.bfloat16, requires_grad=True)
    logits = torch.nn.functional.linear(hidden, head).squeeze(0)
    logits.div_(1.0)
    loss = _CrossEntropy.apply(logits, not has_entropy).sum()
    if has_entropy:  # one that is compiled keeps the logits too, and makes one gradient
        loss = loss + _CrossEntropy.apply(logits, False).sum()
    del logits

    with _MostBytes() as counted:
        loss.backward()

    t = training(head="inplace", has_entropy=has_entropy)
    per_entry = training_logits(t, shipped_constants()) / (t.tokens * t.model.vocab)
    assert counted.most / (TOKENS * VOCAB) == pytest.approx(per_entry, rel=0.02) == 8
