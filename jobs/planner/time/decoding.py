"""Seconds of one decode step and of prefill on a rollout engine.

A step of B sequences streams the weights that it touches and the keys and values of every live token, multiplies, talks
to its other devices, and pays the host per layer and sequence. Products and the weights that they read overlap: the
longer of the two counts, and products are made of tiles, as long for one sequence as for all that a tile holds. Of
experts, B tokens touch E*(1-(1-k/E)^B). A pipeline of p stages has p batches under way, each of B/p sequences, each
through all stages.
"""

from collections import Counter
from dataclasses import dataclass

from jobs.catalog.accelerator import Accelerator
from jobs.planner.constant import Constants
from jobs.planner.job import Engine
from jobs.planner.serving.engine_memory import is_first_engine, schedules_ahead
from jobs.planner.serving.engine_weights import expert_bytes, expert_ranks, layer_bytes, matrix_bytes, vocabulary_bytes
from jobs.planner.serving.kv_cache import layer_token_bytes
from jobs.planner.time.network import card_bandwidth

_NODE = 8  # devices of a node, where more of them are not joined by one link
_NARROWEST = 0.5  # of a tile of 16 bits: kernels of fewer bits widen them first, and gain no more
_WIDENED = ("gptq", "awq", "bitsandbytes", "mxfp4")  # multiplied in bf16 after their weights were widened
_PACKED = ("gptq", "awq", "bitsandbytes", "compressed-tensors")  # four bits that a kernel widens on the way


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoder:
    """What a decode step of one engine costs: coefficients in seconds, made once and then asked for many steps.

    `dense_seconds`: weights that every step reads; `product_seconds`: what they are multiplied for, per sequence, of
    which a tile holds `tile`; `fixed_seconds`: what each layer takes anyway; `expert_seconds`: all experts of a device;
    `sequence_seconds` per sequence; `reach`: per window (0: none), seconds per live token of a sequence.
    `ratio` is k/E, `spread` over how many engines the tokens of one step of experts come from. `launch_seconds`: what
    the host takes to start a step's kernels one by one, 0 where a graph starts them; the longer of the two counts.
    """

    dense_seconds: float
    product_seconds: float
    fixed_seconds: float
    tile: float
    expert_seconds: float
    sequence_seconds: float
    reach: tuple[tuple[int, float], ...]
    ratio: float
    spread: float
    pipeline: int
    launch_seconds: float = 0.0

    def step(self, batch: float, context: float) -> float:
        """Return seconds of one step of `batch` sequences with `context` live tokens each in the mean."""
        each = max(batch / self.pipeline, 1.0)
        multiplied = self.product_seconds * max(each, self.tile)
        seconds = max(self.dense_seconds, multiplied) + self.fixed_seconds + self.sequence_seconds * each
        if self.expert_seconds:
            seconds += self.expert_seconds * (1 - (1 - self.ratio) ** (each * self.spread))
        for window, rate in self.reach:
            seconds += rate * each * (min(context, window) if window else context)
        return max(seconds, self.launch_seconds)


def make_decoder(engine: Engine, accelerator: Accelerator, constants: Constants) -> Decoder:
    """Return the coefficients of an engine's decode step."""
    model, tensor = engine.model, engine.tensor
    bandwidth = accelerator.bandwidth * constants.decode.bandwidth
    streamed = bandwidth * (constants.decode.packed_share if model.quantization in _PACKED else 1.0)
    exchange, is_by_bus = _exchange_seconds(engine, constants), accelerator.link == "pcie"
    reduced = constants.decode.pcie_exchange_seconds if is_by_bus else constants.decode.exchange_seconds
    kinds = {id(layer): layer for layer in model.layers}
    counts = Counter(map(id, model.layers))
    dense = vocabulary_bytes(engine, engine.pipeline - 1)  # head and final norm; of the embedding, some rows only
    if engine.pipeline == 1 and not model.is_tied:
        dense -= vocabulary_bytes(engine, 0) / 2
    experts = fixed = products = expert_products = 0.0
    reach: dict[int, float] = {}
    ranks = max(tensor, engine.expert)
    is_shared = ranks > 1
    # Of an engine over several nodes: hops of a layer's two reductions around them, there and back.
    beyond = 2 * 2 * (-(-ranks // max(accelerator.domain, _NODE)) - 1)
    for key, count in counts.items():
        layer = kinds[key]
        dense += count * layer_bytes(layer, engine, share=0.0)
        experts += count * expert_bytes(layer, engine)
        products += count * (layer.attention + layer.mlp) / tensor + count * layer.replicated
        if layer.is_moe:
            used = layer.experts * model.experts_per_token / model.experts
            expert_products += count * used / tensor
            fixed += count * constants.decode.expert_layer_seconds
        else:
            fixed += count * constants.decode.layer_seconds
        if is_shared:
            fixed += count * (exchange if layer.is_moe else reduced)
        fixed += count * beyond * constants.network.node_latency
        if layer.has_cache:
            per_token = layer_token_bytes(layer, tensor, engine.kv_bytes)
            reach[layer.window] = reach.get(layer.window, 0.0) + count * per_token / bandwidth
    if is_first_engine(engine):
        fixed += constants.decode.first_engine_seconds
    if engine.name == "trainer":
        fixed += model.num_layers * constants.decode.sampler_layer_seconds
    peak = product_rate(engine, accelerator, constants)
    multiplied = 2 * (products + model.vocab * model.hidden / tensor) / (peak * constants.decode.compute)
    sequence = 2 * expert_products / (peak * constants.decode.compute_experts)
    sequence += constants.decode.sequence_seconds * (
        constants.decode.sequence_share_ahead if schedules_ahead(engine) else 1.0
    )
    if is_shared:  # two reductions of a hidden state per layer, each over the link twice but for the own part
        volume = model.num_layers * 2 * 2 * model.hidden * 2 * (1 - 1 / ranks)
        link = card_bandwidth(accelerator) if beyond else accelerator.link_bandwidth
        sequence += volume / (link * constants.decode.link)
    slower = 1.0 if accelerator.vendor == "nvidia" else constants.decode.others
    return Decoder(
        dense_seconds=dense / streamed * slower,
        product_seconds=multiplied * slower,
        fixed_seconds=fixed * slower,
        tile=constants.decode.tile_rows * min(max(matrix_bytes(engine) / 2, _NARROWEST), 1.0),
        expert_seconds=experts / streamed * slower,
        sequence_seconds=sequence * slower,
        reach=tuple((window, rate * slower) for window, rate in reach.items()),
        ratio=model.experts_per_token / model.experts if model.experts else 0.0,
        spread=expert_ranks(engine) / tensor,
        pipeline=engine.pipeline,
        launch_seconds=_launch_seconds(engine, constants),
    )


def _launch_seconds(engine: Engine, constants: Constants) -> float:
    """Return the seconds in which the host starts one step without CUDA graphs: layers of experts take more kernels."""
    if not engine.is_eager or engine.name == "trainer":
        return 0.0
    routed = sum(layer.is_moe for layer in engine.model.layers)
    k = constants.decode
    return (engine.model.num_layers - routed) * k.eager_layer_seconds + routed * k.eager_expert_layer_seconds


def _exchange_seconds(engine: Engine, constants: Constants) -> float:
    """Return the seconds per layer that the devices of an engine with experts wait for each other.

    Experts that are divided by tensors are reduced, as a dense layer is. Whole experts get their tokens from every
    other device, one message each: what was measured of eight devices goes with the others that a device talks to.
    """
    if engine.expert <= 1:
        return constants.decode.expert_reduce_seconds
    seconds = constants.decode.expert_exchange_seconds * (engine.expert - 1) / (_NODE - 1)
    return seconds * (constants.decode.sglang_exchange if engine.name == "sglang" else 1.0)


def product_rate(engine: Engine, accelerator: Accelerator, constants: Constants) -> float:
    """Return the FLOP/s of one device before efficiency: of bf16, or more where weights and device are of fp8."""
    peak = accelerator.peak
    rate = peak.get("bf16") or peak.get("fp16") or max(peak.values())
    has_fp8 = "fp8" in peak and engine.model.quantization not in _WIDENED and matrix_bytes(engine) <= 1.01
    return rate * constants.decode.fp8_gain if has_fp8 else rate


def prefill_seconds(
    engine: Engine, accelerator: Accelerator, tokens: float, context: float, constants: Constants
) -> float:
    """Return seconds of `tokens` of prompts of `context` tokens each: 2*N_mm + 2*L*q*context FLOPs a token."""
    model = engine.model
    attended = sum(min(context, layer.window) if layer.window else context for layer in model.layers if layer.has_cache)
    flops = 2 * model.matmul_parameters + 2 * attended * model.attention_width
    share = constants.decode.prefill_experts if model.experts else constants.decode.prefill
    slower = 1.0 if accelerator.vendor == "nvidia" else constants.decode.others
    return (
        tokens
        * flops
        * slower
        / (engine.tensor * engine.pipeline * product_rate(engine, accelerator, constants) * share)
    )


def decode_step_seconds(
    engine: Engine, accelerator: Accelerator, batch: float, context: float, constants: Constants
) -> float:
    """Return seconds of one decode step of `batch` sequences with `context` live tokens each in the mean."""
    return make_decoder(engine, accelerator, constants).step(batch, context)
