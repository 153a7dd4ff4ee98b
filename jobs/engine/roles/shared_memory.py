"""Anonymous memory of one process that others on the node can open: how weights go to an engine on CPU without a copy
over a network.

It has no name in any file system, so nothing is left of it when the processes end, however they do.
"""

import mmap
import os
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

Handle = tuple[int, int]
"""Whose memory it is, and which: the process's id and its file descriptor."""


class SharedMemory:
    """`size` bytes, of which pages that were never written take no room."""

    def __init__(self, size: int) -> None:
        self._descriptor = os.memfd_create("pitwall-weights")
        os.ftruncate(self._descriptor, size)
        self.bytes_U8 = _mapped(self._descriptor, size)

    @property
    def handle(self) -> Handle:
        """What `open_memory` needs in another process."""
        return os.getpid(), self._descriptor


def open_memory(handle: Handle) -> Tensor:
    """Return the memory of another process of this node and user, as bytes: uint8 [size].

    Raises: OSError if that process is gone, or on another node.
    """
    process, number = handle
    descriptor = os.open(f"/proc/{process}/fd/{number}", os.O_RDWR)
    try:
        return _mapped(descriptor, os.fstat(descriptor).st_size)
    finally:
        os.close(descriptor)


def _mapped(descriptor: int, size: int) -> Tensor:
    return torch.frombuffer(mmap.mmap(descriptor, size), dtype=torch.uint8)


def fillings(
    weights: Iterable[tuple[str, Tensor]], *, memory: SharedMemory | None, capacity: int
) -> Iterator[dict[str, Any]]:
    """Put weights one behind the other into `memory`, as many as `capacity` bytes hold, and yield what lies there.

    Names, dtypes, shapes and sizes in bytes, in order. The next filling overwrites the last. Without a memory nothing
    is copied, but the weights are gone through all the same.
    """
    names: list[str] = []
    dtypes: list[str] = []
    shapes: list[list[int]] = []
    sizes: list[int] = []

    def update_info() -> dict[str, Any]:
        return {"names": names, "dtype_names": dtypes, "shapes": shapes, "tensor_sizes": sizes}

    used = 0
    for name, weight in weights:
        size = weight.numel() * weight.element_size()
        if sizes and used + size > capacity:
            yield update_info()
            names, dtypes, shapes, sizes, used = [], [], [], [], 0
        if memory is not None:
            memory.bytes_U8[used : used + size].copy_(weight.detach().contiguous().view(-1).view(torch.uint8))
        names.append(name)
        dtypes.append(str(weight.dtype).removeprefix("torch."))
        shapes.append(list(weight.shape))
        sizes.append(size)
        used += size
    if sizes:
        yield update_info()


def unpacked(filling: Any, bytes_U8: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Yield (name, weight) of a filling; each is a copy, since vLLM may keep it past the next filling."""
    begin = 0
    for name, dtype, shape, size in zip(
        filling.names, filling.dtype_names, filling.shapes, filling.tensor_sizes, strict=True
    ):
        yield name, bytes_U8[begin : begin + size].clone().view(getattr(torch, dtype)).view(shape)
        begin += size
