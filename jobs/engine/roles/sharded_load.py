"""Load a model that ZeRO-3 divides so that no rank ever holds all of it in memory.

Each module is divided as it is made (`deepspeed.zero.Init`). Then rank 0 reads the weights, of which the operating
system maps the files, and hands each module's to the others, which read the names and shapes alone. What a rank holds
is its part and one module.
"""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor


class _Zero3:
    """What transformers asks whether, and how, models are divided while they are loaded; it keeps a weak reference."""

    def __init__(self, config: Mapping[str, object]) -> None:
        self.config = config

    def is_zero3(self) -> bool:
        return True


@contextlib.contextmanager
def divided(config: Mapping[str, object], *, rank: int) -> Iterator[None]:
    """Let transformers divide what it loads inside the block by DeepSpeed's `config`. A collective of all ranks."""
    from transformers import modeling_utils
    from transformers.integrations import deepspeed as integration

    zero3, load_state_dict = _Zero3(config), modeling_utils.load_state_dict
    integration.set_hf_deepspeed_config(zero3)
    if rank > 0:
        modeling_utils.load_state_dict = read_outline
    try:
        yield
    finally:
        modeling_utils.load_state_dict = load_state_dict
        integration.unset_hf_deepspeed_config()


def read_outline(file: str | Path, *_: object, **_more: object) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file, those that rank 0 hands over without their elements.

    That are weights of two dimensions and more; vectors, and tables of whole numbers that some models keep beside
    their weights, are read.
    """
    from safetensors import safe_open

    with safe_open(file, framework="pt") as opened:
        return {name: _outline(opened, name) for name in opened.keys()}  # noqa: SIM118 (not a dict)


def _outline(opened: Any, name: str) -> Tensor:
    found = opened.get_slice(name)
    shape, kind = found.get_shape(), _FLOATS.get(found.get_dtype())
    if kind is None or len(shape) < 2:
        return opened.get_tensor(name)  # type: ignore[no-any-return]
    return torch.empty(shape, dtype=kind, device="meta")


_FLOATS: Mapping[str, torch.dtype] = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
}
