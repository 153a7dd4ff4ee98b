"""Memory of trained and scoring models: bytes of one device by term, phase by phase, on the fullest stage.

A training step has four moments at which it may be fullest, and the fullest of them counts: the loss (activations of
all layers and logits), the differentiation of the last layers (activations, what a layer takes, its gradients) and of
the first (one layer's activations, all gradients), and the optimizer's step (all gradients). Every stage of a pipeline
is looked at. See docs/develop/planner-formulas.md.

`overhead` holds what the allocator holds beyond tensors, and what a process takes outside of it (context and
communicators: overhead_bytes). A source that reports allocated or reserved bytes leaves part of it out: see counted.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Literal

from jobs.catalog.accelerator import Accelerator
from jobs.planner.constant import Constants
from jobs.planner.job import FrozenModel, Head, Layout, Training
from jobs.planner.memory.activations import activations_of, forward_elements
from jobs.planner.memory.cpu import (
    between_steps,
    host_libraries,
    host_overhead,
    host_peaks,
    scored_logits,
    scored_weights,
)
from jobs.planner.memory.generation import generation_terms
from jobs.planner.memory.logits import logit_gaps, scoring_logits, training_logits
from jobs.planner.memory.precision import compute_bytes
from jobs.planner.memory.stages import Stage, layer_share, telling_stages
from jobs.planner.memory.states import (
    States,
    frozen_bytes,
    largest_matrix,
    largest_unit,
    states_of,
    transients_of,
)
from jobs.planner.memory.storage import checkpoint_bytes, export_bytes, host_bytes
from jobs.planner.result import PeakMemory, Term
from jobs.planner.shapes.model_shape import ModelShape

__all__ = [
    "checkpoint_bytes",
    "checkpoint_memory",
    "counted",
    "export_bytes",
    "frozen_memory",
    "generation_memory",
    "host_bytes",
    "load_memory",
    "overhead_bytes",
    "process_memory",
    "resident_memory",
    "scoring_memory",
    "sync_memory",
    "update_memory",
]


def update_memory(training: Training, accelerator: Accelerator, constants: Constants) -> PeakMemory:
    """Return the peak of forward, backward and optimizer step, on the fullest stage of the pipeline."""
    stages = telling_stages(training.model, training.layout, training.num_micro_batches)
    moments = host_peaks if accelerator.is_host else _peaks
    peaks: Iterator[dict[Term, float]] = (peak for stage in stages for peak in moments(training, stage, constants))
    gaps = 0.0 if accelerator.is_host else logit_gaps(training, constants)

    def whole(peak: dict[Term, float]) -> dict[Term, float]:
        return {**peak, "overhead": gaps} if peak.get("logits") else peak

    peak = max((whole(peak) for peak in peaks), key=lambda peak: sum(peak.values()))
    return _with_overhead(peak, training.layout, accelerator, constants, slack=_slack(training, constants))


def _slack(training: Training, constants: Constants) -> float:
    """Return what the allocator reserves per byte of tensors, by its setting and by how alike micro-batches are: of
    experts that are divided over ranks without a limit of tokens each layer and micro-batch brings a rank other ones
    (Megatron-core, transformer/moe/token_dispatcher.py: sizes of the exchange are those of the routing). Segments that
    can grow are what sizes that change are no trouble for (PyTorch's notes on CUDA, expandable_segments)."""
    memory = constants.memory
    usual = {"expandable": memory.allocator_expandable, "blocks": memory.allocator_blocks}
    is_varied = (training.has_varied_lengths and training.allocator != "expandable") or training.layout.expert > 1
    unknown = memory.allocator_megatron if training.family == "megatron" else memory.allocator
    return usual.get(training.allocator, unknown) * (memory.allocator_varied if is_varied else 1.0)


def _peaks(training: Training, stage: Stage, constants: Constants) -> Iterator[dict[Term, float]]:
    """Yield the moments of a step at which a stage may be fullest, by term: the loss, the differentiation of the last
    layers, of the first and of the embedding, and the optimizer's step."""
    held = states_of(training, stage)
    passing = transients_of(training, stage, held, constants)
    activations = activations_of(training, stage, constants, width=compute_bytes(training))
    logits = training_logits(training, constants) if stage.has_head else 0.0
    gradients = held.gradients if _keeps_gradients(training) else 0.0
    made = held.gradients if _makes_gradients_at_once(training) else gradients
    at_end = held.gradients - passing.late + (passing.in_backward if _drops_gradients(training) else 0.0)
    last = activations.stored / max(stage.num_layers * stage.in_flight, 1) + activations.working
    for gathered, in_layers, in_head, more in (
        (passing.gathered_at_loss, activations.stored, logits, gradients + passing.at_loss + passing.standing_buffers),
        (passing.gathered, activations.stored + activations.working, 0.0, made + passing.in_backward + passing.buffers),
        # The first layer is differentiated last: of activations its own are left, and all gradients are there.
        (passing.gathered_first, min(last, activations.stored + activations.working), 0.0, at_end + passing.buffers),
        # Then the embedding, of which no activations are left.
        (passing.gathered_last, 0.0, 0.0, held.gradients + passing.in_ends + passing.buffers),
    ):
        yield {
            "weights": held.weights + gathered,
            "gradients": more,
            "optimizer": held.optimizer,
            "activations": in_layers,
            "logits": in_head,
        }
    yield {
        "weights": held.weights,
        "gradients": held.gradients + passing.standing_buffers,
        "optimizer": held.optimizer + passing.in_step,
    }


def _keeps_gradients(training: Training) -> bool:
    """Return True if gradients of all parameters are there while a forward pass runs: buffers made once, or the sum of
    earlier micro-batches."""
    return _has_gradient_buffers(training) or training.num_micro_batches > 1


def _drops_gradients(training: Training) -> bool:
    """Return True if a layer's whole gradients are there beside what is kept of them: scattered, or used at once."""
    return training.layout.shards == 3 or training.optimizer_in_backward


def _makes_gradients_at_once(training: Training) -> bool:
    """Return True if the first gradients of a backward pass make room for all that the rank keeps: sums of ZeRO-2 that
    are wider than what is computed with (stage_1_and_2.py, _build_compact_grad_partition_buffer)."""
    is_wider = training.gradient_bytes > compute_bytes(training)
    return training.family == "deepspeed" and training.layout.shards == 2 and is_wider


def _has_gradient_buffers(training: Training) -> bool:
    """Return True if gradients have buffers that outlive a step: Megatron's, and the partitions of ZeRO-3. Below it
    DeepSpeed drops gradients with the step (zero_grad, and averaged_gradients of stage_1_and_2.py)."""
    return training.family == "megatron" or (training.family == "deepspeed" and training.layout.shards == 3)


def overhead_bytes(layout: Layout, accelerator: Accelerator, constants: Constants) -> int:
    """Return bytes that a process takes of a device outside of torch's allocator: context and libraries, and from two
    devices on communicators: the first, and one for each further way in which the model is divided, and for the network
    beyond the devices that a link joins; expert parallelism has buffers for tokens beside its own."""
    if accelerator.is_host:
        return host_overhead(constants)
    if layout.num_devices == 1:
        return round(constants.memory.context_bytes)
    ways = (layout.tensor, layout.pipeline, layout.context, layout.ulysses, layout.expert)
    further = sum(size > 1 for size in ways) - (layout.data == 1) + (layout.num_devices > accelerator.domain)
    groups = constants.memory.communicator_bytes + max(further, 0) * constants.memory.further_communicator_bytes
    if layout.expert > 1:
        groups += constants.memory.expert_buffer_bytes
    return round(constants.memory.context_bytes + groups)


Counts = Literal["allocated", "reserved", "one_stream", "device"]


def counted(
    memory: PeakMemory, training: Training, counts: Counts, accelerator: Accelerator, constants: Constants
) -> int:
    """Return what a source would report of a training's memory: bytes that tensors hold, that torch's allocator holds
    (of a trainer that makes all of them in one stream, too), or all of a device (nvidia-smi)."""
    if counts == "allocated":
        return memory.total - memory.terms.get("overhead", 0)
    if counts == "device":
        return memory.total
    idle = _idle_bytes(training, accelerator, constants) if counts == "reserved" else 0
    return memory.total + idle - overhead_bytes(training.layout, accelerator, constants)


def _idle_bytes(training: Training, accelerator: Accelerator, constants: Constants) -> int:
    """Return what the allocator holds at its fullest beyond what a step needs. FSDP makes a rank's shards of gradients
    on the stream that it reduces on (PyTorch, _fsdp_collectives.py, foreach_reduce; of its first version
    _runtime_utils.py, _post_backward_hook). From the step's end until they are made again they are free, and serve no
    other stream. Before it gives up the allocator frees them: they count for a source, not for a verdict."""
    layout = training.layout
    is_divided = training.family == "fsdp" and layout.shards >= 2 and layout.num_devices > 1
    if accelerator.is_host or not is_divided or _keeps_gradients(training):
        return 0
    gaps, slack = logit_gaps(training, constants), _slack(training, constants)
    needed = reserved = 0.0
    for stage in telling_stages(training.model, layout, training.num_micro_batches):
        idle = states_of(training, stage).gradients
        for moment, peak in enumerate(_peaks(training, stage, constants)):
            size = sum(peak.values()) * slack + (gaps if peak.get("logits") else 0.0)
            needed = max(needed, size)
            reserved = max(reserved, size + (idle if moment in _BEFORE_GRADIENTS else 0.0))
    return round(reserved - needed)


_BEFORE_GRADIENTS = (0, 1)
"""Moments of _peaks at which a step of one micro-batch has no gradients yet: the loss, and the last layers."""


def _with_overhead(
    terms: dict[Term, float],
    layout: Layout | None,
    accelerator: Accelerator,
    constants: Constants,
    *,
    slack: float = 0.0,
) -> PeakMemory:
    """Return terms with what the allocator adds, `slack` per byte of them or as usual; with a layout also what its
    process takes outside of it."""
    tensors = sum(size for term, size in terms.items() if term != "overhead")
    beyond = 0.0 if accelerator.is_host else tensors * ((slack or constants.memory.allocator) - 1)
    if layout is not None:
        beyond += overhead_bytes(layout, accelerator, constants)
    return _memory({**terms, "overhead": terms.get("overhead", 0.0) + beyond})


def _memory(terms: dict[Term, float]) -> PeakMemory:
    return PeakMemory(terms={term: round(size) for term, size in terms.items() if round(size)})


@lru_cache(maxsize=1024)
def _fullest(training: Training) -> tuple[Stage, States]:
    """Return the stage that keeps the most states, and them."""
    candidates = (
        (stage, states_of(training, stage))
        for stage in telling_stages(training.model, training.layout, training.num_micro_batches)
    )
    return max(candidates, key=lambda each: each[1].weights + each[1].gradients + each[1].optimizer)


def least_update_bytes(training: Training, accelerator: Accelerator, constants: Constants) -> int:
    """Return bytes that update_memory never gets below: states of the fullest stage alone, as they are in the
    optimizer's step. It takes a part of the time."""
    _, held = _fullest(training)
    terms: dict[Term, float] = {
        "weights": held.weights,
        "gradients": held.gradients,
        "optimizer": held.optimizer,
    }
    return _with_overhead(terms, training.layout, accelerator, constants).total


def resident_memory(training: Training, accelerator: Accelerator, constants: Constants) -> PeakMemory:
    """Return what a trainer leaves on the device while another phase runs, after its offload between phases.

    Gradients stay only where they are buffers that were made once, and leave together with the weights.
    """
    _, held = _fullest(training)
    keeps = _has_gradient_buffers(training) and not training.offload.params_between_phases
    gradients = between_steps(training, held, constants) if accelerator.is_host else held.gradients
    leaves = training.offload.optimizer_between_phases
    terms: dict[Term, float] = {
        "weights": 0.0 if training.offload.params_between_phases else held.weights,
        "gradients": gradients if keeps else 0.0,
        "optimizer": 0.0 if leaves else held.optimizer,
    }
    if accelerator.is_host:
        terms["overhead"] = host_libraries(training, constants)
    return _with_overhead(terms, training.layout, accelerator, constants)


_FP32 = 4.0
"""Bytes per token and vocabulary entry of log-probabilities, which wait for the backward pass, and of the logits that
they were made of where somebody still names these."""


def graph_memory(training: Training, accelerator: Accelerator, constants: Constants) -> PeakMemory:
    """Return what a trainer holds of a device between the forward and the backward pass of a micro-batch, while another
    model scores: states, checkpoints of layers or all that they keep, and of whole logits what their gradients are made
    from."""
    stage, held = _fullest(training)
    logits = 0.0
    if stage.has_head and training.head != "chunked" and training.objective != "scalar":
        each = 2 * _FP32 if training.keeps_logits else _FP32
        logits = training.tokens * training.model.vocab / training.layout.tensor * each
    terms: dict[Term, float] = {
        "weights": held.weights,
        "gradients": held.gradients if _keeps_gradients(training) else 0.0,
        "optimizer": held.optimizer,
        "activations": activations_of(training, stage, constants, width=compute_bytes(training)).stored,
        "logits": logits,
    }
    return _with_overhead(terms, training.layout, accelerator, constants, slack=_slack(training, constants))


def process_memory(training: Training, accelerator: Accelerator, constants: Constants) -> PeakMemory:
    """Return what a process takes beside a pass that it makes before anything is trained. Its weights count with the
    pass."""
    return _with_overhead({}, training.layout, accelerator, constants)


def frozen_memory(frozen: FrozenModel, accelerator: Accelerator, constants: Constants) -> PeakMemory:
    """Return what a model that only scores keeps on the device while others run; on devices of its own with what its
    process takes."""
    terms: dict[Term, float] = {}
    if not frozen.is_offloaded:
        terms["weights"] = max(frozen_bytes(frozen.model, frozen.layout, frozen.weight_bytes))
    return _with_overhead(terms, frozen.layout if frozen.pool == frozen.role else None, accelerator, constants)


def scoring_memory(
    model: ModelShape,
    layout: Layout,
    *,
    weight_bytes: float,
    element_bytes: float,
    tokens: int,
    has_head: bool,
    head: Head,
    head_chunk: int = 0,
    logit_bytes: float = 0.0,
    accelerator: Accelerator,
    constants: Constants,
) -> PeakMemory:
    """Return the peak of a pass without gradients (log-probabilities, reference, reward, values) over `tokens` tokens
    of one rank: weights with what is gathered, the widest moment of a layer, log-probabilities of all tokens.
    `element_bytes`, of what is computed with, count on a host; devices score in two bytes.

    What the process takes outside of the allocator is in resident_memory and frozen_memory, once per process.
    """
    peaks: list[dict[Term, float]] = []
    width = element_bytes if accelerator.is_host else 2.0
    for stage, held in zip(telling_stages(model, layout), frozen_bytes(model, layout, weight_bytes), strict=True):
        gathered = 0.0
        if layout.shards == 3:
            units = [layer_share(layer, layout).total for layer, _ in stage.layers]
            ends = (stage.has_embedding + (stage.has_head and not model.is_tied)) * model.embedding / layout.tensor
            gathered = width * (2 * max(units, default=0.0) + ends)
            if accelerator.is_host:
                gathered = scored_weights(stage, model, layout, width, constants)
        logits = 0.0
        if stage.has_head and has_head:
            logits = scoring_logits(
                model,
                tokens,
                tensor=layout.tensor,
                head=head,
                head_chunk=head_chunk,
                logit_bytes=logit_bytes,
                constants=constants,
            )
            if accelerator.is_host:
                is_chunked = head == "chunked" and head_chunk
                logits = scored_logits(model.vocab, min(tokens, head_chunk) if is_chunked else tokens, width)
        peaks.append(
            {
                "weights": held + gathered,
                "activations": width * tokens * forward_elements(model, tensor=layout.tensor),
                "logits": logits,
            }
        )
    return _with_overhead(max(peaks, key=lambda peak: sum(peak.values())), None, accelerator, constants)


def generation_memory(
    training: Training, accelerator: Accelerator, constants: Constants, *, rows: int, length: int
) -> PeakMemory:
    """Return the peak while the trainer generates by itself `rows` sequences at once, of up to `length` tokens."""
    stage, held = _fullest(training)
    terms = generation_terms(training, stage, held, rows=rows, length=length)
    if _has_gradient_buffers(training):
        terms["gradients"] = held.gradients
    return _with_overhead(terms, training.layout, accelerator, constants)


def load_memory(training: Training, accelerator: Accelerator, constants: Constants) -> PeakMemory:
    """Return the peak while a model is loaded: its weights, whole where they are not sharded, and one unit on its way;
    DeepSpeed makes its master copy beside them, where they were whole before that, after it has divided them."""
    stage, held = _fullest(training)
    terms: dict[Term, float] = {"weights": held.weights + largest_unit(training, stage)}
    if training.has_master:
        terms["optimizer"] = held.optimizer
    if training.loads_whole:
        undivided = replace(training, layout=replace(training.layout, shards=0))
        whole = states_of(undivided, stage, is_offloaded=False).weights
        terms = max(terms, {"weights": whole}, key=lambda each: sum(each.values()))
    return _with_overhead(terms, training.layout, accelerator, constants)


def sync_memory(
    training: Training, accelerator: Accelerator, constants: Constants, *, bucket_bytes: int = 0
) -> PeakMemory:
    """Return the trainer's side of a weight sync: its weights, back on the device, and one buffer of whole tensors:
    `bucket_bytes`, or the largest unit where it sends layer by layer. FSDP gathers whole tensors in the type that it
    keeps, and casts them after that; the state dict of its first version, while it is sent, is a second copy of the
    shards (PyTorch, distributed/fsdp/_state_dict_utils.py: chunks are cloned)."""
    stage, held = _fullest(training)
    resident = resident_memory(training, accelerator, constants)
    sent = float(bucket_bytes) or largest_unit(training, stage)
    if training.family == "fsdp" and training.method == "full":
        sent = max(sent, largest_matrix(training, stage) * training.weight_bytes)
        if not training.is_sharded_by_tensor:
            sent += held.weights
    terms: dict[Term, float] = {
        "weights": held.weights + sent,
        "gradients": float(resident.terms.get("gradients", 0)),
        "optimizer": float(resident.terms.get("optimizer", 0)),
    }
    return _with_overhead(terms, training.layout, accelerator, constants)


def checkpoint_memory(training: Training, accelerator: Accelerator, constants: Constants) -> PeakMemory:
    """Return the trainer's memory while it writes a checkpoint: its states, and where weights are sharded one unit that
    is gathered for the export."""
    stage, held = _fullest(training)
    gathered = largest_unit(training, stage) if training.layout.shards == 3 else 0.0
    terms: dict[Term, float] = {
        "weights": held.weights + gathered,
        "gradients": held.gradients if _has_gradient_buffers(training) else 0.0,
        "optimizer": held.optimizer,
    }
    return _with_overhead(terms, training.layout, accelerator, constants)
