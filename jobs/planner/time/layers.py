"""Seconds of one layer and of the head over one micro-batch on one rank, and the rates that a device reaches.

What bounds the parts is summed: products at the matmul rate of the device, attention at its kernel's, element-wise work
at memory bandwidth, weights read once per pass; and a floor below which the host cannot launch kernels.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from jobs.catalog.accelerator import Accelerator
from jobs.planner.constant import Constants
from jobs.planner.constant_groups import SpeedConstants
from jobs.planner.job import Head, Kernels, Layout, Optimizer, Training
from jobs.planner.memory.lora import NUM_PARTS, adapted_parts, layer_adapters
from jobs.planner.shapes.model_shape import LayerShape, ModelShape
from jobs.planner.time.flops import head_flops, layer_flops

HALF = 2  # bytes of an element of activations
_EXPERTS_ONE_BY_ONE = ("plain", "deepspeed")  # modules of Transformers loop over experts


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """FLOP/s and bytes/s that one device reaches."""

    products: float
    attention: float
    memory: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSeconds:
    """Seconds of one layer over one micro-batch on one rank: forward, and backward without recomputation. `waiting`: of
    a forward pass and of a backward pass, those in which the device waits for the host."""

    forward: float
    backward: float
    waiting: tuple[float, float] = (0.0, 0.0)


def best_rate(accelerator: Accelerator, compute: str) -> float:
    """Return the highest FLOP/s that anybody measured of products of a type; of 8 bits where nobody did the share of
    the peak that products of 16 bits reach; or the peak."""
    kind, peak = compute_type(accelerator, compute), peak_rate(accelerator, compute)
    if kind in accelerator.best:
        return accelerator.best[kind]
    wide = accelerator.best.get("bf16", 0.0) if kind == "fp8" else 0.0
    return peak * wide / peak_rate(accelerator) if wide else peak


def compute_type(accelerator: Accelerator, compute: str) -> str:
    """Return the type in which products are made: fp8 where the device has it, bf16, or fp16 where it has no bf16."""
    if compute == "fp8" and accelerator.has_fp8:
        return "fp8"
    return "bf16" if accelerator.has_bf16 and compute != "fp16" else "fp16"


def peak_rate(accelerator: Accelerator, compute: str = "bf16") -> float:
    """Return peak FLOP/s of a type on a device; without bf16, that of fp16."""
    return accelerator.peak.get(compute_type(accelerator, compute)) or max(accelerator.peak.values())


def rates_of(training: Training, accelerator: Accelerator, constants: Constants) -> Rates:
    products, peak = _product_rate(accelerator, training.compute, constants), peak_rate(accelerator)
    if training.compute == "fp32" or (training.compute == "bf16" and not accelerator.has_bf16):
        products, peak = (rate * constants.speed.fp32_share for rate in (products, peak))
    memory = accelerator.bandwidth * constants.speed.bandwidth
    return Rates(products=products, attention=_attention_rate(training, peak, constants), memory=memory)


def _product_rate(accelerator: Accelerator, compute: str, constants: Constants) -> float:
    """Return FLOP/s of matrix products in training: peak * share / (1 + ridge / speed.ridge), at most the best seen.

    The ridge is peak over bandwidth, in FLOP per element of two bytes: the more compute a device has for its bandwidth,
    the less of it do tiles, caches and clocks keep busy.
    """
    kind, peak = compute_type(accelerator, compute), peak_rate(accelerator, compute)
    is_fp8 = kind == "fp8"
    ridge = peak / accelerator.bandwidth / (2 if is_fp8 else 1)
    reached = peak * constants.speed.products / (1 + ridge / constants.speed.ridge)
    return min(reached * (constants.speed.products_fp8 if is_fp8 else 1.0), best_rate(accelerator, compute))


def _attention_rate(training: Training, peak: float, constants: Constants) -> float:
    """Return FLOP/s of attention: its products at their share of the peak, then softmax between them, whose unit is as
    fast on a device with few tensor cores. The second flash attention does not use what Hopper and Blackwell added."""
    if training.attends_by == "eager":
        return peak * constants.speed.attention_eager
    rate = 1 / (1 / (peak * constants.speed.products) + 1 / constants.speed.attention_softmax_rate)
    if training.kernels == "megatron" or training.attention == "flash3":
        return rate
    return min(rate * constants.speed.attention_flash2_share, constants.speed.attention_flash2_rate)


def layer_seconds(
    layer: LayerShape,
    model: ModelShape,
    layout: Layout,
    training: Training,
    tokens: float,
    document: float,
    rates: Rates,
    constants: Constants,
) -> LayerSeconds:
    """Return seconds of one layer over `tokens` tokens of a rank's group of tensor parallelism."""
    flops = layer_flops(layer, model, document)
    share = tokens / layout.tensor
    products = share * (flops.dense + flops.experts) / rates.products
    attention = share * flops.attention / rates.attention
    is_balanced = layout.is_ring_balanced or training.kernels == "megatron"  # its ring gives all ranks the same share
    if layout.context > 1 and not is_balanced:
        busiest = (2 * layout.context - 1) / layout.context  # of the causal half, over the mean
        attention *= max(busiest / constants.speed.ring_share, 1.0)
    moved = HALF * share * _moved_elements(layer, model, training, constants)
    held = (layer.attention + layer.mlp) / layout.tensor + layer.replicated
    held += layer.experts / (layout.expert * layout.expert_tensor)
    widening = constants.speed.dequantize_bytes if training.method == "qlora" else 0.0
    streams = (moved + held * (HALF + widening)) / rates.memory
    floor = _floor(layer, model, training, constants)
    gradients = 2 if training.method == "full" else 1
    scan = _scan_seconds(layer, layout, document, constants)
    forward = products + attention + streams + scan
    backward = gradients * products + constants.speed.attention_backward * attention + 2 * streams + 2 * scan
    waiting = (max(floor - forward, 0.0), max(2 * floor - backward, 0.0))
    return LayerSeconds(forward=forward + waiting[0], backward=backward + waiting[1], waiting=waiting)


_SCANNED = ("gated delta rule", "Kimi delta attention")
_CHUNK = 64  # tokens that a kernel of these works on at once


_PARTED = 2  # times that a rank goes through its part: to find what it adds to a state, and from the state it is given


def _scan_seconds(layer: LayerShape, layout: Layout, document: float, constants: Constants) -> float:
    """Return seconds of the forward pass over the state of a delta rule: chunk after chunk of a document, however many
    documents and heads go along at once (flash-linear-attention, ops/common/chunk_delta_h.py).

    Where ranks of context parallelism keep their parts of a document, each scans its own at the same time as the
    others, twice (ops/cp/chunk_delta_h.py); where they exchange parts for heads, all of it.
    """
    if layer.kind not in _SCANNED:
        return 0.0
    parts = _PARTED / layout.context if layout.context > 1 and layout.has_scan_parts else 1.0
    return parts * document / _CHUNK * constants.speed.scan_seconds


def _floor(layer: LayerShape, model: ModelShape, training: Training, constants: Constants) -> float:
    """Return the seconds below which the host cannot start a layer's forward pass.

    A graph needs the host no more than a compiled layer does. Adapters add kernels of their own to each product, FSDP
    the hooks of each unit; under ZeRO-3 those of every module gather and give up its tensors. Experts are waited for by
    what implements them: Megatron's layer by what sends its tokens, a library's own kernels being few, other code reads
    the numbers of tokens on the host first, and modules of Transformers go through experts one by one.
    """
    speed = constants.speed
    if training.has_graphs:
        return speed.layer_seconds_compiled
    floor = speed.layer_seconds_compiled if training.kernels == "compiled" else speed.layer_seconds
    if training.method != "full":
        adapted = len(adapted_parts(frozenset(training.lora_targets))) / NUM_PARTS
        floor *= 1 + (speed.adapter_launches - 1) * adapted
    if training.family == "fsdp" and training.kernels != "compiled":
        floor += speed.hook_seconds
    if training.family == "deepspeed" and training.layout.shards >= 3:
        floor = max(floor, speed.layer_seconds_zero3)
    if not layer.is_moe:
        return floor
    if training.kernels == "megatron":
        is_flex = training.dispatcher == "flex"
        return floor - speed.layer_seconds + (speed.layer_seconds_flex if is_flex else speed.layer_seconds_grouped)
    floor = max(floor, speed.layer_seconds_experts)
    if training.family in _EXPERTS_ONE_BY_ONE:
        floor += model.experts * speed.expert_seconds
        if training.layout.shards >= 3:
            floor += model.experts * (3 if model.is_gated else 2) * constants.network.fetch_seconds
    return floor


_BIAS_BYTES = 28
"""Bytes that Megatron's experts move per token and element of what they return to add a bias, weighed by the router:
the product in float32 (4 written), its sum with what is there (2 + 4 read, 4 written), that joined over the experts
(4 and 4) and narrowed (4 read, 2 written). TEGroupedMLP._apply_bias, megatron/core/transformer/moe/experts.py."""
_MOVED: dict[Kernels, Callable[[SpeedConstants], float]] = {
    "eager": lambda speed: speed.moved_eager,
    "fused": lambda speed: speed.moved_fused,
    "liger": lambda speed: speed.moved_liger,
    "compiled": lambda speed: speed.moved_compiled,
    "megatron": lambda speed: speed.moved_megatron,
}
"""Elements that a layer reads and writes over those that it saves."""


def _moved_elements(layer: LayerShape, model: ModelShape, training: Training, constants: Constants) -> float:
    """Return elements read and written per token in a layer's forward pass.

    Of what it saves, a factor by kernels. Of adapters, arithmetic (moved_by_adapters); what passes between an adapter's
    own two matrices is too thin to count.
    """
    width = model.shared_width if layer.is_moe else model.mlp_width
    saved = 4 * model.hidden + 2 * model.query + 2 * model.kv + (3 if model.is_gated else 2) * width
    moved = saved * _MOVED[training.kernels](constants.speed)
    beside = beside_experts = 0.0
    if training.method != "full":
        sides = layer_adapters(layer, model, 1, training.lora_targets)
        each = moved_by_adapters(training) * constants.speed.adapter_passes
        beside, beside_experts = (each * side for side in sides)
    if not layer.is_moe:
        return moved + beside
    share = model.experts_per_token / model.experts
    routed = model.experts_per_token * (2 * model.hidden + 3 * model.expert_width)
    passes, biased = constants.speed.moved_experts, 0.0
    if training.has_fused_experts:
        passes = constants.speed.moved_fused_experts
    elif training.kernels == "megatron":
        passes = constants.speed.moved_grouped
        biased = _BIAS_BYTES / HALF * model.hidden * model.experts_per_token * model.has_expert_bias
    return moved + beside + routed * passes + biased + share * beside_experts


def moved_by_adapters(training: Training) -> float:
    """Return elements of 16 bits that an adapter beside a product of (in, out) reads and writes, over in + out: a
    layer's matrices are as wide at one end as at the other.

    Bytes of its input: read; widened first where the adapter is float32 (PEFT), and narrowed again under autocast; with
    dropout read, written and masked. Of its output: written, scaled, added to the product's and, wider than that,
    narrowed; scaling and adding are one pass where they are fused.
    """
    is_fused = training.kernels in ("fused", "compiled", "megatron")
    is_wide = (training.adapter_bytes or training.weight_bytes) > HALF and training.compute != "fp32"
    if is_fused:
        read, dropped, written = 2.0, 3.0, 8.0
    elif not is_wide:
        read, dropped, written = 2.0, 5.0, 12.0
    elif training.mixed_precision == "pure":
        read, dropped, written = 10.0, 9.0, 28.0
    else:
        read, dropped, written = 14.0, 9.0, 12.0
    return (read + dropped * training.has_adapter_dropout + written) / 2 / HALF


def head_seconds(
    model: ModelShape, layout: Layout, training: Training, tokens: float, rates: Rates, constants: Constants
) -> tuple[float, float]:
    """Return seconds of head and loss, forward and backward. A scalar head takes none to speak of.

    Computed over parts of the vocabulary, logits are not kept, and made again on the way back.
    """
    if training.objective == "scalar":
        return 0.0, 0.0
    share = tokens / layout.tensor
    products = share * head_flops(model) / rates.products
    moved = share * model.vocab * _LOGIT_BYTES[training.head](constants.speed) / rates.memory
    gradients = 2 if training.method == "full" else 1
    again = training.head == "chunked" and training.head_axis == "vocabulary"
    return products + moved / 3, (gradients + again) * products + moved * 2 / 3


def optimizer_bytes(optimizer: Optimizer, speed: SpeedConstants) -> float:
    """Return bytes that a step of an optimizer moves per element, where its kernel is fused."""
    return _OPTIMIZER_BYTES[optimizer](speed)


_LOGIT_BYTES: Mapping[Head, Callable[[SpeedConstants], float]] = {
    "unfused": lambda speed: speed.logit_bytes_unfused,
    "compiled": lambda speed: speed.logit_bytes_compiled,
    "chunked": lambda speed: speed.logit_bytes_chunked,
    "parallel": lambda speed: speed.logit_bytes_parallel,
    "inplace": lambda speed: speed.logit_bytes_inplace,
    "half": lambda speed: speed.logit_bytes_inplace,  # five passes over 16 bits, as where nothing is copied
}
_OPTIMIZER_BYTES: Mapping[Optimizer, Callable[[SpeedConstants], float]] = {
    "adam": lambda speed: speed.adam_bytes,
    "adam_bf16": lambda speed: speed.adam_bf16_bytes,
    "adam_8bit": lambda speed: speed.adam_8bit_bytes,
    "muon": lambda speed: speed.muon_bytes,
    "sgd": lambda speed: speed.sgd_bytes,
}
