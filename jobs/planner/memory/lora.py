"""Elements of LoRA's two matrices per target: rank * (in + out). PEFT's names of modules, as trainers take them."""

from collections import Counter
from collections.abc import Iterable
from functools import cache

from jobs.planner.job import Training
from jobs.planner.shapes.model_shape import LayerShape, ModelShape

_ALL = {"all-linear", "all", "all_linear", "linear"}
_NAMES = {
    "q": {"q_proj", "q", "query", "qkv_proj", "qkv", "linear_qkv", "q_a_proj", "q_b_proj"},
    "k": {"k_proj", "k", "key", "qkv_proj", "qkv", "linear_qkv", "kv_a_proj_with_mqa", "kv_b_proj"},
    "v": {"v_proj", "v", "value", "qkv_proj", "qkv", "linear_qkv", "kv_a_proj_with_mqa", "kv_b_proj"},
    "o": {"o_proj", "o", "out_proj", "output_proj", "linear_proj", "dense"},
    "gate": {"gate_proj", "gate", "w1", "gate_up_proj", "linear_fc1"},
    "up": {"up_proj", "up", "w3", "fc1", "gate_up_proj", "linear_fc1"},
    "down": {"down_proj", "down", "w2", "fc2", "linear_fc2"},
}
NUM_PARTS = len(_NAMES)
"""Matrices of a layer that may have adapters."""


@cache
def adapted_parts(targets: frozenset[str]) -> frozenset[str]:
    """Return which matrices of a layer have adapters, of q, k, v, o, gate, up and down."""
    named = {target.lower() for target in targets}
    return frozenset(part for part, names in _NAMES.items() if named & (names | _ALL))


def adapter_parameters(training: Training) -> int:
    """Return the parameters of one LoRA's matrices over the whole model; 0 for full training."""
    if training.method == "full":
        return 0
    return training.adapter_parameters or adapter_elements(training.model, training.lora_rank, training.lora_targets)


def adapter_elements(model: ModelShape, rank: int, targets: Iterable[str]) -> int:
    """Return rank * (in + out) summed over the targets of all layers; of experts every one has its own."""
    targets = tuple(targets)
    counts = Counter(map(id, model.layers))  # layers alike are one object
    kinds = {id(layer): layer for layer in model.layers}
    return sum(counts[key] * sum(layer_adapters(layer, model, rank, targets)) for key, layer in kinds.items())


def scale_of_adapters(training: Training) -> float:
    """Return the factor from what rank and targets give of one adapter to what a training holds of all of them."""
    if not training.adapter_parameters:
        return float(training.num_adapters)
    return (
        training.num_adapters
        * training.adapter_parameters
        / max(adapter_elements(training.model, training.lora_rank or 1, training.lora_targets), 1)
    )


def layer_adapters(layer: LayerShape, model: ModelShape, rank: int, targets: Iterable[str]) -> tuple[int, int]:
    """Return the elements of the adapters of one layer: beside what all tokens use, and beside the routed experts."""
    chosen = adapted_parts(frozenset(targets))
    sides = _latent_sides(model, chosen) if model.attention_kind == "mla" else _attention_sides(model, chosen)
    matrices = len(chosen & ({"gate", "up", "down"} if model.is_gated else {"up", "down"}))
    width = model.shared_width if layer.is_moe else model.mlp_width
    sides += matrices * (model.hidden + width) if width else 0
    routed = model.experts * matrices * (model.hidden + model.expert_width) if layer.is_moe else 0
    return rank * sides, rank * routed


def _attention_sides(model: ModelShape, chosen: frozenset[str]) -> int:
    of_queries = len(chosen & {"q", "o"}) * (model.hidden + model.query)
    return of_queries + len(chosen & {"k", "v"}) * (model.hidden + model.kv)


def _latent_sides(model: ModelShape, chosen: frozenset[str]) -> int:
    total = 0
    if "q" in chosen:
        rank = model.query_rank
        total += (model.hidden + rank) + (rank + model.query) if rank else model.hidden + model.query
    if chosen & {"k", "v"}:
        total += model.hidden + model.latent
        total += model.kv_rank + model.heads * (model.nope_size + model.value_size)
    if "o" in chosen:
        total += model.heads * model.value_size + model.hidden
    return total
