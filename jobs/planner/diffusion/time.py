"""Floating-point operations and seconds of a diffusion transformer: training steps, and denoising as the rollout.

A sample of L latent and T text tokens takes 2 * (L * latent + T * text + sample) per block and pass, of the elements of
its matrices, and 4 * hidden * (L + T)^2 of joint attention, which is not causal; cross attention takes 4 * hidden * L *
(L + T). Efficiencies are those of language models of equal sizes (jobs.planner.time.training): none was measured on
these, so that an interval is as wide as it gets.
"""

from jobs.planner.constant import Constants
from jobs.planner.diffusion.job import DiffusionJob, stream_tokens
from jobs.planner.result import Interval, StepTime, around
from jobs.planner.shapes.diffusion import Block, DiffusionShape
from jobs.planner.time.flops import RECOMPUTED
from jobs.planner.time.layers import peak_rate, rates_of
from jobs.planner.time.network import exchange_of, exposed
from jobs.planner.time.training import WIDEST, optimizer_seconds

_HALF = 2
_ATTENTION_BACKWARD = 2.5  # of its forward pass: flash attention computes its scores again


def block_flops(block: Block, hidden: int, latent: float, text: float) -> tuple[float, float]:
    """Return FLOPs of one pass of a sample through a block: of matrix products, and of attention."""
    products = 2.0 * (latent * block.latent + text * block.text + block.sample)
    seen = latent + text
    if block.attention == "cross":
        return products, 4.0 * hidden * latent * seen
    own = latent * latent if block.attention == "dual" else 0.0
    return products, 4.0 * hidden * (seen * seen + own)


def forward_flops(shape: DiffusionShape, latent: float, text: float) -> float:
    """Return FLOPs of one forward pass of a sample of so many tokens of each stream."""
    total = 2.0 * (latent * shape.outside_latent + text * shape.outside_text)
    return total + sum(block.count * sum(block_flops(block, shape.hidden, latent, text)) for block in shape.blocks)


def _pass_seconds(job: DiffusionJob, constants: Constants, *, samples: float, passes: float, trains: bool) -> float:
    """Return seconds of a rank's computing for `samples` samples at once: forward `passes` times, and where it `trains`
    also backward, with what is computed again."""
    training, shape = job.policy, job.shape
    rates = rates_of(training, job.fleet.accelerator, constants)
    latent, text = stream_tokens(shape, job.picture)
    again = RECOMPUTED[training.checkpointing]
    total = 0.0
    for block in shape.blocks:
        products, attention = block_flops(block, shape.hidden, latent, text)
        moved = (latent + text) * (8.0 * shape.hidden + 3.0 * block.width) * constants.speed.moved_eager
        streams = (samples * _HALF * moved + _HALF * block.parameters) / rates.memory
        forward = samples * (products / rates.products + attention / rates.attention) + streams
        forward = max(forward, constants.speed.layer_seconds)
        seconds = passes * forward
        if trains:
            matrices = 2.0 if training.method == "full" else 1.0
            backward = matrices * products / rates.products + _ATTENTION_BACKWARD * attention / rates.attention
            backward = samples * backward + 2 * streams
            seconds = forward * (1 + again) + max(backward, matrices * constants.speed.layer_seconds)
        total += block.count * seconds
    ends = 2.0 * samples * (latent * shape.outside_latent + text * shape.outside_text) / rates.products
    return total + ends * (3.0 if trains else passes)


def _gathering(job: DiffusionJob, constants: Constants, *, trains: bool) -> tuple[float, float]:
    """Return seconds of gathering and scattering weights in a pass, and of summing gradients once a step."""
    training = job.policy
    latent, text = stream_tokens(job.shape, job.picture)
    exchange = exchange_of(
        training,
        job.fleet,
        tokens=training.micro_batch * (latent + text),
        layers=job.shape.num_layers,
        parameters=float(job.shape.parameters),
        experts=0.0,
        constants=constants,
    )
    if trains:
        return exchange.gather + exchange.scatter, exchange.gradients
    return exchange.gather / (2 + (training.checkpointing == "full")), 0.0


def update_seconds(job: DiffusionJob, constants: Constants) -> float:
    """Return seconds of one optimizer step."""
    training = job.policy
    computing = _pass_seconds(job, constants, samples=training.micro_batch, passes=1, trains=True)
    talk, reduced = _gathering(job, constants, trains=True)
    overlap = constants.network.weights_overlap
    each = computing + exposed(talk, computing, overlap)
    # Adapters are counted by the stand-in; all weights belong to one stage.
    optimizer = optimizer_seconds(training, job.fleet, (float(job.shape.parameters), 0.0), constants)
    reduced = exposed(reduced, computing, overlap)
    return training.num_micro_batches * each + reduced + optimizer + constants.speed.step_seconds


def sampling_seconds(job: DiffusionJob, constants: Constants, *, steps: int, passes: int) -> float:
    """Return seconds in which every sample of a step goes forward `steps` times, `passes` side by side for guidance."""
    training, picture = job.policy, job.picture
    samples = max(-(-picture.prompts * picture.samples_per_prompt // training.layout.data), 1)
    computing = _pass_seconds(job, constants, samples=training.micro_batch * passes, passes=1, trains=False)
    talk, _ = _gathering(job, constants, trains=False)
    return (
        -(-samples // training.micro_batch)
        * steps
        * (computing + exposed(talk, computing, constants.network.weights_overlap))
    )


def step_time(job: DiffusionJob, constants: Constants) -> StepTime:
    """Return seconds of a step by phase, latent tokens per second, and MFU of the update."""
    picture, shape = job.picture, job.shape
    phases: dict[str, Interval] = {}
    if job.has_rollout:
        rollout = sampling_seconds(job, constants, steps=picture.denoising_steps, passes=shape.passes)
        phases["rollout"] = _wide(rollout)
        if job.has_reference and job.policy.method == "full":
            phases["reference"] = _wide(sampling_seconds(job, constants, steps=picture.trained_steps, passes=1))
    update = update_seconds(job, constants)
    phases["update"] = _wide(update)
    step = sum(phases.values(), Interval(low=0.0, middle=0.0, high=0.0))
    latent, text = stream_tokens(shape, picture)
    samples = picture.prompts * picture.samples_per_prompt if job.has_rollout else picture.batch_size
    learned = samples * (picture.trained_steps if job.has_rollout else 1)
    factor = 3.0 if job.policy.method == "full" else 2.0
    flops = factor * learned * forward_flops(shape, latent, text)
    peak = peak_rate(job.fleet.accelerator) * job.fleet.num_devices
    return StepTime(
        phases=phases,
        step=step,
        tokens_per_second=step.inverse(float(learned * latent)),
        bottleneck=max(phases, key=lambda phase: phases[phase].middle),
        mfu=flops / (update * peak),
    )


def _wide(seconds: float) -> Interval:
    return around(seconds, WIDEST)
