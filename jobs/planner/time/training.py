"""Seconds of training and of scoring: what devices compute, what they say to each other, and what the host takes.

A layer's time is a sum of what bounds its parts: products at the matmul rate of the device, attention at its kernel's,
element-wise work and activations at memory bandwidth, weights read once per pass. That is why a device with little
compute for its bandwidth is filled easily. To it come the communication that is not hidden, the bubble of a pipeline,
the optimizer, and a floor below which the host cannot launch kernels.
"""

import math
from collections import Counter
from dataclasses import dataclass, replace
from functools import lru_cache

from jobs.catalog.accelerator import Accelerator
from jobs.planner.constant import Constants
from jobs.planner.job import Fleet, FrozenModel, Layout, Training
from jobs.planner.memory.lora import adapter_parameters
from jobs.planner.result import Interval, around
from jobs.planner.shapes.model_shape import LayerShape, ModelShape
from jobs.planner.time.flops import RECOMPUTED, layer_kinds, training_flops
from jobs.planner.time.layers import HALF, best_rate, head_seconds, layer_seconds, optimizer_bytes, rates_of
from jobs.planner.time.network import Exchange, exchange_of, exposed, host_bandwidth

WIDEST = math.sqrt(2.5)
"""An interval is never wider than this factor to either side: beyond it, it would tell nothing."""


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
    training: Training,
    fleet: Fleet,
    constants: Constants,
    *,
    tokens: float = 0.0,
    document: float = 0.0,
    longest: float = 1.0,
    beside: float = 0.0,
) -> UpdateTime:
    """Return seconds of one optimizer step, by part. `longest`: tokens of the rank that is waited for over the mean;
    `beside`: what the host takes for each micro-batch beside its layers and its head."""
    mean = work_of(training, tokens=tokens, document=document)
    work = replace(mean, tokens=mean.tokens * longest)
    layout, accelerator = training.layout, fleet.accelerator
    slowest, waiting, exchange, share = _slowest_stage(training, fleet, work, constants)
    hidden = exposed(exchange.gather + exchange.scatter, slowest, constants.network.weights_overlap)
    ring = exposed(exchange.context, slowest, constants.network.context_overlap)
    experts = exposed(exchange.experts, slowest, constants.network.exchange_overlap * training.hides_exchange)
    talk = exchange.tensor + experts + exchange.pipeline + hidden + ring
    each = slowest + talk
    bubble = (layout.pipeline - 1) / layout.virtual * each
    reduced = exposed(exchange.gradients, slowest, constants.network.weights_overlap)
    optimizer = optimizer_seconds(training, fleet, share, constants) + constants.speed.step_seconds
    total = work.count * (each + beside) + bubble + reduced + optimizer
    executed = training_flops(training, mean.tokens * mean.count, mean.document, executed=True)
    ideal = executed / (layout.tensor * layout.pipeline) / best_rate(accelerator, training.compute)
    talking = (work.count * talk + reduced) / total
    on_host = work.count * (waiting + beside) + (optimizer if training.offload.optimizer else 0.0)
    factor = _width(constants.value(band_of(training, accelerator)), on_host / total, talking, constants)
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
    share: float = 1.0,
    longest: float = 1.0,
    beside: float = 0.0,
    host_bytes: float = 0.0,
    loads_once: bool = False,
) -> Interval:
    """Return seconds of a forward pass over `tokens` tokens of all ranks, in passes of `row` tokens each.

    `training` says with what kernels and types; `share`: of the rate of an update that is reached; `longest` and
    `beside` as in an update. `host_bytes`: of an element of weights that are in host memory, from where shards come
    unit by unit in each pass (FSDP's and ZeRO-3's offload of parameters) and all else once, as shards do where it
    `loads_once`.
    """
    each = tokens / max(layout.data, 1)
    divided = layout.context * layout.ulysses
    count = max(each / max(row, 1.0), 1.0)
    held = longest * each / count / divided
    rates = rates_of(training, fleet.accelerator, constants)
    layers = {
        id(kind): layer_seconds(kind, model, layout, training, held, document, rates, constants)
        for kind, _ in layer_kinds(model)
    }
    stages = [
        sum(kinds * layers[id(kind)].forward for kind, kinds in _held(model, layout, stage))
        for stage in range(layout.pipeline)
    ]
    if has_head:
        stages[-1] += head_seconds(model, layout, training, held, rates, constants)[0]
    slowest = max(stages) / share
    parameters, experts = _stage_elements(model, layout, 0)
    once = replace(training, layout=layout, checkpointing="none")
    exchange = exchange_of(
        once,
        fleet,
        tokens=held,
        layers=model.num_layers / layout.pipeline,
        parameters=parameters,
        experts=experts,
        constants=constants,
    )
    talk = _forward_talk(exchange, once, slowest, constants)
    loads = 1.0 if loads_once or layout.shards < 3 else count
    local = parameters / (layout.shard_ranks if layout.shards >= 3 else 1)
    local += experts / (layout.expert_data if layout.shards >= 3 else 1)
    host_rate = host_bandwidth(fleet, layout.num_devices) * constants.speed.move_rate_share
    loading = loads * local * host_bytes / host_rate
    total = (count + (layout.pipeline - 1) / layout.virtual) * (slowest + talk) + count * beside + loading
    waiting = count * sum(kinds * layers[id(kind)].waiting[0] for kind, kinds in layer_kinds(model)) / layout.pipeline
    waiting += count * beside
    factor = _width(constants.speed.band_scoring, waiting / total, talk / (slowest + talk), constants)
    return around(total, factor)


def _forward_talk(exchange: Exchange, training: Training, computing: float, constants: Constants) -> float:
    """Return seconds per micro-batch of a pass forward in which ranks talk and nothing hides it: of what is exchanged
    forward and backward half, of a ring, whose gradients go around too, a third; as much is hidden as in an update."""
    network = constants.network
    ring = exchange.context / (3 if training.layout.context > 1 else 2)
    return (
        (exchange.tensor + exchange.pipeline) / 2
        + exposed(exchange.experts / 2, computing, network.exchange_overlap * training.hides_exchange)
        + exposed(ring, computing, network.context_overlap)
        + exposed(exchange.gather / 2, computing, network.weights_overlap)
    )


def band_of(training: Training, accelerator: Accelerator) -> str:
    """Return the name of the constant that says how far measured seconds of such an update were from the middle: of
    what few have tuned for it is one, whatever is trained."""
    if accelerator.vendor != "nvidia" or _has_modules_as_they_come(training):
        return "speed.band_stock"
    if training.method != "full":
        return "speed.band_adapters"
    return "speed.band_experts" if training.model.experts else "speed.band_dense"


def _has_modules_as_they_come(training: Training) -> bool:
    """Return True if a model runs by Transformers' own modules with nothing in the place of their attention, or of
    their loop over experts: what kernels those start is a matter of version, mask and head size, which no setting
    says."""
    is_eager = training.kernels in ("eager", "liger")
    return is_eager and (training.model.experts > 0 or training.attends_by in ("sdpa", "eager"))


def _width(band: float, waiting: float, talking: float, constants: Constants) -> float:
    """Return the factor to either side of the middle.

    To what the class is known to comes what is known worse: the shares of time in which devices wait for a host, to
    start kernels or to update what it holds, whose speed was measured on one machine, and for each other, over links
    that were assumed. Logarithms of factors add as
    those of independent errors do.
    """
    host = min(waiting, 1.0) * math.log(constants.speed.band_waiting)
    links = min(talking, 1.0) * math.log(constants.speed.band_talking)
    return min(math.exp(math.hypot(math.log(band), host, links)), WIDEST)


def frozen_seconds(
    frozen: FrozenModel,
    training: Training,
    fleet: Fleet,
    constants: Constants,
    *,
    tokens: float,
    document: float,
    share: float = 1.0,
    longest: float = 1.0,
    beside: float = 0.0,
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
        share=share,
        longest=longest,
        beside=beside,
        host_bytes=frozen.weight_bytes if frozen.is_offloaded else 0.0,
        loads_once=frozen.is_swapped_in,
    )


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
    kinds = layer_kinds(model)
    if layout.pipeline == 1:
        return list(kinds)
    return [(kinds[place][0], count) for place, count in _kinds_between(model, *stage_layers(model, layout, stage))]


@lru_cache(maxsize=1024)
def _kinds_between(model: ModelShape, start: int, end: int) -> tuple[tuple[int, int], ...]:
    """Return which of `layer_kinds` the layers from `start` to before `end` are, and how many of each."""
    places = {kind: place for place, (kind, _) in enumerate(layer_kinds(model))}
    return tuple(Counter(places[layer] for layer in model.layers[start:end]).items())


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
) -> tuple[float, float, Exchange, tuple[float, float]]:
    """Return seconds of the slowest stage per micro-batch, those in which it waits for the host, what it exchanges, and
    its elements."""
    model, layout = training.model, training.layout
    rates = rates_of(training, fleet.accelerator, constants)
    again = RECOMPUTED[training.checkpointing]
    seconds: dict[int, float] = {}
    waits: dict[int, float] = {}
    for kind, _ in layer_kinds(model):
        each = layer_seconds(kind, model, layout, training, work.tokens, work.document, rates, constants)
        seconds[id(kind)] = each.forward * (1 + again) + each.backward
        waits[id(kind)] = each.waiting[0] * (1 + again) + each.waiting[1]
    head = sum(head_seconds(model, layout, training, work.tokens, rates, constants))
    best: tuple[float, int, int] = (-1.0, 0, 0)
    for stage in range(layout.pipeline):
        held = _held(model, layout, stage)
        total = sum(count * seconds[id(kind)] for kind, count in held)
        total += head if stage == layout.pipeline - 1 else 0.0
        if total > best[0]:
            best = (total, stage, sum(count for _, count in held))
    total, stage, layers = best
    waiting = sum(count * waits[id(kind)] for kind, count in _held(model, layout, stage))
    parameters, experts = _stage_elements(model, layout, stage)
    exchange = exchange_of(
        training, fleet, tokens=work.tokens, layers=layers, parameters=parameters, experts=experts, constants=constants
    )
    total += _host_traffic(training, fleet, work, parameters + experts, layers, total, constants)
    return total, waiting, exchange, (parameters, experts)


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
        moved += (2 + (training.checkpointing == "full")) * HALF * elements / max(training.layout.shard_ranks, 1)
    if training.offload.activations:
        moved += 2 * HALF * work.tokens * training.model.hidden * layers
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
        traffic = optimizer_bytes(training.optimizer, constants.speed)
        return local * traffic / (fleet.accelerator.bandwidth * constants.speed.bandwidth)
    dense, experts = share
    local = dense / (layout.shard_ranks if is_sharded else 1) + experts / (layout.expert_data if is_sharded else 1)
    on_host = training.offload.optimizer
    traffic = optimizer_bytes(training.optimizer, constants.speed) * (
        1.0 if training.has_fused_optimizer else constants.speed.unfused_optimizer
    )
    seconds = (1 - on_host) * local * traffic / (fleet.accelerator.bandwidth * constants.speed.bandwidth)
    if on_host:
        per_node = min(layout.num_devices, fleet.devices_per_node)
        moved = (
            (training.gradient_bytes + HALF) * local / (fleet.accelerator.pcie_bandwidth * constants.speed.host_share)
        )
        each = (
            constants.speed.deepspeed_offload_seconds
            if training.family == "deepspeed" or training.offload.has_one_thread
            else constants.speed.cpu_adam_seconds
        )
        handled = per_node * local * each / 1e9
        seconds += on_host * (
            handled * (1.0 if training.has_fused_optimizer else constants.speed.unfused_cpu_adam) + moved
        )
    return seconds
