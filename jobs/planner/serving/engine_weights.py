"""Bytes of a served model on one device, divided as vLLM divides it (read in 0.32, model_executor).

Attention and MLP divide by tensor parallelism, keys and values only down to one head; the down-projections of MLA,
norms and routers are whole on each rank; embedding and head divide by vocabulary; stages of a pipeline hold layers.
Tables of rotary positions are whole on each rank; the tower that sees images divides, and is on the first stage.
"""

from collections import Counter

from jobs.planner.job import Engine
from jobs.planner.serving.kv_cache import stages
from jobs.planner.shapes.model_shape import LayerShape, ModelShape

_VOCAB_MULTIPLE = 64
_MXFP4_HIDDEN, _MXFP4_WIDTH = 256, 128  # what kernels for mxfp4 pad an expert's matrices to


def weight_bytes(engine: Engine, stage: int) -> int:
    """Return bytes of the weights on one device of a pipeline stage."""
    if engine.shares_weights:
        return 0
    model = engine.model
    held = [model.layers[i] for i in stages(engine)[stage]]
    kinds = {id(layer): layer for layer in held}  # layers alike are one object: far cheaper than to compare them
    counts = Counter(map(id, held))
    total = sum(count * layer_bytes(kinds[key], engine) for key, count in counts.items())
    tower = model.tower if stage == 0 and engine.images_per_prompt != 0 else 0
    beside = model.rotary + tower / engine.tensor
    return round(total + beside * plain_bytes(engine) + vocabulary_bytes(engine, stage))


def vocabulary_bytes(engine: Engine, stage: int) -> float:
    """Return bytes of embedding, head and final norm on one device of a stage; a tied head is held once per device."""
    model, plain = engine.model, plain_bytes(engine)
    one = -(-model.vocab // _VOCAB_MULTIPLE) * _VOCAB_MULTIPLE * model.hidden * plain / engine.tensor
    is_first, is_last = stage == 0, stage == engine.pipeline - 1
    count = 1 if model.is_tied and (is_first or is_last) else is_first + is_last
    return count * one + (model.final * plain if is_last else 0) + (model.outside * plain if is_first else 0)


def layer_bytes(layer: LayerShape, engine: Engine, *, share: float = 1.0) -> float:
    """Return bytes of one layer on one device; of its experts only a `share`."""
    model, tensor, plain = engine.model, engine.tensor, plain_bytes(engine)
    dense = matrix_bytes(engine) if model.quantizes == "layers" or engine.weight_bytes is not None else plain
    total = layer.mlp / tensor * dense + layer.replicated_linear * dense
    total += (layer.replicated - layer.replicated_linear) * plain
    total += attention_elements(layer, model, tensor) * dense
    if layer.has_cache and model.attention_kind == "mla":  # the up-projection once more, as attention multiplies by it
        total += model.heads * model.kv_rank * (model.nope_size + model.value_size) / tensor * plain
    return total + share * expert_bytes(layer, engine)


def attention_elements(layer: LayerShape, model: ModelShape, tensor: int) -> float:
    """Return elements of attention on one tensor rank: keys and values of fewer heads than ranks are repeated."""
    if not layer.has_cache or model.attention_kind == "mla" or tensor <= model.kv_heads:
        return layer.attention / tensor
    keys = 2 * model.hidden * model.kv
    return (layer.attention - keys) / tensor + keys / model.kv_heads


def expert_bytes(layer: LayerShape, engine: Engine) -> float:
    """Return bytes of a layer's routed experts on one device, padded as kernels for their type need it."""
    model = engine.model
    elements = layer.experts / expert_ranks(engine)
    if model.quantization == "mxfp4" and engine.weight_bytes is None and layer.experts:
        width = model.expert_width // (1 if engine.expert > 1 else engine.tensor)
        elements *= _padded(model.hidden, _MXFP4_HIDDEN) * _padded(width, _MXFP4_WIDTH)
    own = model.expert_bytes if engine.weight_bytes is None else 0
    return elements * (own or matrix_bytes(engine))


def expert_ranks(engine: Engine) -> int:
    """Return over how many devices the routed experts are divided, be it by expert or by their width."""
    return max(engine.expert, engine.tensor)


def matrix_bytes(engine: Engine) -> float:
    """Return bytes per element of what quantization reaches; a checkpoint of 32 bits is served in 16."""
    if engine.weight_bytes is not None:
        return engine.weight_bytes
    return engine.model.quantized_bytes if engine.model.quantization else min(engine.model.quantized_bytes, 2.0)


def plain_bytes(engine: Engine) -> float:
    """Return bytes per element of embeddings, head, norms and routers."""
    return 4.0 if engine.weight_bytes is not None and engine.weight_bytes >= 4 else 2.0


def _padded(size: int, multiple: int) -> float:
    return -(-size // multiple) * multiple / size
