"""Measure what a DeepSpeed engine holds on this rank: bytes of weights, gradients and optimizer state, and the
gradient's norm.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor


def _storage_bytes(tensors: Iterable[Tensor]) -> int:
    """Sum the storages behind the tensors, each once: many are views of one flat buffer."""
    storages = {}
    for tensor in tensors:
        storage = tensor.untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()
    return sum(storages.values())


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)


def parameter_bytes(engine: Any, stage: int) -> int:
    """Return the bytes of weights kept between steps: all of them, or this rank's shards in ZeRO-3."""
    parameters = list(engine.module.parameters())
    return _storage_bytes(p.ds_tensor if stage == 3 else p.data for p in parameters)


def gradient_bytes(engine: Any) -> int:
    """Return the bytes of gradients held now; call it between the last backward pass and the optimizer's step."""
    held = [p.grad for p in engine.module.parameters() if p.grad is not None]
    for name in (
        "averaged_gradients",
        "grad_partitions_flat_buffer",
        "all_grad_tensors",
        "accumulated_grads_in_cpu",
    ):
        held += _tensors(getattr(engine.optimizer, name, None))
    for name in ("single_partition_of_fp32_groups", "fp32_partitioned_groups_flat"):  # an offloaded optimizer's
        masters = _tensors(getattr(engine.optimizer, name, None))
        held += [master.grad for master in masters if master.grad is not None]
    return _storage_bytes(held)


def optimizer_bytes(engine: Any) -> int:
    """Return the bytes of optimizer state, float32 master weights included where there are any."""
    optimizer = engine.optimizer
    own = getattr(optimizer, "optimizer", optimizer)
    held = list(_tensors(list(own.state.values())))
    for name in ("single_partition_of_fp32_groups", "fp32_partitioned_groups_flat", "fp32_groups_flat", "fp32_groups"):
        held += _tensors(getattr(optimizer, name, None))
    return _storage_bytes(held)


def gradient_norm(engine: Any) -> float:
    """Return the 2-norm of the averaged gradient in stage 0, where DeepSpeed does not keep it."""
    norms = [torch.linalg.vector_norm(p.grad.float()) for p in engine.module.parameters() if p.grad is not None]
    return float(torch.linalg.vector_norm(torch.stack(norms))) if norms else 0.0
