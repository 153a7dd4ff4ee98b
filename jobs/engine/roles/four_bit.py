"""Frozen weights in 4 bits beside trained adapters (QLoRA, Dettmers et al., arXiv 2305.14314), by bitsandbytes.

A weight becomes one of 16 values (nf4) times the largest of its block of 64; with double quantization these scales are
rounded to 8 bits as well. A layer computes with what its weights are then, in the type that the run computes in: they
are unpacked for each product and let go. What is sent to a rollout engine, and what is exported, is made of the same
values, so that an adapter meets the base it was trained beside, and not the one before rounding.

bitsandbytes is asked for where a run has 4-bit weights alone, and need not be installed.
"""

import math
import platform
from typing import Any

import torch
from torch import Tensor

from jobs.catalog.spec.runspec import RunSpec
from jobs.engine.problem import RunProblem, first_sentence

FIELD = "knobs.quantization.load_in_4bit"
_LARGEST_REST = 0.1
"""Of a model's elements in tensors of more than two dimensions: more are experts, not small convolutions."""


def pack_base(model: Any, layers: dict[str, torch.nn.Module], spec: RunSpec, *, device: str) -> None:
    """Replace `layers` of a model, by path, by layers in 4 bits on the device, one by one, where the run asks for them.

    Raises: RunProblem where bitsandbytes is missing or does not run on this node, and where there is little to pack.
    """
    if not spec.knob("quantization.load_in_4bit"):
        return
    _check_kinds(model, layers)
    bnb = _bitsandbytes()
    is_double = bool(spec.knob("quantization.double_quantization"))
    for path, layer in layers.items():
        parent, _, name = path.rpartition(".")
        setattr(model.get_submodule(parent), name, _packed(bnb, layer, is_double=is_double, device=device))
    model.is_loaded_in_4bit = True  # what PEFT asks


def _check_kinds(model: Any, layers: dict[str, torch.nn.Module]) -> None:
    """Raise RunProblem for a model of which much would stay as large as it is."""
    sizes = {name: parameter.numel() for name, parameter in model.named_parameters() if parameter.dim() > 2}
    has_experts = sum(sizes.values()) > _LARGEST_REST * sum(p.numel() for p in model.parameters())
    if has_experts or not all(isinstance(layer, torch.nn.Linear) for layer in layers.values()):
        kind = "experts" if has_experts else type(next(iter(layers.values()))).__name__
        raise RunProblem(
            FIELD, f"Much of this model ({kind}) is no linear layer, and would stay in full. Turn 4-bit weights off."
        )


def _bitsandbytes() -> Any:
    try:
        import bitsandbytes
    except Exception as error:  # besides the import itself it loads a library that is built for some devices
        reason = "is not installed" if isinstance(error, ModuleNotFoundError) else f"fails: {first_sentence(error)}"
        raise RunProblem(
            FIELD,
            f"4-bit weights need bitsandbytes, which {reason} on node {platform.node()}. Install it there (pip install "
            "bitsandbytes), or turn 4-bit weights off.",
        ) from error
    return bitsandbytes


def _packed(bnb: Any, layer: Any, *, is_double: bool, device: str) -> torch.nn.Module:
    dtype = layer.weight.dtype
    packed = bnb.nn.Linear4bit(
        layer.in_features,
        layer.out_features,
        bias=False,
        compute_dtype=dtype,
        compress_statistics=is_double,
        quant_type="nf4",
        device="meta",
    )
    packed.weight = bnb.nn.Params4bit(
        layer.weight.data, requires_grad=False, compress_statistics=is_double, quant_type="nf4", module=packed
    ).to(device)
    packed.bias = layer.bias
    packed.support_avx512bf16_for_cpu = False  # which lays the weights out anew, so that they cannot be unpacked
    return packed


def packed_shape(parameter: Any) -> tuple[int, ...] | None:
    """Return the shape of the weight that is packed in a parameter; None if none is."""
    state = getattr(parameter, "quant_state", None)
    return None if state is None else tuple(state.shape)


def unpacked_type(parameter: Any) -> torch.dtype:
    """Return the type of a packed weight's values."""
    dtype: torch.dtype = parameter.quant_state.dtype
    return dtype


@torch.no_grad()
def unpacked(parameter: Any) -> Tensor:
    """Return a packed weight's values."""
    from bitsandbytes.functional import dequantize_4bit

    values: Tensor = dequantize_4bit(parameter.data, parameter.quant_state)
    return values


def num_elements(parameter: Any) -> int:
    """Return how many weights a parameter stands for: packed ones, and those that ZeRO-3 has divided, all of them."""
    shape = packed_shape(parameter)
    return math.prod(shape) if shape is not None else int(getattr(parameter, "ds_numel", 0) or parameter.numel())
