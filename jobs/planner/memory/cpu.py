"""Training on the host's own CPU with DeepSpeed, as the built-in trainer does where there is no GPU: bytes of a
process above what it held before its model.

There is no context, no caching allocator and no NCCL: freed memory is gone, and a buffer takes what of it was touched.
So the moments of a step are told apart more finely than on a device. What is there at each is read in DeepSpeed 0.19
(runtime/zero/stage_1_and_2.py, stage3.py, bf16_optimizer.py), torch.optim.AdamW (one tensor at a time on CPU)
and the trainer's loss (jobs/engine/losses.py):

    loss      states; gradients summed so far; activations; logits, their fp32 quotient by the temperature, and for the
              entropy another quotient, its softmax and their product
    backward  activations of all layers, and a layer's gradients
    reduced   all gradients, no activations: in stage 0 with a flat copy for the all-reduce; in 1 and 2 in the bucket,
              this rank's part flattened to be sent, and again as what is kept; in 3 in the bucket, which stays from the
              first step on
    step      this rank's gradients, flat, in fp32; AdamW's root of the second moment and its quotient
"""

from collections.abc import Iterator

from jobs.catalog.accelerator import Accelerator
from jobs.planner.constant import Constants
from jobs.planner.job import Fleet, Layout, Training
from jobs.planner.memory.activations import activations_of
from jobs.planner.memory.precision import compute_bytes
from jobs.planner.memory.stages import Stage, stage_share, vocabulary_share
from jobs.planner.memory.states import States, states_of
from jobs.planner.result import Term
from jobs.planner.shapes.model_shape import ModelShape

_FP32 = 4.0
_BANDWIDTH, _FLOPS, _LINK = 1.5e10, 5e10, 1e9  # of a core or two; nobody plans the time of a run on CPU


def host_cpu(memory_bytes: int) -> Accelerator:
    """Return the CPU of a machine with so much memory, as far as memory is planned; its speed is a guess."""
    return Accelerator(
        id="cpu",
        label="CPU",
        vendor="host",
        names=("CPU",),
        memory_bytes=memory_bytes,
        usable_bytes=memory_bytes,
        bandwidth=_BANDWIDTH,
        peak={"bf16": _FLOPS, "fp16": _FLOPS},
        best={},
        link="ethernet",
        link_bandwidth=_LINK,
        domain=1,
        pcie_bandwidth=_BANDWIDTH,
        watts=0.0,
        attention=("flash2",),
        has_peer_to_peer=False,
        evidence=("framework",),
        source="the machine itself; rates are assumed",
    )


def host_fleet(num_ranks: int, memory_bytes: int) -> Fleet:
    """Return a machine on whose CPU so many ranks run."""
    return Fleet(accelerator=host_cpu(memory_bytes), num_devices=num_ranks, devices_per_node=num_ranks)


def host_overhead(constants: Constants) -> int:
    """Return what a process grows by beside the model: libraries that are loaded when they are first needed, and stacks
    of threads."""
    return round(constants.memory.host_growth_bytes)


def host_libraries(training: Training, constants: Constants) -> float:
    """Return what a process that trains grows by besides: it stays while the process does something else."""
    half = constants.memory.host_half_bytes if compute_bytes(training) < _FP32 else 0.0
    packed = constants.memory.host_packed_bytes if training.method == "qlora" else 0.0
    return constants.memory.host_training_bytes + half + packed


def host_peaks(training: Training, stage: Stage, constants: Constants) -> Iterator[dict[Term, float]]:
    """Yield the moments of a step by term."""
    width, held = compute_bytes(training), states_of(training, stage)
    whole = held.trained.total * width
    own = held.trained.sharded(training.layout) * width if training.layout.shards else whole
    activations = activations_of(training, stage, constants, width=width)
    gathered = 0.0
    if training.layout.shards == 3:
        gathered = min(constants.memory.deepspeed_live_elements * width, whole)
    bucket = _bucket(training, held, constants)
    gradients = between_steps(training, held, constants)
    if training.layout.shards < 3 and training.num_micro_batches > 1:
        gradients = held.gradients  # sums of earlier micro-batches
    libraries = host_libraries(training, constants)
    states: dict[Term, float] = {
        "weights": held.weights + gathered,
        "optimizer": held.optimizer,
        "overhead": libraries,
    }
    logits = _logits_bytes(training, width) if stage.has_head and training.objective != "scalar" else 0.0
    yield {**states, "gradients": gradients, "activations": activations.stored, "logits": logits}
    yield {**states, "gradients": gradients, "activations": activations.stored + activations.working}
    reduced = {0: 2 * whole, 1: whole + bucket + 2 * own, 2: gradients + bucket + 2 * own, 3: gradients}[
        training.layout.shards
    ]
    yield {**states, "gradients": reduced}
    in_step, temporary = _step(training, stage, held, width)
    yield {
        "weights": held.weights,
        "overhead": libraries,
        "gradients": in_step + (bucket if training.layout.shards == 3 else 0.0),
        "optimizer": held.optimizer + temporary,
    }


def _bucket(training: Training, held: States, constants: Constants) -> float:
    """Return what is touched of the bucket in which gradients are reduced."""
    width = compute_bytes(training)
    return min(training.bucket_bytes or constants.memory.deepspeed_bucket_elements * width, held.trained.total * width)


def between_steps(training: Training, held: States, constants: Constants) -> float:
    """Return bytes of gradients that stay from one step to the next: what ZeRO-3 made once; the others drop them."""
    return held.gradients + _bucket(training, held, constants) if training.layout.shards == 3 else 0.0


def _step(training: Training, stage: Stage, held: States, width: float) -> tuple[float, float]:
    """Return gradients in the optimizer's step, and what AdamW takes for a while.

    Two temporaries of one tensor: with ZeRO all of a rank's parameters are one, without it the largest is an end of
    the model.
    """
    elements = held.trained.sharded(training.layout) if training.layout.shards else held.trained.total
    cast = elements * _FP32 if training.has_master and width < _FP32 else 0.0
    if training.layout.shards == 0:
        largest = max(vocabulary_share(stage, training.model, training.layout, has_vocabulary=True))
        return elements * width + cast, 2 * largest * _FP32
    weights = elements * width if training.layout.shards == 3 else 0.0
    updating, flattening = weights + elements * _FP32, 2 * elements * width + cast
    temporary = 2 * elements * _FP32
    return (updating, temporary) if updating + temporary >= flattening else (flattening, 0.0)


def _logits_bytes(training: Training, width: float) -> float:
    """Return bytes of logits and of what loss and entropy take of them in fp32, of tokens that are taken at once."""
    is_chunked = training.head == "chunked" and training.head_chunk
    tokens = min(training.tokens, training.head_chunk) if is_chunked else training.tokens
    return tokens * training.model.vocab * (width + 4 * _FP32)


def scored_weights(stage: Stage, model: ModelShape, layout: Layout, width: float, constants: Constants) -> float:
    """Return bytes of weights that ZeRO-3 lets live whole in a pass without gradients, beside the shards."""
    return min(constants.memory.deepspeed_live_elements, stage_share(stage, model, layout).total) * width


def scored_logits(vocab: int, tokens: int, width: float) -> float:
    """Return bytes of log-probabilities and entropies without gradients: logits, their fp32 copy if they are not, what
    they are below their sum, and its exponentials."""
    return tokens * vocab * (width + 2 * _FP32 + (_FP32 if width < _FP32 else 0.0))
