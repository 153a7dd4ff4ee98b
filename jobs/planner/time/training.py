"""Seconds of training and of scoring: what devices compute, what they say to each other, and what the host takes.

A layer's time is a sum of what bounds its parts: products at the matmul rate of the device, attention at its kernel's,
element-wise work and activations at memory bandwidth, weights read once per pass. That is why a device with little
compute for its bandwidth is filled easily. To it come the communication that is not hidden, the bubble of a pipeline,
the optimizer, and a floor below which the host cannot launch kernels.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from jobs.catalog.accelerator import Accelerator
from jobs.planner.constant import Constants
from jobs.planner.constant_groups import SpeedConstants
from jobs.planner.job import Fleet, FrozenModel, Kernels, Layout, Training
from jobs.planner.memory.lora import adapted_shares, adapter_parameters
from jobs.planner.result import Interval
from jobs.planner.shapes.model_shape import LayerShape, ModelShape
from jobs.planner.time.flops import RECOMPUTED, head_flops, layer_flops, layer_kinds, training_flops
from jobs.planner.time.network import Exchange, exchange_of, exposed

WIDEST = math.sqrt(2.5)
"""An interval is never wider than this factor to either side: beyond it, it would tell nothing."""
_HALF = 2  # bytes of an element of activations
_OPTIMIZER_BYTES = {"adam": 30.0, "adam_bf16": 14.0, "adam_8bit": 12.0, "muon": 26.0, "sgd": 12.0}
# Moved per entry, both ways.
_LOGIT_BYTES = {"unfused": 32.0, "compiled": 16.0, "chunked": 20.0, "parallel": 16.0, "inplace": 12.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatchWork:
    """One optimizer step of one rank: `count` micro-batches of `tokens` each (after context parallelism), in documents
    of `document` tokens."""

    tokens: float
    document: float
    count: float


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateTime:
    """Seconds of one optimizer step by part; `seconds` is the whole. `ideal`: all FLOPs at the best rate measured."""

    seconds: Interval
    computing: float
    communication: float
    bubble: float
    optimizer: float
    ideal: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """FLOP/s and bytes/s that one device reaches."""

    products: float
    attention: float
    memory: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pass:
    """Seconds of one layer over one micro-batch on one rank: forward, and backward without recomputation."""

    forward: float
    backward: float


def work_of(training: Training, *, tokens: float = 0.0, document: float = 0.0) -> MicroBatchWork:
    """Return a rank's micro-batches. `tokens`: of one optimizer step over all ranks, 0 to take them as they are set.

    `document`: mean tokens of a sample where that is known better than from rows. Padded rows are computed whole; rows
    of one sample each hold what the sample has.
    """
    layout = training.layout
    length = document or training.document or training.sequence
    length = min(length, training.sequence)
    row = training.sequence if training.is_padded or training.document else length
    held = training.micro_batch * (2 if training.objective == "pairs" else 1) * row
    divided = layout.context * layout.ulysses
    seen = training.sequence if training.is_padded else length
    if not tokens:
        return MicroBatchWork(tokens=held / divided, document=seen, count=float(training.num_micro_batches))
    padding = row / length if training.is_padded else 1.0
    each = tokens * padding / max(layout.data, 1)
    return MicroBatchWork(tokens=min(held, each) / divided, document=seen, count=max(each / held, 1.0))


def update_seconds(
    training: Training,
    fleet: Fleet,
    constants: Constants,
    *,
    tokens: float = 0.0,
    document: float = 0.0,
    steps: int = 1,
) -> Interval:
    """Return seconds of `steps` optimizer steps of `tokens` tokens each over all ranks (see work_of)."""
    return update_time(training, fleet, constants, tokens=tokens, document=document).seconds.scaled(steps)


def update_time(
    training: Training, fleet: Fleet, constants: Constants, *, tokens: float = 0.0, document: float = 0.0
) -> UpdateTime:
    """Return seconds of one optimizer step, by part."""
    work = work_of(training, tokens=tokens, document=document)
    layout, accelerator = training.layout, fleet.accelerator
    slowest, exchange, share = _slowest_stage(training, fleet, work, constants)
    hidden = exposed(exchange.gather + exchange.scatter, slowest, constants.network.weights_overlap)
    ring = exposed(exchange.context, slowest, constants.network.context_overlap)
    talk = exchange.tensor + exchange.experts + exchange.pipeline + hidden + ring
    each = slowest + talk
    bubble = (layout.pipeline - 1) / layout.virtual * each
    reduced = exposed(exchange.gradients, slowest, constants.network.weights_overlap)
    optimizer = optimizer_seconds(training, fleet, share, constants) + constants.speed.step_seconds
    total = work.count * each + bubble + reduced + optimizer
    executed = training_flops(training, work.tokens * work.count, work.document, executed=True)
    ideal = executed / (layout.tensor * layout.pipeline) / best_rate(accelerator, training.compute)
    factor = min((constants.speed.band_experts if training.model.experts else constants.speed.band_dense), WIDEST)
    low = max(total / factor, min(ideal, total))
    return UpdateTime(
        seconds=Interval(low=low, middle=total, high=total * factor),
        computing=work.count * slowest,
        communication=work.count * talk + reduced,
        bubble=bubble,
        optimizer=optimizer,
        ideal=ideal,
    )


def scoring_seconds(
    model: ModelShape,
    layout: Layout,
    training: Training,
    fleet: Fleet,
    constants: Constants,
    *,
    tokens: float,
    document: float,
    row: float,
    has_head: bool = True,
) -> Interval:
    """Return seconds of a forward pass over `tokens` tokens of all ranks, in passes of `row` tokens each.

    `training` says with what kernels and types. Forward passes alone reach less than their share of an update.
    """
    each = tokens / max(layout.data, 1)
    divided = layout.context * layout.ulysses
    count = max(each / max(row, 1.0), 1.0)
    held = each / count / divided
    rates = rates_of(training, fleet.accelerator, constants)
    layers = {
        id(kind): _layer(kind, model, layout, training, held, document, rates, constants).forward
        for kind, _ in layer_kinds(model)
    }
    stages = [
        sum(count * layers[id(kind)] for kind, count in _held(model, layout, stage)) for stage in range(layout.pipeline)
    ]
    if has_head:
        stages[-1] += _head(model, layout, training, held, rates)[0]
    slowest = max(stages) / constants.speed.scoring_share
    gathered = 0.0
    if layout.shards >= 3:
        parameters, experts = _stage_elements(model, layout, 0)
        exchange = exchange_of(
            replace(
                training, layout=layout, checkpointing="none"
            ),  # one pass forward; half of the gathers are for the other
            fleet,
            tokens=held,
            layers=model.num_layers / layout.pipeline,
            parameters=parameters,
            experts=experts,
            constants=constants,
        )
        gathered = exposed(exchange.gather / 2, slowest, constants.network.weights_overlap)
    total = (count + (layout.pipeline - 1) / layout.virtual) * (slowest + gathered)
    factor = min((constants.speed.band_experts if model.experts else constants.speed.band_dense), WIDEST)
    return Interval(low=total / factor, middle=total, high=total * factor)


def frozen_seconds(
    frozen: FrozenModel, training: Training, fleet: Fleet, constants: Constants, *, tokens: float, document: float
) -> Interval:
    """Return seconds in which a frozen model scores `tokens` tokens; `training` says with what kernels and types,
    and whether samples are joined to rows."""
    row = frozen.micro_batch * (frozen.sequence if training.document else min(document, frozen.sequence))
    return scoring_seconds(
        frozen.model,
        frozen.layout,
        training,
        fleet,
        constants,
        tokens=tokens,
        document=document,
        row=row,
        has_head=frozen.has_head,
    )


def best_rate(accelerator: Accelerator, compute: str) -> float:
    """Return the highest FLOP/s that anybody measured of products of a type; the peak where nobody did."""
    kind = compute_type(accelerator, compute)
    return accelerator.best.get(kind) or peak_rate(accelerator, compute)


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
    """Return FLOP/s of attention. The second flash attention does not use what Hopper and Blackwell added."""
    if training.attention == "eager":
        return peak * constants.speed.attention_eager
    if training.kernels == "megatron" or training.attention == "flash3":
        return peak * constants.speed.attention
    return min(peak * constants.speed.attention, constants.speed.attention_flash2_rate)


def _layer(
    layer: LayerShape,
    model: ModelShape,
    layout: Layout,
    training: Training,
    tokens: float,
    document: float,
    rates: Rates,
    constants: Constants,
) -> _Pass:
    """Return seconds of one layer over `tokens` tokens of a rank's group of tensor parallelism."""
    flops = layer_flops(layer, model, document)
    share = tokens / layout.tensor
    products = share * (flops.dense + flops.experts) / rates.products
    attention = share * flops.attention / rates.attention
    if (
        layout.context > 1 and training.kernels != "megatron"
    ):  # its ring gives all ranks the same share of the causal half
        attention /= constants.speed.ring_share
    moved = _HALF * share * _moved_elements(layer, model, training, constants)
    held = (layer.attention + layer.mlp) / layout.tensor + layer.replicated
    held += layer.experts / (layout.expert * layout.expert_tensor)
    widening = constants.speed.dequantize_bytes if training.method == "qlora" else 0.0
    streams = (moved + held * (_HALF + widening)) / rates.memory
    launches = (
        constants.speed.layer_seconds_compiled if training.kernels == "compiled" else constants.speed.layer_seconds
    )
    floor = launches
    if training.family == "deepspeed" and layout.shards >= 3:  # hooks of each module gather and give up its tensors
        floor = max(floor, constants.speed.layer_seconds_zero3)
    if layer.is_moe:  # the host waits for the numbers of tokens before it can start the experts' products
        floor = max(floor, constants.speed.layer_seconds_experts)
    if layer.is_moe and training.family in (
        "plain",
        "deepspeed",
    ):  # modules of transformers go through experts one by one
        floor += model.experts * constants.speed.expert_seconds
        if training.layout.shards >= 3:
            floor += model.experts * (3 if model.is_gated else 2) * constants.network.fetch_seconds
    gradients = 2 if training.method == "full" else 1
    forward = max(products + attention + streams, floor)
    backward = max(gradients * products + 2.5 * attention + 2 * streams, gradients * floor)
    return _Pass(forward=forward, backward=backward)


_MOVED: dict[Kernels, Callable[[SpeedConstants], float]] = {
    "eager": lambda speed: speed.moved_eager,
    "fused": lambda speed: speed.moved_fused,
    "liger": lambda speed: speed.moved_fused,
    "compiled": lambda speed: speed.moved_compiled,
    "megatron": lambda speed: speed.moved_megatron,
}
"""Elements that a layer reads and writes over those that it saves."""


def _moved_elements(layer: LayerShape, model: ModelShape, training: Training, constants: Constants) -> float:
    """Return elements read and written per token in a layer's forward pass, as a factor over what it saves."""
    width = model.shared_width if layer.is_moe else model.mlp_width
    beside = beside_experts = 0.0
    if training.method != "full":
        shares = adapted_shares(layer, model, training.lora_targets)
        beside, beside_experts = (share * constants.speed.moved_adapter for share in shares)
    saved = 4 * model.hidden + 2 * model.query + 2 * model.kv + 3 * width
    dense = saved * (_MOVED[training.kernels](constants.speed) + beside)
    if not layer.is_moe:
        return dense
    routed = model.experts_per_token * (2 * model.hidden + 3 * model.expert_width)
    return dense + routed * (constants.speed.moved_experts + beside_experts)


def _head(model: ModelShape, layout: Layout, training: Training, tokens: float, rates: Rates) -> tuple[float, float]:
    """Return seconds of head and loss, forward and backward. A scalar head takes none to speak of."""
    if training.objective == "scalar":
        return 0.0, 0.0
    share = tokens / layout.tensor
    products = share * head_flops(model) / rates.products
    moved = share * model.vocab * _LOGIT_BYTES[training.head] / rates.memory
    gradients = 2 if training.method == "full" else 1
    return products + moved / 3, gradients * products + moved * 2 / 3


def stage_layers(model: ModelShape, layout: Layout, stage: int) -> tuple[int, int]:
    """Return the first layer of a pipeline stage and the one after its last."""
    if layout.pipeline == 1:
        return 0, model.num_layers
    first, last, total = layout.first_stage_layers, layout.last_stage_layers, model.num_layers
    between = layout.pipeline - bool(first) - bool(last)
    rest = total - first - last
    counts = [rest // between + (i < rest % between) for i in range(between)] if between else []
    counts = [first] * bool(first) + counts + [last] * bool(last)
    start = sum(counts[:stage])
    return start, start + counts[stage]


def _held(model: ModelShape, layout: Layout, stage: int) -> list[tuple[LayerShape, int]]:
    """Return the layers of a stage by kind, and how many."""
    if layout.pipeline == 1:
        return list(layer_kinds(model))
    start, end = stage_layers(model, layout, stage)
    counts: dict[int, tuple[LayerShape, int]] = {}
    kinds = {layer: layer for layer, _ in layer_kinds(model)}
    for layer in model.layers[start:end]:
        kind = kinds[layer]
        counts[id(kind)] = (kind, counts.get(id(kind), (kind, 0))[1] + 1)
    return list(counts.values())


def _stage_elements(model: ModelShape, layout: Layout, stage: int) -> tuple[float, float]:
    """Return elements of a stage on one rank before data parallelism shards them: routed experts apart."""
    dense = experts = 0.0
    for layer, count in _held(model, layout, stage):
        dense += count * ((layer.attention + layer.mlp) / layout.tensor + layer.replicated)
        experts += count * layer.experts / (layout.expert * layout.expert_tensor)
    if stage == 0:
        dense += model.embedding / layout.tensor
    if stage == layout.pipeline - 1:
        dense += (model.head or (model.embedding if layout.pipeline > 1 else 0)) / layout.tensor
    return dense, experts


def _slowest_stage(
    training: Training, fleet: Fleet, work: MicroBatchWork, constants: Constants
) -> tuple[float, Exchange, tuple[float, float]]:
    """Return seconds of the slowest stage per micro-batch, what it exchanges, and its elements."""
    model, layout = training.model, training.layout
    rates = rates_of(training, fleet.accelerator, constants)
    again = RECOMPUTED[training.checkpointing]
    seconds: dict[int, float] = {}
    for kind, _ in layer_kinds(model):
        each = _layer(kind, model, layout, training, work.tokens, work.document, rates, constants)
        seconds[id(kind)] = each.forward * (1 + again) + each.backward
    head = sum(_head(model, layout, training, work.tokens, rates))
    best: tuple[float, int, int] = (-1.0, 0, 0)
    for stage in range(layout.pipeline):
        held = _held(model, layout, stage)
        total = sum(count * seconds[id(kind)] for kind, count in held)
        total += head if stage == layout.pipeline - 1 else 0.0
        if total > best[0]:
            best = (total, stage, sum(count for _, count in held))
    total, stage, layers = best
    parameters, experts = _stage_elements(model, layout, stage)
    exchange = exchange_of(
        training, fleet, tokens=work.tokens, layers=layers, parameters=parameters, experts=experts, constants=constants
    )
    total += _host_traffic(training, fleet, work, parameters + experts, layers, total, constants)
    return total, exchange, (parameters, experts)


def _host_traffic(
    training: Training,
    fleet: Fleet,
    work: MicroBatchWork,
    elements: float,
    layers: int,
    computing: float,
    constants: Constants,
) -> float:
    """Return seconds per micro-batch of weights and checkpoints that come from host memory and are not hidden."""
    rate = fleet.accelerator.pcie_bandwidth * constants.speed.host_share
    moved = 0.0
    if training.offload.params:
        moved += (2 + (training.checkpointing == "full")) * _HALF * elements / max(training.layout.shard_ranks, 1)
    if training.offload.activations:
        moved += 2 * _HALF * work.tokens * training.model.hidden * layers
    if not moved:
        return 0.0
    return exposed(moved / rate, computing, constants.speed.host_overlap) + constants.speed.host_slowdown * computing


def optimizer_seconds(training: Training, fleet: Fleet, share: tuple[float, float], constants: Constants) -> float:
    """Return seconds of the optimizer's step: memory traffic on the device, or the host's CPUs."""
    layout = training.layout
    is_sharded = layout.shards >= 1
    if training.method != "full":
        local = adapter_parameters(training) / (layout.tensor * layout.pipeline)
        local /= layout.shard_ranks if is_sharded else 1
        return local * _OPTIMIZER_BYTES[training.optimizer] / (fleet.accelerator.bandwidth * constants.speed.bandwidth)
    dense, experts = share
    local = dense / (layout.shard_ranks if is_sharded else 1) + experts / (layout.expert_data if is_sharded else 1)
    on_host = training.offload.optimizer
    traffic = _OPTIMIZER_BYTES[training.optimizer] * (
        1.0 if training.has_fused_optimizer else constants.speed.unfused_optimizer
    )
    seconds = (1 - on_host) * local * traffic / (fleet.accelerator.bandwidth * constants.speed.bandwidth)
    if on_host:
        per_node = min(layout.num_devices, fleet.devices_per_node)
        moved = (
            (training.gradient_bytes + _HALF) * local / (fleet.accelerator.pcie_bandwidth * constants.speed.host_share)
        )
        each = (
            constants.speed.deepspeed_offload_seconds
            if training.family == "deepspeed"
            else constants.speed.cpu_adam_seconds
        )
        handled = per_node * local * each / 1e9
        seconds += on_host * (
            handled * (1.0 if training.has_fused_optimizer else constants.speed.unfused_cpu_adam) + moved
        )
    return seconds
