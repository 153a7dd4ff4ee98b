"""Seconds of one step of a job, phase by phase, and how phases overlap under its schedule.

Synchronous: phases follow one another. One step off: generation runs beside the training on the batch before. Where
engines begin the next batches before a batch has its longest response (`Job.staleness`), they always run full, as fully
asynchronous trainers have it. Colocated engines take turns with the trainer, so that an asynchronous schedule hides
their tail alone.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from jobs.catalog.sentence import Sentence
from jobs.planner.constant import Constants
from jobs.planner.job import Engine, FrozenModel, Job, Layout, Rollouts, Training
from jobs.planner.memo import Memo
from jobs.planner.result import Interval, StepTime, around
from jobs.planner.serving.engine_memory import EngineMemory
from jobs.planner.time.flops import training_flops
from jobs.planner.time.generation import (
    decode_tokens_per_second,
    generation_seconds,
    length_deviation,
    longest_of,
    mean_lengths,
)
from jobs.planner.time.layers import compute_type, peak_rate
from jobs.planner.time.moving import moving_seconds, visiting_seconds
from jobs.planner.time.training import (
    WIDEST,
    MicroBatchWork,
    frozen_seconds,
    scoring_seconds,
    update_time,
    work_of,
)
from jobs.planner.time.weight_sync import sync_seconds

NOTHING = Interval(low=0.0, middle=0.0, high=0.0)
SCORING = "speed.scoring_pace"
PACES: Mapping[str, str] = {
    "rollout": "decode.pace",
    "old_logprobs": SCORING,
    "reference": SCORING,
    "update": "speed.update_pace",
    "weight_sync": "network.sync_pace",
}
"""Phase -> the constant that its seconds are multiplied by; 1 until somebody measures it (jobs.planner.calibration)."""
EXPERIENCE = "experience"
TOGETHER: Mapping[str, tuple[str, ...]] = {EXPERIENCE: ("reward", "old_logprobs", "reference")}
"""Phases whose seconds some trainers tell as one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingBatch:
    """What one step trains on: `samples` of `length` tokens each in the mean, of which `prompt` are given, and how far
    lengths lie from it. `slots`: tokens of all samples where each is padded to the longest allowed, as the process that
    leads the run keeps them."""

    samples: int
    prompt: float
    length: float
    slots: int = 0
    deviation: float = 0.0

    @property
    def tokens(self) -> float:
        """Tokens of all samples."""
        return self.samples * self.length


def batch_of(rollouts: Rollouts, constants: Constants) -> TrainingBatch:
    """Return what a step of reinforcement learning generates."""
    prompt, response = mean_lengths(rollouts.lengths, constants)
    samples = rollouts.prompts * rollouts.samples_per_prompt
    longest = rollouts.lengths.max_prompt + rollouts.lengths.max_response
    deviation = length_deviation(
        response, rollouts.lengths.max_response, rollouts.lengths.spread or constants.decode.spread
    )
    return TrainingBatch(
        samples=samples, prompt=prompt, length=prompt + response, slots=samples * longest, deviation=deviation
    )


def step_time(job: Job, engine: EngineMemory | None, constants: Constants, memo: Memo) -> StepTime:
    """Return seconds by phase and of the whole step; `engine` is what the job's engine holds, None without one."""
    if job.rollouts is None or job.engine is None or engine is None:
        return _supervised(job, constants, memo)
    batch = batch_of(job.rollouts, constants)
    phases = _rl_phases(job, job.rollouts, job.engine, batch, engine, constants, memo)
    handed = around(batch.slots * constants.speed.slot_seconds, WIDEST)
    phases |= {key: phases[key] + handed for key in _HANDED if key in phases}
    if not job.rollouts.lengths.mean_response:
        phases = {key: seconds.at_least(_unsure(key, constants)) for key, seconds in phases.items()}
    phases = _paced(phases, constants)
    step = _overlapped(job, phases, constants)
    if not constants.get(PACES["update"]).is_changed:
        # Of a whole step more is known than of an update in it, which trainers fill with work that nobody names.
        phases["update"] = phases["update"].at_least(constants.speed.band_update)
    notes = [*_mfu_note(job)]
    if not job.rollouts.lengths.mean_response:
        notes.append(Sentence("The mean response length is not known; a fraction of the limit is assumed."))
    flops = training_flops(job.policy, batch.tokens * job.rollouts.epochs, batch.length)
    return StepTime(
        phases=phases,
        step=step,
        tokens_per_second=step.inverse(batch.tokens),
        bottleneck=_bottleneck(phases),
        mfu=_mfu(job, flops, phases["update"].middle),
        notes=tuple(notes),
    )


def _supervised(job: Job, constants: Constants, memo: Memo) -> StepTime:
    training = job.policy
    update = memo.of(
        "update",
        (training, job.fleet.accelerator),
        lambda: update_time(training, job.fleet, constants, tokens=job.batch_tokens),
        _key(job),
    )
    work = work_of(training, tokens=job.batch_tokens)
    ranks = training.layout.num_devices / (training.layout.tensor * training.layout.pipeline)
    tokens = work.tokens * work.count * ranks
    phases = {"reference": NOTHING, "update": update.seconds}
    for frozen in job.frozen:
        phases["reference"] += _frozen(job, frozen, tokens, work.document, constants, memo)
    if job.scores_mismatches:
        phases = _with_mismatches(job, phases, work, tokens, constants, memo)
    if not job.frozen:
        del phases["reference"]
    phases = _paced(phases, constants)
    step = sum(phases.values(), start=NOTHING)
    flops = training_flops(training, tokens, work.document)
    mfu = _mfu(job, flops, update.seconds.middle)
    return StepTime(
        phases=phases,
        step=step,
        tokens_per_second=step.inverse(tokens),
        bottleneck=_bottleneck(phases),
        mfu=mfu,
        notes=(*_mfu_note(job), *_document_note(training)),
    )


def _with_mismatches(
    job: Job, phases: dict[str, Interval], work: MicroBatchWork, tokens: float, constants: Constants, memo: Memo
) -> dict[str, Interval]:
    """Return the phases with a second pass of frozen models and one of the policy, over as many tokens again."""
    training = job.policy
    scored = memo.of(
        "mismatched",
        (training, job.fleet.accelerator),
        lambda: scoring_seconds(
            training.model,
            training.layout,
            training,
            job.fleet,
            constants,
            tokens=tokens,
            document=work.document,
            row=work.tokens,
            has_head=True,
        ),
        tokens,
        _key(job),
    )
    again = phases["reference"]
    return {"old_logprobs": scored, "reference": again + again, "update": phases["update"]}


def _rl_phases(
    job: Job,
    rollouts: Rollouts,
    engine: Engine,
    batch: TrainingBatch,
    memory: EngineMemory,
    constants: Constants,
    memo: Memo,
) -> dict[str, Interval]:
    training = job.policy
    rollout = memo.of(
        "rollout",
        (engine, job.fleet.accelerator, memory),
        lambda: _rollout(job, rollouts, engine, batch, memory, constants),
        rollouts,
        job.schedule,
        job.staleness,
        _key(job),
    )
    phases = {"rollout": rollout}
    rewards = [_judged(job, each, batch, constants, memo) for each in job.frozen if each.role == "reward"]
    judged = sum(rewards, start=NOTHING)
    if rollouts.reward_seconds or rewards:
        seconds = rollouts.reward_seconds
        phases["reward"] = judged + Interval(low=seconds, middle=seconds, high=seconds)
    if rollouts.has_old_logprobs:
        phases["old_logprobs"] = _scored(job, training, rollouts, batch, constants, memo)
    if job.critic is not None:
        values = _scored(job, job.critic, rollouts, batch, constants, memo)
        before = phases.get("old_logprobs", NOTHING)
        phases["old_logprobs"] = _both(before, values, beside=job.critic_pool != "policy")
    scored = [(each, _judged(job, each, batch, constants, memo)) for each in job.frozen]
    others = [seconds for each, seconds in scored if each.role != "reward"]
    if others:
        phases["reference"] = sum(others, start=NOTHING)
    phases["update"] = _updates(job, training, rollouts, batch, constants, memo)
    if job.critic is not None:
        critic = _updates(job, job.critic, rollouts, batch, constants, memo)
        phases["update"] = _both(phases["update"], critic, beside=job.critic_pool != "policy")
    if engine.shares_weights:
        return phases
    sync = memo.of(
        "sync",
        (training, job.fleet.accelerator),
        lambda: sync_seconds(job, constants),
        job.placement,
        job.engine_devices,
        job.sync_bucket_bytes,
        job.sync_transport,
        engine.weight_bytes,
        _key(job),
    )
    phases["weight_sync"] = sync + around(moving_seconds(job, constants), WIDEST)
    return phases


def _rollout(
    job: Job, rollouts: Rollouts, engine: Engine, batch: TrainingBatch, memory: EngineMemory, constants: Constants
) -> Interval:
    """Return seconds of generation. Where the cache holds no whole sequence, as if it held one."""
    longest = rollouts.lengths.max_prompt + rollouts.lengths.max_response
    accelerator = job.fleet.accelerator
    able = engine
    if memory.shortage is not None or memory.cache.longest_sequence() < longest:
        room = 2 * max(memory.cache.sequence_bytes(longest), 2**30)
        able = replace(engine, kv_cache_bytes=room, max_model_len=longest)
    held = memory if able is engine else None
    share = constants.decode.rollout_share
    synchronous = generation_seconds(
        able, accelerator, rollouts, engine.num_engines, constants, share=share, memory=held
    )
    synchronous += _drawn_again(able, job, rollouts, constants)
    if job.schedule == "sync" or not job.staleness:
        return synchronous
    # No batch waits for its longest response: engines run as full as cache and queue allow.
    resident = memory.kv_tokens / max(batch.length, 1.0) if memory.kv_tokens else 1.0
    queued = batch.samples / engine.num_engines * (1 + job.staleness)
    at_once = max(int(min(resident, queued, memory.max_num_seqs)), 1)
    output = batch.length - batch.prompt
    rate = decode_tokens_per_second(engine, accelerator, at_once, batch.prompt, output, constants)
    bulk = rate.inverse(batch.samples * output / engine.num_engines)
    return bulk if bulk.middle < synchronous.middle else synchronous


def _drawn_again(engine: Engine, job: Job, rollouts: Rollouts, constants: Constants) -> Interval:
    """Return seconds of the generations after the first, each for the groups of the one before that had no variance."""
    constant, speed = constants.get("decode.drawn_again"), constants.decode.rollout_share

    def seconds(share: float) -> Interval:
        total, prompts = NOTHING, float(rollouts.prompts)
        for _ in range(rollouts.generations - 1):
            prompts *= share
            if prompts < 1:
                break
            fewer = replace(rollouts, prompts=math.ceil(prompts))
            total += generation_seconds(
                engine, job.fleet.accelerator, fewer, engine.num_engines, constants, share=speed
            )
        return total

    return Interval(
        low=seconds(constant.low).low, middle=seconds(constant.value).middle, high=seconds(constant.high).high
    )


def _scored(
    job: Job, training: Training, rollouts: Rollouts, batch: TrainingBatch, constants: Constants, memo: Memo
) -> Interval:
    """Return seconds in which a trained model gives log-probabilities or values of the batch."""
    size = rollouts.score_micro_batch or training.micro_batch
    row = rollouts.score_sequence or training.sequence
    is_packed = bool(training.document) or _holds_more(row, job)
    padding = training.sequence / batch.length if training.is_padded else 1.0
    held = size * (row if is_packed or training.is_padded else min(row, batch.length))
    document = training.sequence if training.is_padded else batch.length
    scored = memo.of(
        "scored",
        (training, job.fleet.accelerator),
        lambda: scoring_seconds(
            training.model,
            training.layout,
            training,
            job.fleet,
            constants,
            tokens=batch.tokens * max(padding, 1.0),
            document=document,
            row=held,
            has_head=training.objective != "scalar",
            share=constants.speed.scoring_share,
            longest=_longest(training, training.layout, batch, 0 if is_packed else size, batch.samples),
            beside=_beside(training, constants),
            host_bytes=training.weight_bytes if training.offload.params else 0.0,
        ),
        batch,
        size,
        row,
        _key(job),
    )
    return scored + visiting_seconds(job, training, constants, is_trained=False)


def _is_megatron(training: Training) -> bool:
    return training.family == "megatron"


def _beside(training: Training, constants: Constants) -> float:
    """Return seconds of a micro-batch beside its layers and its head. Megatron's are handed over as they are packed."""
    return 0.0 if _is_megatron(training) else constants.speed.pass_seconds


def _judged(job: Job, frozen: FrozenModel, batch: TrainingBatch, constants: Constants, memo: Memo) -> Interval:
    """Return seconds in which a frozen model scores the batch of a step."""
    joined = bool(job.policy.document) or _holds_more(frozen.sequence, job)
    longest = _longest(job.policy, frozen.layout, batch, 0 if joined else frozen.micro_batch, batch.samples)
    return _frozen(job, frozen, batch.tokens, batch.length, constants, memo, longest)


def _holds_more(row: int, job: Job) -> bool:
    """Return True if a row holds more than the longest sample, so that samples are joined to it."""
    assert job.rollouts is not None
    return row > job.rollouts.lengths.max_prompt + job.rollouts.lengths.max_response


def _longest(training: Training, layout: Layout, batch: TrainingBatch, each: int, samples: float) -> float:
    """Return tokens of the rank that others wait for over the mean of all, where each rank has so many of `samples`:
    `each` a micro-batch, 0 where so many tokens are joined. Ranks that hold shards of weights, or experts, for each
    other meet in every micro-batch, all meet at the end."""
    if not each or training.is_padded:
        return 1.0
    meeting = layout.data if layout.shards >= 3 else layout.expert * layout.expert_tensor // _inner(layout)
    if meeting <= 1:
        meeting, each = layout.data, max(round(samples / layout.data), each)
    ranks = min(meeting, layout.data)
    return longest_of(batch.length, batch.deviation / math.sqrt(each), ranks) / batch.length


def _inner(layout: Layout) -> int:
    """Return ranks that see the same samples and stand next to one another."""
    return layout.tensor * layout.context * layout.ulysses


def _frozen(
    job: Job,
    frozen: FrozenModel,
    tokens: float,
    document: float,
    constants: Constants,
    memo: Memo,
    longest: float = 1.0,
) -> Interval:
    share = 1.0 if job.rollouts is None else constants.speed.scoring_share
    return memo.of(
        "frozen",
        (frozen, job.policy, job.fleet.accelerator),
        lambda: frozen_seconds(
            frozen,
            job.policy,
            job.fleet,
            constants,
            tokens=tokens,
            document=document,
            share=share,
            longest=longest,
            beside=0.0 if job.rollouts is None else _beside(job.policy, constants),
        ),
        tokens,
        document,
        share,
        longest,
        _key(job),
    )


def _updates(
    job: Job, training: Training, rollouts: Rollouts, batch: TrainingBatch, constants: Constants, memo: Memo
) -> Interval:
    """Return seconds of all optimizer steps on one batch. Beside an engine on the same devices they are slower."""
    steps = rollouts.updates
    beside_engine = constants.speed.update_share_megatron if _is_megatron(training) else constants.speed.update_share
    share = 1.0 if job.placement == "split" else beside_engine
    joined = bool(training.document) or _holds_more(training.sequence, job)
    longest = _longest(training, training.layout, batch, 0 if joined else training.micro_batch, batch.samples / steps)
    one = memo.of(
        "update",
        (training, job.fleet.accelerator),
        lambda: update_time(
            training,
            job.fleet,
            constants,
            tokens=batch.tokens / steps,
            document=batch.length,
            longest=longest,
            beside=_beside(training, constants),
        ),
        batch,
        steps,
        _key(job),
    )
    return one.seconds.scaled(steps * rollouts.epochs / share) + visiting_seconds(
        job, training, constants, is_trained=True
    )


def _paced(phases: dict[str, Interval], constants: Constants) -> dict[str, Interval]:
    """Return the phases at the pace of the project's own runs. A pace that nobody set is 1, and no answer rests on
    it. Where few runs tell it, the seconds reach as far as its spread."""
    set_ = {phase: name for phase, name in PACES.items() if phase in phases and constants.get(name).is_changed}
    return {
        phase: seconds.scaled(constants.value(set_[phase])).at_least(constants.get(set_[phase]).spread)
        if phase in set_
        else seconds
        for phase, seconds in phases.items()
    }


def _overlapped(job: Job, phases: dict[str, Interval], constants: Constants) -> Interval:
    """Return seconds of the whole step, whose phases err each in its own way: it is surer than the least sure of them,
    and never surer than `speed.band_step`."""
    generated = phases["rollout"].beside(phases.get("reward", NOTHING))
    sync = phases.get("weight_sync", NOTHING)
    trained = NOTHING
    for key, seconds in phases.items():
        trained = trained if key in _GENERATING else trained.beside(seconds)
    if job.schedule == "sync" or job.placement != "split":
        step = generated.beside(trained).beside(sync)
    else:
        longer = Interval(
            low=max(generated.low, trained.low),
            middle=max(generated.middle, trained.middle),
            high=max(generated.high, trained.high),
        )
        step = longer.beside(sync)
    whole = step.scaled(1 / (1 - constants.speed.other_share))
    return whole.at_most(WIDEST).at_least(constants.speed.band_step)


_LONG_ROW = 32 * 1024  # tokens; attention is no small part of a longer one
_HANDED = ("old_logprobs", "reference", "update")  # to whose workers a batch travels, and back
_GENERATING = ("rollout", "reward", "weight_sync")


def _both(one: Interval, other: Interval, *, beside: bool) -> Interval:
    """Return two intervals one after the other, or at once on devices of their own."""
    if not beside:
        return one + other
    return Interval(low=max(one.low, other.low), middle=max(one.middle, other.middle), high=max(one.high, other.high))


def _bottleneck(phases: dict[str, Interval]) -> str:
    return max(phases, key=lambda key: phases[key].middle)


def _mfu(job: Job, flops: float, seconds: float) -> float:
    """Return the share of the peak; 0 on the CPU, whose peak nobody knows."""
    if not seconds or job.fleet.accelerator.is_host:
        return 0.0
    return flops / (seconds * job.policy.layout.num_devices * peak_rate(job.fleet.accelerator))


def _mfu_note(job: Job) -> tuple[str, ...]:
    if job.fleet.accelerator.is_host:
        return ()
    note = Sentence(
        "MFU counts FLOPs of the update's forward and backward passes, attention included and recomputation not, "
        "against the peak of {num_devices} devices without sparsity: {peak:,.0f} TFLOP/s in {kind} each.",
        num_devices=job.policy.layout.num_devices,
        peak=peak_rate(job.fleet.accelerator) / 1e12,
        kind=compute_type(job.fleet.accelerator, "bf16"),
    )
    return (note,)


def _document_note(training: Training) -> tuple[str, ...]:
    """Return what is assumed of long rows whose documents nobody measured: attention grows with their square."""
    if training.document or training.is_padded or training.sequence <= _LONG_ROW:
        return ()
    return (
        Sentence(
            "A row of {tokens:,} tokens is taken as one document. Where rows are packed from short samples, attention "
            "takes a part of this time only: give the mean tokens of a sample.",
            tokens=training.sequence,
        ),
    )


def _unsure(phase: str, constants: Constants) -> float:
    """Return how far a phase may be from its middle where nobody knows how long responses are: weights know none."""
    bands = {"rollout": constants.decode.band_lengths, "weight_sync": 1.0}
    return bands.get(phase, constants.speed.band_unknown)


def _key(job: Job) -> tuple[int, int, float]:
    """Return what of the fleet, beside its accelerator, a part's seconds depend on."""
    fleet = job.fleet
    return (fleet.num_devices, fleet.devices_per_node, fleet.node_bandwidth)
