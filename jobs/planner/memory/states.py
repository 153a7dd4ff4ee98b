"""Model states: weights, gradients and optimizer of one rank, and what sharding gathers for a while.

Mixed precision with Adam keeps 2 bytes of weight, 2 or 4 of gradient and 12 of master copy and moments per parameter
("ZeRO", arXiv 1910.02054; docs/develop/planner-formulas.md). What is divided over the N ranks that hold the same
weights is by stage: optimizer from 1, gradients from 2, weights from 3. All results are bytes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from jobs.planner.constant import Constants
from jobs.planner.job import Layout, Optimizer, Training
from jobs.planner.memory.lora import layer_adapters, scale_of_adapters
from jobs.planner.memory.precision import compute_bytes, ends_bytes, gathered_bytes, is_autocast, trained_bytes
from jobs.planner.memory.stages import (
    Elements,
    Stage,
    layer_share,
    matrix_share,
    stage_share,
    telling_stages,
    vocabulary_share,
)
from jobs.planner.shapes.model_shape import LayerShape, ModelShape

_FP32 = 4.0
_MOMENTS: Mapping[Optimizer, float] = {"adam": 8.0, "adam_bf16": 4.0, "adam_8bit": 2.0, "muon": 4.0, "sgd": 4.0}
"""Bytes per parameter of what an optimizer remembers: two moments of fp32, bf16 or one byte; one fp32 momentum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class States:
    """Bytes of one rank over a whole step. `trained` are the elements that have gradients, before sharding."""

    weights: float
    gradients: float
    optimizer: float
    trained: Elements


def trained_elements(training: Training, stage: Stage) -> Elements:
    """Return the elements of a stage that a rank has gradients of: all of them, or those of the adapters."""
    if training.method == "full":
        return stage_share(stage, training.model, training.layout, has_vocabulary=training.objective != "scalar")
    total = Elements()
    layout, scale = training.layout, scale_of_adapters(training)
    for layer, count in stage.layers:
        dense, experts = layer_adapters(layer, training.model, training.lora_rank or 1, training.lora_targets)
        spread = layout.expert * layout.expert_tensor
        each = Elements(dense=dense / layout.tensor, experts=experts / spread)
        total = total + each.scaled(count * scale)
    return total


def base_bytes(training: Training, stage: Stage) -> float:
    """Return bytes that one rank keeps of the weights that are not trained, sharded where weights are.

    Of a quantized base (QLoRA) the matrices of the layers take `base_bytes` each; embedding, head and norms
    `ends_bytes`, or what is computed with.
    """
    if training.method == "full":
        return 0.0
    layout = training.layout
    whole = stage_share(stage, training.model, layout, has_vocabulary=training.objective != "scalar")
    if training.method == "lora":
        return _sharded(whole, training, 3) * training.base_bytes
    packed = Elements()
    for layer, count in stage.layers:
        packed = packed + matrix_share(layer, layout).scaled(count)
    rest = Elements(dense=whole.dense - packed.dense, experts=whole.experts - packed.experts)
    return _sharded(packed, training, 3) * training.base_bytes + _sharded(rest, training, 3) * ends_bytes(training)


def optimizer_bytes(training: Training) -> float:
    """Return bytes per trained parameter of master copy and moments."""
    moments = _MOMENTS[training.optimizer]
    if training.optimizer == "adam_bf16" and trained_bytes(training) >= _FP32:
        moments = _MOMENTS["adam"]  # torch's moments have the type of what they are of
    return moments + (training.master_bytes if training.has_master else 0.0)


@lru_cache(maxsize=1024)
def frozen_bytes(model: ModelShape, layout: Layout, weight_bytes: float) -> tuple[float, ...]:
    """Return bytes of weights that are only used, on one rank of each kind of stage (telling_stages); sharded where the
    layout shards them."""
    shares = (stage_share(stage, model, layout) for stage in telling_stages(model, layout))
    return tuple((each.sharded(layout) if layout.shards == 3 else each.total) * weight_bytes for each in shares)


def states_of(training: Training, stage: Stage, *, is_offloaded: bool = True) -> States:
    """Return what a rank of a stage keeps over the whole step, offload taken off unless `is_offloaded` is False.

    CPU offload of the optimizer takes DeepSpeed's gradients along (its estimator leaves 2P of ZeRO-2 on the device),
    but for sums of ZeRO-2 that are wider than the weights: those stay (stage_1_and_2.py, compact partition buffer).
    Megatron keeps its fp32 main gradients. FSDP's offload of parameters takes all states. Flat parameters of FSDP1 have
    gradients as a whole, also where adapters alone are trained ("equivalent to not freezing": PyTorch's documentation).
    Whole gradients between micro-batches stay in the type that is computed in under FSDP1, which widens them as it
    reduces them (_runtime_utils.py, _post_backward_hook); FSDP2 adds them up in the type of the reduction.
    """
    trained = trained_elements(training, stage)
    share = training.offload.optimizer if is_offloaded else 0.0
    optimizer = _sharded(trained, training, 1) * (optimizer_bytes(training) + training.step_buffer_bytes) * (1 - share)
    if (
        training.optimizer == "muon" and training.method == "full"
    ):  # what is no matrix of a layer has Adam's two moments
        vocabulary = sum(
            vocabulary_share(stage, training.model, training.layout, has_vocabulary=training.objective != "scalar")
        )
        optimizer += _sharded(Elements(dense=vocabulary), training, 1) * _FP32 * (1 - share)
    weights = _sharded(trained, training, 3) * trained_bytes(training) + base_bytes(training, stage)
    gradients = 0.0 if training.optimizer_in_backward else _sharded(trained, training, 2) * _gradient_bytes(training)
    if training.has_flat_gradients and training.method != "full":
        flat = stage_share(stage, training.model, training.layout, has_vocabulary=training.objective != "scalar")
        gradients = (flat.total if training.defers_reduction else _sharded(flat, training, 2)) * training.gradient_bytes
    elif training.defers_reduction and training.layout.shards >= 2:
        is_flat = training.family == "fsdp" and not training.is_sharded_by_tensor
        deferred = gathered_share(trained, training)
        gradients = deferred * (compute_bytes(training) if is_flat else max(training.gradient_bytes, _FP32))
        gradients += (trained.total - deferred) * _gradient_bytes(training)
    if training.family == "deepspeed" and not _sums_on_device(training):
        gradients *= 1 - share
    if training.offload.params and is_offloaded:
        weights = 0.0
        if training.family == "fsdp":
            gradients = optimizer = 0.0
    return States(weights=weights, gradients=gradients, optimizer=optimizer, trained=trained)


def _gradient_bytes(training: Training) -> float:
    """Return bytes of a gradient: as wide as an adapter where that is known."""
    return training.gradient_bytes if training.method == "full" else training.adapter_bytes or training.gradient_bytes


def _sums_on_device(training: Training) -> bool:
    """Return whether ZeRO-2 adds gradients up on the device, whatever of the optimizer is on the host."""
    return training.layout.shards == 2 and training.gradient_bytes > training.weight_bytes


def _sharded(elements: Elements, training: Training, stage: int) -> float:
    """Return the elements that a rank keeps of something that is divided from a stage of sharding on."""
    return elements.sharded(training.layout) if training.layout.shards >= stage else elements.total


@dataclass(frozen=True, slots=True, kw_only=True)
class Transients:
    """Bytes that come and go within a step. `gathered`: whole weights while they are used, `gathered_at_loss` when all
    layers have done their forward pass; `at_loss`: gradients that exist when the loss is computed, `in_backward` those
    of the layer that is differentiated; `in_step`: what the optimizer's step needs; `buffers`: what is there beside the
    states in the backward pass, `standing_buffers` all the time."""

    gathered: float
    gathered_at_loss: float
    at_loss: float
    in_backward: float
    in_step: float
    buffers: float
    standing_buffers: float
    gathered_first: float
    gathered_last: float
    in_ends: float
    late: float


def transients_of(training: Training, stage: Stage, held: States, constants: Constants) -> Transients:
    """Return the transients of a rank's step. Source: docs/develop/planner-formulas.md, States."""
    width = gathered_bytes(training)
    shares = (layer_share(layer, training.layout) for layer, _ in stage.layers)
    unit = max((gathered_share(each, training) for each in shares), default=0.0)
    embedding, head = vocabulary_share(
        stage, training.model, training.layout, has_vocabulary=training.objective != "scalar"
    )
    is_full = training.method == "full"
    head_matrix = (
        max(head, embedding) if stage.has_head and training.model.is_tied and training.objective != "scalar" else head
    )
    head_gradient = head_matrix * width if is_full else 0.0
    gathered, at_loss_gathered = _gathered(training, stage, unit, embedding, head, constants)
    in_backward = at_loss = buffers = 0.0
    if training.layout.shards == 3 and is_full and not training.defers_reduction:
        # A unit's whole gradients, and the same again in what they are summed in, until they are scattered.
        in_backward = unit * (width + training.gradient_bytes)
        if training.has_sharded_ends:
            # The head's are scattered while the last layer is differentiated, whose own are whole after that.
            in_backward = unit * width + max(unit, head_matrix) * training.gradient_bytes
        elif training.family == "fsdp":
            in_backward += head_gradient * (1 + training.gradient_bytes / width)  # its scatter is still under way
    elif is_full and training.optimizer_in_backward:
        in_backward = max(unit, head, embedding) * max(width, training.gradient_bytes)
    if training.head == "chunked" and training.objective != "scalar" and stage.has_head:
        at_loss = head_gradient  # summed over the chunks before anything else is differentiated
        if training.kernels == "liger" and is_full:
            at_loss += head_matrix * compute_bytes(training)  # of one chunk, before it is added
    if training.family == "megatron" and is_full:
        buffers = _dummy_gradients(training, stage) * width
    if training.family == "deepspeed":
        buffers += _buckets(training, held, constants)
    if training.family == "plain" and training.layout.data > 1:
        buffers += held.gradients  # flat, made with the reducer (PyTorch DDP unless gradients are views of them)
    own_ends = _own_ends(training, (embedding, head), unit)
    # What stays whole after the forward pass is given up as it is differentiated (FSDP2's reshard_after_backward).
    given_up = 0.0 if training.resharded else min((2 * unit + embedding) * width, gathered)
    # ZeRO 1 and 2 make their bucket with the first gradient and drop it with the last (setup_buckets).
    comes_late = training.family == "deepspeed" and training.layout.shards in (1, 2)
    return Transients(
        gathered=gathered,
        gathered_at_loss=at_loss_gathered,
        at_loss=at_loss,
        in_backward=max(in_backward, at_loss),
        in_step=_step_bytes(training, held, constants),
        buffers=buffers,
        standing_buffers=0.0 if comes_late else buffers,
        gathered_first=own_ends.first or given_up or gathered,
        gathered_last=own_ends.last,
        in_ends=own_ends.gradients,
        late=own_ends.late,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ends:
    """What embedding and head take after the layers: see Transients. All 0 where it is not known to be more."""

    first: float = 0.0
    last: float = 0.0
    gradients: float = 0.0
    late: float = 0.0


def _own_ends(training: Training, ends: tuple[float, float], unit: float) -> _Ends:
    """Return what the ends add once all layers are differentiated.

    A tied matrix has two gradients, of the head and of the embedding, and autograd makes their sum anew. Under FSDP the
    ends are one unit with what no layer holds, so that their gradients are reduced last of all, and the first layer,
    which is differentiated before that, is the only one that is gathered.
    """
    if training.method != "full" or training.defers_reduction or training.objective == "scalar":
        return _Ends()
    width, layout = gathered_bytes(training), training.layout
    if training.family == "plain" and training.model.is_tied and not training.optimizer_in_backward:
        return _Ends(gradients=2 * ends[0] * training.gradient_bytes)
    if training.family != "fsdp" or layout.shards < 3 or training.has_sharded_ends or not training.resharded:
        return _Ends()
    elements = sum(ends)
    return _Ends(
        first=(unit + elements) * width + (unit * compute_bytes(training) if is_autocast(training) else 0.0),
        last=elements * width,
        gradients=elements * (width + training.gradient_bytes),
        late=Elements(dense=elements).sharded(layout) * training.gradient_bytes,
    )


def _gathered(
    training: Training, stage: Stage, unit: float, embedding: float, head: float, constants: Constants
) -> tuple[float, float]:
    """Return bytes of weights that are whole for a while, within the layers and at the loss: under FSDP two layers and
    the ends, at the loss one layer, as those before it were given up, or all of them where they are not; under
    DeepSpeed what it lets live. Ends that are units of their own come one at a time. Beside them the casts of
    autocast, of a quantized base one matrix at a time that is unpacked to be multiplied by, and what Transformer Engine
    keeps in fp8."""
    width = gathered_bytes(training)
    vocabulary = (embedding + head) * width
    whole = _whole_bytes(training, stage)
    each = unit * width
    if training.method == "qlora":
        each = max(_unit_bytes(layer, training) for layer, _ in stage.layers)
    beside, beside_at_loss = _copies(training, stage)
    if training.family == "megatron" and training.compute == "fp8":
        packed = sum(count * matrix_share(layer, training.layout).total for layer, count in stage.layers)
        beside = beside_at_loss = packed * constants.memory.fp8_copies
    if training.layout.shards < 3:
        return beside, beside_at_loss
    if not training.resharded:
        return whole + beside, whole + beside_at_loss
    if training.family == "deepspeed":
        live = min(max(constants.memory.deepspeed_live_elements * width, each, vocabulary / 2), whole)
        return live + beside, live + beside_at_loss
    if training.has_sharded_ends:
        end = max(head, embedding * training.model.is_tied) * width
        return min(2 * each, whole) + beside, min(each + end, whole) + beside_at_loss
    return min(2 * each + vocabulary, whole) + beside, min(each + vocabulary, whole) + beside_at_loss


def gathered_share(share: Elements, training: Training) -> float:
    """Return the elements of a rank's share that are gathered where they are used, and whose gradients are scattered.
    Experts that no other rank holds are not divided: they are used, and have their gradients, where they are, unless
    they are cast to be used (AutoModel, components/moe/parallelizer.py: experts are sharded over the ranks that expert
    parallelism leaves, if those are several)."""
    held = trained_bytes(training) if training.method == "full" else training.base_bytes
    is_whole = training.layout.expert > 1 and training.layout.expert_data == 1 and held <= gathered_bytes(training)
    return share.dense if is_whole else share.total


def _unit_bytes(layer: LayerShape, training: Training) -> float:
    """Return bytes of a whole layer as it is gathered; of a quantized base its matrices are gathered packed."""
    total = gathered_share(layer_share(layer, training.layout), training)
    packed = gathered_share(matrix_share(layer, training.layout), training) if training.method == "qlora" else 0.0
    return packed * training.base_bytes + (total - packed) * gathered_bytes(training)


def _whole_bytes(training: Training, stage: Stage) -> float:
    """Return bytes of a stage's weights if all were gathered at once."""
    has_vocabulary = training.objective != "scalar"
    ends = sum(vocabulary_share(stage, training.model, training.layout, has_vocabulary=has_vocabulary))
    layers = sum(count * _unit_bytes(layer, training) for layer, count in stage.layers)
    return ends * gathered_bytes(training) + layers


def _copies(training: Training, stage: Stage) -> tuple[float, float]:
    """Return bytes of weights in the type that is computed with, beside those that are held or gathered: within the
    layers and at the loss.

    Autocast casts each matrix for its product, and the product keeps the cast for the backward pass, of all layers that
    are not checkpointed; its own cache of casts ends with the forward pass, before the loss takes most. bitsandbytes
    and torchao unpack a matrix for its product, and once more in the backward pass.
    """
    width = compute_bytes(training)
    if training.method == "qlora":
        return largest_share(training, stage) * width, 0.0
    if not is_autocast(training) or ends_bytes(training) <= width:
        return 0.0, 0.0
    whole = stage_share(stage, training.model, training.layout, has_vocabulary=training.objective != "scalar").total
    unit = max((layer_share(layer, training.layout).total for layer, _ in stage.layers), default=0.0)
    is_kept = training.checkpointing == "none"
    return (whole if is_kept else unit) * width, whole * width if is_kept else 0.0


def largest_share(training: Training, stage: Stage) -> float:
    """Return elements of the largest matrix of a stage's layers, a rank's share of it."""
    return max(float(layer.largest_matrix) for layer, _ in stage.layers) / training.layout.tensor


def _dummy_gradients(training: Training, stage: Stage) -> float:
    """Return elements of the buffers that fused accumulation of gradients returns in their place: one per shape of
    matrix (Transformer Engine), so that all layers of a kind share theirs, and all experts one."""
    layout = training.layout
    kinds = [layer for layer, _ in stage.layers]
    attention = max((layer.attention / layout.tensor + layer.replicated_linear for layer in kinds), default=0.0)
    widths = {layer.mlp for layer in kinds}  # of dense layers, and of shared experts
    expert = max((layer.experts / training.model.experts for layer in kinds if layer.experts), default=0.0)
    return attention + sum(widths) / layout.tensor + expert / layout.expert_tensor


def _buckets(training: Training, held: States, constants: Constants) -> float:
    """Return bytes in which DeepSpeed reduces gradients.

    From ZeRO 1 on a bucket is made as large as it may be, however little is trained (stage_1_and_2.py, ipg_buffer;
    stage3.py, __ipg_bucket_flat_buffer); of ZeRO-3's what is in it is laid out once more to be scattered
    (coalesced_collectives.py). A second one to fill meanwhile comes with overlap_comm, which is on in ZeRO-3 alone,
    where there is none. Without ZeRO what is reduced at once is copied flat. A rank that is alone has the bucket of
    ZeRO 1 and 2, too.
    """
    if training.layout.num_devices == 1 and training.layout.shards not in (1, 2):
        return 0.0
    width = compute_bytes(training)
    largest = training.bucket_bytes or constants.memory.deepspeed_bucket_elements * width
    filled = min(largest, held.trained.total * width)
    if not training.layout.shards:
        return filled
    return largest + filled if training.layout.shards == 3 else float(largest)


def _step_bytes(training: Training, held: States, constants: Constants) -> float:
    """Return bytes that the optimizer's step takes for a while.

    DeepSpeed casts gradients to the master's type, a group of parameters at a time under ZeRO-3; Adam without a fused
    kernel needs a copy of what it updates; in 8 bits it has a kernel of its own, of one tensor at a time. With the
    update in the backward pass it is that of one matrix, counted there.
    """
    elements = held.trained.sharded(training.layout) if training.layout.shards else held.trained.total
    elements *= 1 - training.offload.optimizer
    if training.optimizer_in_backward or (training.family == "fsdp" and training.offload.params):
        return 0.0
    needed = 0.0
    if training.family == "deepspeed" and training.has_master and training.gradient_bytes != training.master_bytes:
        group = min(elements, constants.memory.deepspeed_group_elements) if training.layout.shards == 3 else elements
        needed += group * training.master_bytes
    if not training.has_fused_optimizer and training.optimizer != "adam_8bit":
        needed += elements * (training.master_bytes if training.has_master else training.weight_bytes)
    return needed


def largest_unit(training: Training, stage: Stage) -> float:
    """Return bytes of the largest unit of a stage that is gathered at once: a layer, or one of the model's ends."""
    ends = vocabulary_share(stage, training.model, training.layout, has_vocabulary=training.objective != "scalar")
    layers = (_unit_bytes(layer, training) for layer, _ in stage.layers)
    return max(*(end * gathered_bytes(training) for end in ends), *layers)


def largest_matrix(training: Training, stage: Stage) -> float:
    """Return elements of the largest tensor of a stage, as all its ranks hold it together."""
    ends = vocabulary_share(stage, training.model, training.layout, has_vocabulary=training.objective != "scalar")
    return max(*ends, *(float(layer.largest_matrix) for layer, _ in stage.layers))
