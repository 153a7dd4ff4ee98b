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


@contextlib.contextmanager
def whole_while_used(model: torch.nn.Module) -> Iterator[None]:
    """Let each module of a model that is divided have its own whole weights while it computes, inside the block.

    `deepspeed.initialize` sees to it afterwards. Nothing happens to a model that is whole. Calls are collectives.
    """
    import deepspeed

    held: dict[torch.nn.Module, contextlib.AbstractContextManager[None]] = {}

    def gather(module: torch.nn.Module, *_: object) -> None:
        held[module] = deepspeed.zero.GatheredParameters(list(module.parameters(recurse=False)))
        held[module].__enter__()

    def let_go(module: torch.nn.Module, *_: object) -> None:
        held.pop(module).__exit__(None, None, None)

    hooks = [
        hook
        for module in model.modules()
        if any(hasattr(p, "ds_id") for p in module.parameters(recurse=False))
        for hook in (module.register_forward_pre_hook(gather), module.register_forward_hook(let_go))
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def restore_tables(model: Any) -> None:
    """Give a model that was made inside `divided` the tables that it computes for itself, such as rotary frequencies.

    `deepspeed.zero.Init` rounds to bfloat16 whatever numbers are made inside it; at position 1,000 an angle is wrong by
    a radian then. They are taken from the same model made outside of it, without weights.
    """
    with _without_weights():
        twin = type(model)._from_config(model.config)
    for name, table in twin.named_buffers():
        path, _, leaf = name.rpartition(".")
        module = model.get_submodule(path)
        if leaf in module._non_persistent_buffers_set:
            setattr(module, leaf, table.to(getattr(module, leaf).device))


@contextlib.contextmanager
def _without_weights() -> Iterator[None]:
    """Let modules that are made inside the block lose each parameter's elements as soon as it is registered."""
    register = torch.nn.Module.register_parameter

    def forget(module: torch.nn.Module, name: str, parameter: torch.nn.Parameter | None) -> None:
        register(module, name, None if parameter is None else torch.nn.Parameter(parameter.data.to("meta")))

    torch.nn.Module.register_parameter = forget
    try:
        yield
    finally:
        torch.nn.Module.register_parameter = register


def read_outline(file: str | Path, *_: object, **_more: object) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file, those that rank 0 hands over without their elements.

    That are weights of two dimensions and more; vectors, and tables of whole numbers that some models keep beside
    their weights, are read.
    """
    from safetensors import safe_open

    with safe_open(file, framework="pt") as opened:
        return {name: _outline(opened, name) for name in opened.keys()}  # noqa: SIM118 (not a dict)


def _outline(opened: Any, name: str) -> Tensor:
    tensor = opened.get_slice(name)
    shape, kind = tensor.get_shape(), _FLOATS.get(tensor.get_dtype())
    if kind is None or len(shape) < 2:
        return opened.get_tensor(name)
    return torch.empty(shape, dtype=kind, device="meta")


_FLOATS: Mapping[str, torch.dtype] = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
}
