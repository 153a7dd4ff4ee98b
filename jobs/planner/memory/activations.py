"""Activations: what a forward pass keeps for the backward pass, and what the differentiation of a layer takes.

Counted from what each operation saves, in elements per token and layer (autograd hooks on the modeling code of
transformers, and reading the kernels; docs/develop/planner-formulas.md):

    a norm of the hidden state: its input; Transformers' own casts it to fp32 and keeps the normed values too
    a linear layer: its input        attention: queries and keys after the rotation, values, its output
    a gated MLP: gate, its activation, up, their product; one that is not gated: before and after its activation

With h hidden, q and kv of queries and of keys or values, f of the MLP, for the usual two norms that is 8h + 2q + 2kv +
4f of a Llama layer in Transformers, and 3(q + kv) more where queries and keys are normed. Torch's attention under a
mask repeats keys and values to as many heads as queries have; without one it takes them as they are. Flash attention
keeps no scores; eager attention keeps them.
"""

from dataclasses import dataclass

from jobs.planner.constant import Constants
from jobs.planner.job import Kernels, Training
from jobs.planner.memory.adapters import identities, inputs_of_adapters, is_frozen, keeps_product, kept_for_adapters
from jobs.planner.memory.precision import casts_inputs_of_adapters, stream_width
from jobs.planner.memory.stages import Stage
from jobs.planner.shapes.model_shape import LayerShape, ModelShape

_MATRICES_OF_HIDDEN = 5.0  # queries, keys, values, gate and up
_CAST = 2.0  # bytes of a score in 16 bits


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerActivations:
    """Elements per token that one layer keeps. `hidden` are as wide as the hidden state, and whole on each tensor rank
    without sequence parallelism; `inner` are divided by tensor parallelism; `routed` are those of tokens on their way
    through the routed experts."""

    hidden: float
    inner: float
    routed: float

    @property
    def total(self) -> float:
        """All of them, of an undivided layer."""
        return self.hidden + self.inner + self.routed


def saved_elements(layer: LayerShape, training: Training) -> LayerActivations:
    """Return what a layer keeps without checkpointing. Of frozen matrices no input is kept (see adapters.py)."""
    model, kernels = training.model, training.kernels
    attention = _latent(model, kernels) if model.attention_kind == "mla" else _heads(layer, training)
    width = model.shared_width if layer.is_moe else model.mlp_width
    inner = attention + _mlp(width, training)
    routed = 0.0
    if layer.is_moe:
        # Into the experts' order, and back to be weighted, which kernels do within the activation.
        copies = 1.0 if kernels == "megatron" else 2.0
        routed = model.experts_per_token * (copies * model.hidden + _mlp(model.expert_width, training, is_routed=True))
        inner += model.experts  # the router's logits
    return LayerActivations(
        hidden=(_norms(layer, training) + _inputs(training)) * model.hidden,
        inner=inner + kept_for_adapters(layer, training),
        routed=routed,
    )


def _norms(layer: LayerShape, training: Training) -> float:
    """Hidden states that norms keep."""
    stream = stream_width(training)
    has_biases = training.model.final >= 2 * training.model.hidden  # layer norms, which torch has a kernel for
    if training.kernels != "eager" or has_biases:
        return layer.norms * stream
    # In fp32, 2 each; normed too where its weight has a gradient; where four norms stand around both parts, they are
    # scaled in fp32 too.
    if is_frozen(training):
        return 2.0 * layer.norms
    return (2.0 + (2.0 if layer.norms > 2 else stream)) * layer.norms


def _inputs(training: Training) -> float:
    """Hidden states that go into matrices: one before attention and one before the MLP. Autocast casts an fp32 one for
    each matrix anew, unless a compiler sees that they are alike; of frozen matrices a compiler keeps one alone."""
    is_compiled = training.kernels == "compiled"
    if is_frozen(training):
        return min(inputs_of_adapters(training), 1.0) if is_compiled else inputs_of_adapters(training)
    copies = inputs_of_adapters(training) if casts_inputs_of_adapters(training) else 0.0
    if stream_width(training) > 1:
        return 2.0 if is_compiled else max(_MATRICES_OF_HIDDEN, copies)
    return 2.0 + copies


def _heads(layer: LayerShape, training: Training) -> float:
    """Attention with keys and values per head."""
    model = training.model
    query, kv = model.query, model.kv
    if not layer.has_cache:  # linear attention: its projections before and after the convolution
        return 2.0 * layer.attention / model.hidden
    repeats = training.attends_by in ("sdpa", "eager") and training.kernels != "compiled"
    seen = query if repeats and not training.has_grouped_attention else kv
    total = 2.0 * query + 2.0 * seen
    if model.has_qk_norm and training.kernels != "megatron":
        total += {"eager": 3.0 - is_frozen(training), "compiled": 0.0}.get(training.kernels, 1.0) * (query + kv)
    if training.kernels == "megatron" or training.has_joined_projections:
        total += query + kv  # before the rotation, which is what norms of them keep
    return total


def _latent(model: ModelShape, kernels: Kernels) -> float:
    """Multi-head latent attention: the compressed vectors and their norms, what heads see, what they return."""
    value = model.heads * model.value_size
    compressed = model.query_rank + model.kv_rank
    if kernels == "eager":  # values are padded to the size of queries for flash attention
        return 4.0 * compressed + 4.0 * model.query + value
    expanded = model.heads * (model.nope_size + model.value_size)
    return 2.0 * compressed + model.rope_size + 2.0 * model.query + expanded + value


def _mlp(width: int, training: Training, *, is_routed: bool = False) -> float:
    """Gate, its activation, up, and their product, which a frozen matrix behind it does not keep."""
    each = 4.0 if training.kernels in ("eager", "fused") else 3.0
    if not training.model.is_gated:
        each = 2.0
    return (each if is_routed or keeps_product(training) else each - 1.0) * width


def kept_elements(layer: LayerShape, training: Training) -> LayerActivations:
    """Return what a layer keeps from the forward to the backward pass, under the checkpointing that is set.

    Full: its input. Selective outside of Megatron (torchtitan's per operation): every second product of matrices and
    attention's output are kept, all else is computed again: of a gated layer q, kv, f, h; attention's output q; the
    input h. The grouped products of routed experts are no such product (`_grouped_mm` is not in torchtitan's list of
    what is saved), nor are tokens on their way there and back. A compiler drops the last product, h, which nothing in
    the backward pass needs. Megatron's recomputes attention's core, of which flash
    attention keeps nothing.
    """
    whole = saved_elements(layer, training)
    if training.checkpointing == "none":
        return whole
    model, stream = training.model, stream_width(training)
    if training.checkpointing == "full":
        return LayerActivations(hidden=stream * model.hidden, inner=0.0, routed=0.0)
    if training.kernels == "megatron":
        return whole
    inner = 2.0 * model.query + model.kv + (model.shared_width if layer.is_moe else model.mlp_width)
    last = 0.0 if training.kernels == "compiled" else 1.0
    return LayerActivations(
        hidden=min((last + stream) * model.hidden, whole.hidden), inner=min(inner, whole.inner), routed=0.0
    )


def _divided(saved: LayerActivations, training: Training, constants: Constants) -> float:
    """Return elements per token on one rank: tensor parallelism divides them, and expert parallelism leaves some ranks
    with more tokens than others."""
    layout = training.layout
    whole = 1 if layout.has_sequence_parallel else layout.tensor
    imbalance = constants.memory.expert_imbalance if layout.expert > 1 else 1.0
    return (saved.hidden * whole + saved.inner + saved.routed * imbalance) / layout.tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Activations:
    """Bytes of one rank. `stored`: of all layers of the stage and all micro-batches in flight, when the last forward
    pass is done; `working`: what comes to it while a layer is differentiated."""

    stored: float
    working: float


def activations_of(training: Training, stage: Stage, constants: Constants, *, width: float) -> Activations:
    """Return the activations of a stage; `width` is bytes of an element.

    While a layer is differentiated its own activations are there (computed again under checkpointing), with gradients
    of the widest tensors (see _gradients). A stage that offloads keeps the inputs of a few layers only, those that are
    on their way.
    """
    stored = working = beside = made_again = 0.0
    pairs, scores = _pairs(training), _bytes_of_scores(training, constants)
    for layer, count in stage.layers:
        each = _divided(kept_elements(layer, training), training, constants) * width
        each += pairs * scores if training.checkpointing == "none" else 0.0
        in_mlp, in_attention = (
            (_divided(moment, training, constants) + _gathered(training)) * width
            for moment in _moments(layer, training, constants)
        )
        again = max(in_mlp + pairs * scores, in_attention + pairs * constants.memory.scores_differentiated)
        working = max(working, again - each)
        held = min(float(count), constants.memory.offloaded_layers) if training.offload.activations else float(count)
        stored += held * each
        fixed = identities(layer, training) * width
        beside += held * fixed if training.checkpointing == "none" else 0.0
        made_again = max(made_again, fixed if training.checkpointing != "none" else 0.0)
    ends = _ends(training, stage) * width
    return Activations(
        stored=training.tokens * (stored * stage.in_flight + ends) + beside * stage.in_flight,
        working=training.tokens * working + made_again,
    )


def _moments(layer: LayerShape, training: Training, constants: Constants) -> tuple[LayerActivations, LayerActivations]:
    """Return elements per token at the widest moments of a layer's backward pass: in its MLP, when all that it saved is
    there, and in attention, when what the MLP saved is gone."""
    whole, of_mlp = saved_elements(layer, training), _saved_by_mlp(layer, training)
    model = training.model
    in_mlp = _sum(whole, _gradients(layer, training, constants))
    in_attention = LayerActivations(
        hidden=whole.hidden - of_mlp.hidden + stream_width(training) * model.hidden,
        inner=whole.inner - of_mlp.inner + _gradients_in_attention(layer, training),
        routed=0.0,
    )
    return in_mlp, in_attention


def _sum(one: LayerActivations, other: LayerActivations) -> LayerActivations:
    return LayerActivations(
        hidden=one.hidden + other.hidden, inner=one.inner + other.inner, routed=one.routed + other.routed
    )


def _saved_by_mlp(layer: LayerShape, training: Training) -> LayerActivations:
    """Return what of a layer's saved elements the MLP saved, and the norms around it."""
    model = training.model
    width = model.shared_width if layer.is_moe else model.mlp_width
    return LayerActivations(
        hidden=(_norms(layer, training) + _inputs(training)) * model.hidden / 2.0,
        inner=_mlp(width, training) + (model.experts if layer.is_moe else 0.0),
        routed=0.0,
    )


def _gradients(layer: LayerShape, training: Training, constants: Constants) -> LayerActivations:
    """Return elements per token of the gradients at the widest moment of a layer's MLP: of the product, of both of its
    factors (which Liger writes in their place) and of the hidden state. Of routed experts also `memory.routed_copies`
    of the tokens on their way into the experts' order and back, in fp32 and padded."""
    model = training.model
    matrices = 3.0 if model.is_gated else 2.0
    if training.kernels == "liger" and model.is_gated:
        matrices = 1.0
    if casts_inputs_of_adapters(training) and keeps_product(training):
        matrices = 3.0  # of the product, and once more in fp32 through the adapter
    routed = 0.0
    if layer.is_moe:
        each = matrices * model.expert_width + (2.0 + constants.memory.routed_copies) * model.hidden
        routed = model.experts_per_token * each
    width = model.shared_width if layer.is_moe else model.mlp_width
    return LayerActivations(hidden=stream_width(training) * model.hidden, inner=matrices * width, routed=routed)


def _gathered(training: Training) -> float:
    """Return elements per token of one rank that are whole for a while with sequence parallelism: the hidden state
    before a matrix, its gradient, and the copy of it that is scattered."""
    layout = training.layout
    return 3.0 * training.model.hidden if layout.tensor > 1 and layout.has_sequence_parallel else 0.0


def _gradients_in_attention(layer: LayerShape, training: Training) -> float:
    """Return elements per token of gradients while attention is differentiated: of its output and of queries, keys and
    values.

    With context parallelism outside of Megatron, which passes blocks on, that is PyTorch's ring
    (torch/distributed/tensor/experimental/_context_parallel/_attention.py), of keys and values once for each query head
    unless attention takes groups of them: those of the whole row, gathered from a copy of the rank's own (2 elements);
    the gradients, added up in fp32 (4), as they are sent on (4), as they arrive (4), and of the step at work (2); those
    of queries in fp32 and of the step at work.
    """
    layout, model = training.layout, training.model
    if layout.context == 1 or training.family == "megatron" or not layer.has_cache:
        return 2.0 * model.query + 2.0 * model.kv
    seen = model.kv if training.has_grouped_attention else model.query
    return 4.0 * model.query + (16.0 + 2.0 * layout.context) * seen


def _pairs(training: Training) -> float:
    """Return pairs of heads and other tokens per token whose scores eager attention writes out: a row's length of them
    per head."""
    if training.attends_by != "eager":
        return 0.0
    heads = training.model.heads / (training.layout.tensor * training.layout.ulysses)
    return heads * training.sequence / training.layout.context


def _bytes_of_scores(training: Training, constants: Constants) -> float:
    """Return bytes of a score that are kept: the softmax is in fp32; what computes in fp32 needs no cast of it."""
    return constants.memory.scores - (_CAST if training.compute == "fp32" else 0.0)


def _ends(training: Training, stage: Stage) -> float:
    """Return elements per token of the final norm and what goes into the head; where the loss is fused with the head,
    also the gradient of what goes in, which it makes of all tokens."""
    if not stage.has_head:
        return 0.0
    stream = stream_width(training)
    norm = stream
    if training.kernels == "eager":
        norm = 2.0 + (0.0 if is_frozen(training) else stream)
    cast = 1.0 if stream > 1 and training.head != "chunked" else 0.0
    each = norm + (cast or stream)
    if training.head == "chunked" and not training.keeps_logits and training.objective != "scalar":
        each += stream
    if training.layout.tensor > 1 and training.layout.has_sequence_parallel:
        return (each / training.layout.tensor + 3.0) * training.model.hidden  # as it is gathered before a matrix
    return each * training.model.hidden


def forward_elements(model: ModelShape, *, tensor: int) -> float:
    """Return elements per token of the widest moment of one layer's forward pass without gradients: two hidden states
    beside the MLP's three or attention's four tensors."""
    mlp = 3.0 * max(model.mlp_width, model.shared_width + model.experts_per_token * model.expert_width)
    routed = 2.0 * model.experts_per_token * model.hidden
    return 2.0 * model.hidden + max(mlp + routed, 2.0 * model.query + 2.0 * model.kv) / tensor
