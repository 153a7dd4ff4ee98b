"""Floating-point operations and the share of the devices' peak that they make up (MFU), with the formula in numbers.

A product of (m, k) by (k, n) counts 2*m*k*n. A token's forward pass counts 2 per parameter that it is multiplied with,
and 4*L*q*s for attention over s positions in L layers (scores and values, q = heads * head size); causally it sees half
of its document. The backward pass counts two forward passes. MFU counts these three, HFU also what is computed again
for checkpointing. Sources: Kaplan et al. 2020 (6N), PaLM, appendix B (MFU), Megatron-LM (attention, recomputation).
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from profiling.trace.category import Category

if TYPE_CHECKING:
    from profiling.trace.store import Store

Recompute = Literal["none", "selective", "full"]
PASSES: Mapping[Recompute, float] = {"none": 0.0, "selective": 0.3, "full": 1.0}
"""Forward passes that checkpointing computes again; "selective" is the middle of what was measured."""

_MOST_SHAPES = 20_000
_LARGEST = 1 << 40


@dataclass(frozen=True, slots=True, kw_only=True)
class FlopsModel:
    """What a forward pass depends on: `parameters` that every token is multiplied with (of experts those used, without
    the table of embeddings), `layers`, and `width`, heads times head size.
    """

    parameters: float
    layers: int = 0
    width: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Flops:
    """Operations of some tokens. `model` is what MFU counts, `executed` what ran; `formula` shows how."""

    model: float
    executed: float
    formula: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """The share of a peak. `peak` is that of one device [FLOP/s]; `formula` has the numbers in it."""

    share: float
    flops: float
    seconds: float
    devices: int
    peak: float
    formula: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FlopCount:
    """Operations by the recorded shapes of products and attention.

    `without_shapes` are calls of such operators of which no shapes were recorded: they are missing in the sum.
    """

    flops: float
    by_operator: tuple[tuple[str, float], ...]
    with_shapes: int
    without_shapes: int


def prefixed(number: float) -> str:
    """Return a number before its unit, with a prefix: "2.07 T"."""
    for limit, unit in ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M")):
        if number >= limit:
            return f"{number / limit:.3g} {unit}"
    return f"{number:.3g} "


def forward_flops(model: FlopsModel, *, tokens: float, context: float) -> float:
    """Return FLOPs of a forward pass over tokens in documents of `context` tokens."""
    return tokens * (2 * model.parameters + 4 * model.layers * model.width * (context + 1) / 2 * (context > 0))


def training_flops(model: FlopsModel, *, tokens: float, context: float, recompute: Recompute = "none") -> Flops:
    """Return FLOPs of training on tokens in documents of `context` tokens.

    Raises: ValueError for an unknown way of recomputing.
    """
    if recompute not in PASSES:
        raise ValueError(f"recompute: {recompute!r} is not one of {', '.join(PASSES)}.")
    forward = forward_flops(model, tokens=tokens, context=context)
    attention = f" + 4 × {model.layers} layers × {model.width:,} × ({context:,.0f} + 1) / 2" if context else ""
    each = f"(2 × {prefixed(model.parameters).strip()} parameters{attention})"
    return Flops(
        model=3 * forward,
        executed=(3 + PASSES[recompute]) * forward,
        formula=f"3 × {tokens:,.0f} tokens × {each} = {prefixed(3 * forward)}FLOP",
    )


def use(flops: float, *, seconds: float, devices: int, peak: float) -> Use | None:
    """Return which share of the peak of so many devices some FLOPs are; None without time, devices or a peak."""
    if seconds <= 0 or devices < 1 or peak <= 0:
        return None
    share = flops / (seconds * devices * peak)
    formula = f"{prefixed(flops)}FLOP / ({seconds:.4g} s × {devices} × {prefixed(peak)}FLOP/s) = {100 * share:.3g} %"
    return Use(share=share, flops=flops, seconds=seconds, devices=devices, peak=peak, formula=formula)


def operator_flops(name: str, dims: Sequence[Any], *, is_causal: bool = False) -> float | None:
    """Return FLOPs of one call of an operator by the sizes of its inputs; None if it is no product or they do not fit.

    Only operators that do the work themselves count, so that none counts twice: mm, not linear, which calls it.
    """
    at = _PRODUCTS.get(name)
    if at is not None:
        return _product(_sizes(dims, at), _sizes(dims, at + 1))
    if name in _ATTENTION:
        places, passes = _ATTENTION[name]
        query, key, value = (_sizes(dims, place) for place in places)
        if not query or len(query) != 4 or len(key) != 4 or len(value) != 4:
            return None
        batch, heads, length, size = query
        each = 2.0 * batch * heads * length * key[2] * (size + value[3])
        return passes * each * (0.5 if is_causal else 1.0)
    return None


_PRODUCTS: Mapping[str, int] = {
    "aten::mm": 0,
    "aten::bmm": 0,
    "aten::_int_mm": 0,
    "aten::_scaled_mm": 0,
    "aten::_grouped_mm": 0,
    "aten::addmm": 1,
    "aten::_addmm_activation": 1,
    "aten::baddbmm": 1,
}
"""Place of the first factor among the inputs."""

_ATTENTION: Mapping[str, tuple[tuple[int, int, int], float]] = {
    "aten::_scaled_dot_product_flash_attention": ((0, 1, 2), 1.0),
    "aten::_scaled_dot_product_flash_attention_for_cpu": ((0, 1, 2), 1.0),
    "aten::_scaled_dot_product_efficient_attention": ((0, 1, 2), 1.0),
    "aten::_scaled_dot_product_cudnn_attention": ((0, 1, 2), 1.0),
    "aten::_scaled_dot_product_flash_attention_backward": ((1, 2, 3), 2.5),
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": ((1, 2, 3), 2.5),
    "aten::_scaled_dot_product_efficient_attention_backward": ((1, 2, 3), 2.5),
    "aten::_scaled_dot_product_cudnn_attention_backward": ((1, 2, 3), 2.5),
}
"""Places of query, key and value, and forward passes: backward makes five products where forward makes two."""

COUNTED = (*_PRODUCTS, *_ATTENTION)


def _product(one: Sequence[int], other: Sequence[int]) -> float | None:
    if len(one) == 2 and len(other) == 2 and one[1] == other[0]:
        return 2.0 * one[0] * one[1] * other[1]
    if len(one) == 3 and len(other) == 3 and one[0] == other[0] and one[2] == other[1]:
        return 2.0 * one[0] * one[1] * one[2] * other[2]
    return None


def _sizes(dims: Sequence[Any], at: int) -> list[int]:
    """Return the sizes of one input; [] if they are not there or no sizes: the trace may hold anything."""
    sizes = dims[at] if at < len(dims) else None
    if not isinstance(sizes, list) or not all(isinstance(size, int) and 0 <= size < _LARGEST for size in sizes):
        return []
    return sizes


def counted(calls: Iterable[tuple[str, Mapping[str, Any], int]]) -> FlopCount:
    """Count operators: (name, details with "Input Dims" and "Concrete Inputs" where recorded, number of calls)."""
    sums: dict[str, float] = {}
    with_shapes = without = 0
    for name, details, number in calls:
        dims = details.get("Input Dims")
        flops = operator_flops(name, dims, is_causal=_is_causal(name, details)) if isinstance(dims, list) else None
        if flops is None:
            without += number
            continue
        with_shapes += number
        sums[name] = sums.get(name, 0.0) + number * flops
    return FlopCount(
        flops=sum(sums.values()),
        by_operator=tuple(sorted(sums.items(), key=lambda item: -item[1])),
        with_shapes=with_shapes,
        without_shapes=without,
    )


def _is_causal(name: str, details: Mapping[str, Any]) -> bool:
    """Return True if an attention was told to be causal: the one truth value among its scalar inputs that is so."""
    inputs = details.get("Concrete Inputs")
    return name in _ATTENTION and isinstance(inputs, list) and "True" in inputs[3:]


def count_store(store: "Store", begin: int, end: int) -> FlopCount:
    """Count the operators of a store that begin in [begin, end)."""
    numbers = [i for i, name in enumerate(store.names) if name in COUNTED]
    if not numbers:
        return counted(())
    rows = store.sql(
        "SELECT name, info, count(*) AS n FROM ev WHERE cat = ? AND list_contains(?, name) AND ts >= ? AND ts < ? "
        "GROUP BY name, info ORDER BY n DESC LIMIT ?",
        [int(Category.OPERATOR), numbers, begin, end, _MOST_SHAPES],
    )
    wanted = sorted(set(rows["info"].tolist()))
    texts = store.sql("SELECT id, text FROM infos WHERE list_contains(?, id)", [wanted])
    details = {
        number: _details(text) for number, text in zip(texts["id"].tolist(), texts["text"].tolist(), strict=True)
    }
    return counted(
        (store.names[name], details.get(info, {}), n)
        for name, info, n in zip(rows["name"].tolist(), rows["info"].tolist(), rows["n"].tolist(), strict=True)
    )


def _details(text: str) -> Mapping[str, Any]:
    try:
        details = json.loads(text)
    except ValueError:
        return {}
    return details if isinstance(details, dict) else {}
