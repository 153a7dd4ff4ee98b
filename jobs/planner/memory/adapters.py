"""Activations of a layer whose matrices are frozen: what is kept for its adapters alone.

A frozen matrix keeps no input, and neither does the weight of a frozen norm. An adapter keeps what goes into it: the
tensor that the matrix takes, or a copy of its own where PEFT casts it. Elements per token, of what is computed with,
counted with hooks on PEFT's modules (tests/jobs/planner/memory/test_precision.py).
"""

from jobs.planner.job import Training
from jobs.planner.memory.lora import adapted_parts
from jobs.planner.memory.precision import casts_inputs_of_adapters
from jobs.planner.shapes.model_shape import LayerShape

_MASK = 0.5  # a byte of each element that dropout may drop
_SCALED = 2.0  # DoRA scales the output of the matrix and of the adapter, and keeps both


def _parts(training: Training) -> frozenset[str]:
    return adapted_parts(frozenset(training.lora_targets))


def is_frozen(training: Training) -> bool:
    """Return whether matrices and norms keep nothing for their own weights. Of Megatron's kernels it is not known."""
    return training.method != "full" and training.kernels != "megatron" and not training.keeps_frozen_inputs


def _has_own_inputs(training: Training) -> bool:
    """Return whether each adapter keeps a tensor of its own: what PEFT casts, or what dropout has left of it."""
    return casts_inputs_of_adapters(training) or training.has_adapter_dropout


def inputs_of_adapters(training: Training) -> float:
    """Return how many hidden states are kept that go into adapters before attention and before the MLP."""
    attention, mlp = _parts(training) & {"q", "k", "v"}, _parts(training) & {"gate", "up"}
    if _has_own_inputs(training):
        return float(len(attention) + len(mlp))
    return float(bool(attention) + bool(mlp))


def keeps_product(training: Training) -> bool:
    """Return whether what goes into the last matrix of the MLP is kept."""
    return not is_frozen(training) or "down" in _parts(training)


def kept_for_adapters(layer: LayerShape, training: Training) -> float:
    """Return elements per token that adapters keep beside what goes into them before attention and the MLP."""
    if training.method == "full" or training.kernels == "megatron":
        return 0.0
    model, parts = training.model, _parts(training)
    width = model.shared_width if layer.is_moe else model.mlp_width
    total = float(model.query) if _has_own_inputs(training) and "o" in parts else 0.0
    if training.has_adapter_dropout:
        total += _MASK * sum(_in_and_out(part, training, width)[0] for part in parts)
    if training.is_dora:
        total += _SCALED * sum(_in_and_out(part, training, width)[1] for part in parts)
    if training.keeps_last_inputs and training.method == "qlora":
        # Of each tensor that goes into matrices: before attention, its output, before the MLP, the MLP's product.
        total += 2 * model.hidden + model.query + width
    return total


def identities(layer: LayerShape, training: Training) -> float:
    """Return elements that DoRA keeps whatever the tokens: to know the norm of the adapted weights it multiplies an
    identity matrix by the adapter, as wide as what goes in (PEFT, tuners/lora/dora.py)."""
    if not training.is_dora or training.method == "full":
        return 0.0
    width = training.model.shared_width if layer.is_moe else training.model.mlp_width
    return float(sum(_in_and_out(part, training, width)[0] ** 2 for part in _parts(training)))


def _in_and_out(part: str, training: Training, width: int) -> tuple[int, int]:
    hidden, query, kv = training.model.hidden, training.model.query, training.model.kv
    sides = {
        "q": (hidden, query),
        "k": (hidden, kv),
        "v": (hidden, kv),
        "o": (query, hidden),
        "gate": (hidden, width),
        "up": (hidden, width),
        "down": (width, hidden),
    }
    return sides[part]
