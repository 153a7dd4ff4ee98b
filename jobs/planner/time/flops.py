"""Floating-point operations of a model, exactly: matrix products and causal attention, no element-wise work.

A product of (m, k) by (k, n) counts 2*m*k*n. Attention of a token that sees s positions takes 4*q*s (scores and
values), q being `ModelShape.attention_width`; causally, tokens of a document of S see (S+1)/2 on average, a window
lowers it. Linear attention takes 6 per element of its state. Source: "PaLM", appendix B
(arXiv 2204.02311).
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from jobs.planner.job import Training
from jobs.planner.memory.lora import adapter_parameters
from jobs.planner.shapes.model_shape import LayerShape, ModelShape

_STATE_FLOPS = 6  # per element of a linear attention's state: read by the key, updated, read by the query

RECOMPUTED: Mapping[str, float] = {"none": 0.0, "selective": 0.3, "full": 1.0}
"""Shares of the layers' forward pass that are computed twice. Selective: 3.2 to 3.4 passes were counted in all."""


@dataclass(frozen=True, slots=True)
class LayerFlops:
    """Forward FLOPs per token of one decoder layer. `dense`: products with what every token uses; `experts`: with the
    experts that it is sent to; `attention`: scores and values, or the state of linear attention."""

    dense: float
    experts: float
    attention: float

    @property
    def total(self) -> float:
        """All of them."""
        return self.dense + self.experts + self.attention


def mean_context(document: float, window: int = 0) -> float:
    """Return the positions that a token of a document sees causally, in the mean; a window keeps the newest only."""
    if document <= 0:
        return 0.0
    if not window or document <= window:
        return (document + 1) / 2
    return window - window * (window - 1) / (2 * document)


def layer_flops(layer: LayerShape, model: ModelShape, document: float) -> LayerFlops:
    """Return forward FLOPs per token of a layer in documents of so many tokens."""
    used = layer.experts * model.experts_per_token / model.experts if layer.is_moe else 0.0
    attention = float(_STATE_FLOPS * layer.state)
    if layer.has_cache:
        attention = 4 * model.attention_width * mean_context(document, layer.window)
    dense = 2.0 * (layer.attention + layer.mlp + layer.replicated)
    return LayerFlops(dense=dense, experts=2.0 * used, attention=attention)


def head_flops(model: ModelShape, *, is_scalar: bool = False) -> float:
    """Return forward FLOPs per token of the output head, and of the final norm as the parameter count has it."""
    return 2.0 * ((model.hidden if is_scalar else model.vocab * model.hidden) + model.final)


@lru_cache(maxsize=64)
def layer_kinds(model: ModelShape) -> tuple[tuple[LayerShape, int], ...]:
    """Return each kind of layer of a model and how many there are."""
    return tuple(Counter(model.layers).items())


def forward_flops(model: ModelShape, tokens: float, context: float, *, is_scalar: bool = False) -> float:
    """Return FLOPs of one forward pass over `tokens` tokens in documents of `context` tokens each."""
    each = sum(count * layer_flops(layer, model, context).total for layer, count in layer_kinds(model))
    return tokens * (each + head_flops(model, is_scalar=is_scalar))


def training_flops(training: Training, tokens: float, context: float, *, executed: bool = False) -> float:
    """Return FLOPs of training on `tokens` tokens: of the model (what MFU counts), or as executed with recomputation.

    Full: three forward passes. LoRA: a forward pass and the gradient of data, which is one more, and three of the
    adapters; weights that are frozen have no gradient. Recomputation repeats the layers' forward pass, attention's
    backward always its scores.
    """
    is_scalar = training.objective == "scalar"
    forward = forward_flops(training.model, tokens, context, is_scalar=is_scalar)
    head = tokens * head_flops(training.model, is_scalar=is_scalar)
    passes = 3 if training.method == "full" else 2
    total = passes * forward + 6.0 * adapter_parameters(training) * tokens
    attention = tokens * sum(
        n * layer_flops(layer, training.model, context).attention for layer, n in layer_kinds(training.model)
    )
    if training.method != "full":
        total += attention  # it has no weights: both of its products are differentiated
    if executed:
        total += RECOMPUTED[training.checkpointing] * (forward - head) + attention / 2
    return total
