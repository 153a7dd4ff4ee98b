"""Memory of training and of sampling with a diffusion transformer, phase by phase, on one device.

States, gathered weights and gradients are those of jobs.planner.memory.states; activations are counted here, per token
of each stream, from what autograd saves of diffusers' modules (jobs.planner.shapes.diffusion). A block that is
checkpointed keeps its inputs; the one at work keeps everything, and beside it the gradients of the widest moment of its
MLP.
"""

from collections.abc import Iterator

from jobs.planner.constant import Constants
from jobs.planner.diffusion.job import DiffusionJob, stream_tokens
from jobs.planner.memory.phases import checkpoint_memory, load_memory, overhead_bytes, resident_memory
from jobs.planner.memory.precision import compute_bytes
from jobs.planner.memory.stages import Stage, stages_of
from jobs.planner.memory.states import States, states_of, transients_of
from jobs.planner.result import PeakMemory, PhaseMemory, PoolEstimate, Term
from jobs.planner.shapes.diffusion import Block

_ENDS = {"joint": 3.5, "dual": 3.5, "cross": 6.0}
"""Hidden states per latent token that stay beside the blocks when a pass is done: embedded, modulated, projected; in
fp32 where the norms are. Counted with torch's MemTracker on diffusers' models of a few blocks."""


def sample_tokens(job: DiffusionJob) -> tuple[float, float]:
    """Return latent and text tokens of one micro-batch."""
    latent, text = stream_tokens(job.shape, job.picture)
    return float(job.policy.micro_batch * latent), float(job.policy.micro_batch * text)


def activation_bytes(job: DiffusionJob) -> tuple[float, float]:
    """Return bytes that are kept when a forward pass is done, and that come to them while a block is differentiated."""
    latent, text = sample_tokens(job)
    width = compute_bytes(job.policy)
    recomputes = job.policy.checkpointing == "full"
    stored = working = 0.0
    for block in job.shape.blocks:
        whole = latent * block.kept_latent + text * block.kept_text
        inputs = job.shape.hidden * (latent + text * block.carries_text)
        stored += block.count * (inputs if recomputes else whole)
        widest = _gradients(block, job.shape.hidden, latent, text)
        working = max(working, widest + (whole - inputs if recomputes else 0.0))
    ends = _ENDS[job.shape.blocks[0].attention] * job.shape.hidden * latent
    return width * (stored + ends), width * working


def _gradients(block: Block, hidden: int, latent: float, text: float) -> float:
    """Return elements of the gradients at the widest moment of a block's backward pass: both sides of the MLP's
    activation, and of the hidden state of both streams."""
    return 2.0 * block.width * latent + 2.0 * hidden * (latent + text * block.carries_text)


def forward_bytes(job: DiffusionJob, *, passes: int) -> float:
    """Return bytes of the widest moment of a forward pass alone, `passes` of them side by side: queries, keys, values
    and the hidden state twice, or the MLP's two."""
    latent, text = sample_tokens(job)
    hidden = job.shape.hidden
    widest = max(max(6.0 * hidden, 2.0 * hidden + 2.0 * block.width) for block in job.shape.blocks)
    return compute_bytes(job.policy) * passes * widest * (latent + text)


def pool_of(job: DiffusionJob, constants: Constants) -> PoolEstimate:
    """Return what a device holds in every phase."""
    accelerator = job.fleet.accelerator
    training = job.policy
    stage = stages_of(training.model, training.layout)[0]
    held = states_of(training, stage)
    encoders = 2.0 * job.picture.encoders
    reference = 0.0
    if job.has_reference and training.method == "full":
        reference = 2.0 * job.shape.parameters / training.layout.shard_ranks
    resident = dict(resident_memory(training, accelerator, constants).terms)
    gathered = transients_of(training, stage, held, constants).gathered
    by_phase: dict[str, dict[str, dict[Term, float]]] = {
        "load": {"policy": dict(load_memory(training, accelerator, constants).terms)}
    }
    scoring: dict[Term, float] = {term: float(size) for term, size in resident.items()}
    scoring["weights"] = scoring.get("weights", 0.0) + gathered
    if job.has_rollout:
        sampling = dict(scoring)
        sampling["activations"] = forward_bytes(job, passes=job.shape.passes)
        by_phase["rollout"] = {"policy": sampling}
        if reference:
            passing = dict(scoring)
            passing["activations"] = forward_bytes(job, passes=1)
            by_phase["reference"] = {"policy": passing}
    peaks = _peaks(job, stage, held, constants)
    by_phase["update"] = {"policy": max(peaks, key=lambda peak: sum(peak.values()))}
    by_phase["checkpoint"] = {"policy": dict(checkpoint_memory(training, accelerator, constants).terms)}
    phases = []
    for name, roles in by_phase.items():
        own = roles["policy"]
        if name not in ("load", "checkpoint"):
            beyond = sum(size for term, size in own.items() if term != "overhead")
            own["overhead"] = beyond * (constants.memory.allocator - 1) + overhead_bytes(
                training.layout, accelerator, constants
            )
        by_role = {"policy": _memory(own)}
        if reference and name != "load":
            by_role["reference"] = _memory({"weights": reference})
        if encoders:
            by_role["encoders"] = _memory({"weights": encoders})
        total: dict[Term, float] = {}
        for held_by in by_role.values():
            for term, size in held_by.terms.items():
                total[term] = total.get(term, 0.0) + size
        phases.append(PhaseMemory(phase=name, role="policy", memory=_memory(total), by_role=by_role))
    return PoolEstimate(
        name="policy", num_devices=training.layout.num_devices, limit=accelerator.usable_bytes, phases=tuple(phases)
    )


def _peaks(job: DiffusionJob, stage: Stage, held: States, constants: Constants) -> Iterator[dict[Term, float]]:
    """Yield the moments of a step at which a device may be fullest: the loss, the backward pass, the optimizer."""
    training = job.policy
    passing = transients_of(training, stage, held, constants)
    stored, working = activation_bytes(job)
    gradients = held.gradients if training.family == "deepspeed" or training.num_micro_batches > 1 else 0.0
    for gathered, active, more in (
        (passing.gathered_at_loss, stored, passing.at_loss),
        (passing.gathered, stored + working, passing.in_backward),
    ):
        yield {
            "weights": held.weights + gathered,
            "gradients": gradients + more + passing.buffers,
            "optimizer": held.optimizer,
            "activations": active,
        }
    yield {
        "weights": held.weights,
        "gradients": held.gradients + passing.buffers,
        "optimizer": held.optimizer + passing.in_step,
    }


def _memory(terms: dict[Term, float]) -> PeakMemory:
    return PeakMemory(terms={term: round(size) for term, size in terms.items() if round(size)})
