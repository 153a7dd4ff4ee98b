"""Bytes per device, pool by pool and phase by phase: who works, and what the others leave there meanwhile.

A pool is devices that hold the same roles. Colocated, engine and trainer are in one, and take turns; split, the engine
has its own. In each phase one role works and all others of the pool hold what stays of them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import get_args

from jobs.catalog.accelerator import Accelerator
from jobs.catalog.algorithm import is_in
from jobs.planner.constant import Constants
from jobs.planner.job import FrozenModel, Job, Layout, Training
from jobs.planner.memo import Memo
from jobs.planner.memory.phases import (
    checkpoint_memory,
    frozen_memory,
    generation_memory,
    graph_memory,
    least_update_bytes,
    load_memory,
    process_memory,
    resident_memory,
    scoring_memory,
    sync_memory,
    update_memory,
)
from jobs.planner.memory.precision import compute_bytes
from jobs.planner.result import PeakMemory, PhaseMemory, PoolEstimate, SummedMemory, Term
from jobs.planner.serving.engine_memory import EngineMemory, wakes_at_once
from jobs.planner.time.training import work_of

_TERMS: tuple[Term, ...] = get_args(Term)


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A role on a pool's devices: what it leaves there while others work, and what it takes in each phase in which it
    works itself. `beside_reference`: what it leaves there while a reference scores, None for as much as ever."""

    role: str
    idle: PeakMemory
    busy: Mapping[str, PeakMemory]
    beside_reference: PeakMemory | None = None


def pools_of(job: Job, engine: EngineMemory | None, constants: Constants, memo: Memo) -> tuple[PoolEstimate, ...]:
    """Return every pool with its phases; `engine` is what the job's engine holds, None without one."""
    limit = job.fleet.accelerator.usable_bytes
    policy = _trainer("policy", job, job.policy, constants, memo)
    has_own_weights = job.engine is None or not job.engine.shares_weights
    members: dict[str, list[Member]] = {"policy": [policy if has_own_weights else without_sync(policy)]}
    sizes = {"policy": job.policy.layout.num_devices}
    if job.critic is not None:
        members.setdefault(job.critic_pool, []).append(_trainer("critic", job, job.critic, constants, memo))
        sizes.setdefault(job.critic_pool, job.critic.layout.num_devices)
    for frozen in job.frozen:
        members.setdefault(frozen.pool, []).append(_frozen(job, frozen, constants, memo))
        sizes.setdefault(frozen.pool, frozen.layout.num_devices)
    if engine is not None and job.engine is not None:
        is_split = job.placement == "split"
        name = "vllm" if is_split else "policy"
        bucket = 0 if not is_split else _bucket(job)
        sleeps = bool(job.engine.sleep_level)
        at_once = wakes_at_once(job.engine)
        member = _engine(engine, sleeps=sleeps, wakes_at_once=at_once, bucket=bucket)
        members.setdefault(name, []).append(without_sync(member) if job.engine.shares_weights else member)
        sizes.setdefault(name, job.engine_devices or job.engine.num_engines * job.engine.tensor * job.engine.pipeline)
    return tuple(
        PoolEstimate(name=name, num_devices=sizes[name], limit=limit, phases=tuple(_phases(held)))
        for name, held in members.items()
    )


def without_sync(member: Member) -> Member:
    """Return a role to which, or from which, no weights are sent."""
    return replace(member, busy={phase: held for phase, held in member.busy.items() if phase != "weight_sync"})


def idle_bytes(job: Job, constants: Constants, memo: Memo) -> Mapping[str, int]:
    """Return bytes that every role but the engine leaves on the devices of the policy's pool while others work."""
    accelerator = job.fleet.accelerator

    by_model = {"policy": _resident(job.policy, accelerator, constants, memo).total}
    if job.critic is not None and job.critic_pool == "policy":
        by_model["critic"] = _resident(job.critic, accelerator, constants, memo).total
    for number, frozen in enumerate(job.frozen):
        if frozen.pool == "policy":
            by_model[f"{frozen.role} {number}"] = _unused(frozen, accelerator, constants, memo).total
    return by_model


def least_bytes_of_update(job: Job, constants: Constants, memo: Memo, *, most: float) -> int:
    """Return bytes that the policy's update takes on the fullest device of its pool, the engine left out; or, where its
    states alone are more than `most`, a lower bound, which takes a part of the time."""
    accelerator, training = job.fleet.accelerator, job.policy
    held = memo.of("least", (training, accelerator), lambda: least_update_bytes(training, accelerator, constants))
    if held > most:
        return held
    beside = sum(size for role, size in idle_bytes(job, constants, memo).items() if role != "policy")
    if held + beside > most:
        return held + beside
    return beside + _update(training, accelerator, constants, memo).total


def _resident(training: Training, accelerator: Accelerator, constants: Constants, memo: Memo) -> PeakMemory:
    """Return what a trainer leaves on its devices, estimated once."""
    return memo.of("resident", (training, accelerator), lambda: resident_memory(training, accelerator, constants))


def _unused(frozen: FrozenModel, accelerator: Accelerator, constants: Constants, memo: Memo) -> PeakMemory:
    """Return what a model that only scores leaves on its devices, estimated once."""
    return memo.of("frozen", (frozen, accelerator), lambda: frozen_memory(frozen, accelerator, constants))


def _update(training: Training, accelerator: Accelerator, constants: Constants, memo: Memo) -> PeakMemory:
    """Return the peak of a training's update, estimated once."""
    return memo.of("update", (training, accelerator), lambda: update_memory(training, accelerator, constants))


def _phases(members: list[Member]) -> Iterator[PhaseMemory]:
    """Yield every phase in which a role of the pool works; where several do, one after the other, the fullest."""
    for phase in _ORDER:
        workers = [member for member in members if phase in member.busy]
        per_worker = [_phase(phase, worker, members) for worker in workers]
        if per_worker:
            yield max(per_worker, key=lambda each: each.memory.total)


_ORDER = ("load", "rollout", "reward", "old_logprobs", "reference", "update", "weight_sync", "checkpoint")


def _phase(phase: str, worker: Member, members: list[Member]) -> PhaseMemory:
    by_role: dict[str, PeakMemory] = {}
    for member in members:
        is_busy = member is worker or (phase == "weight_sync" and phase in member.busy)
        left = member.beside_reference if phase == "reference" and member.beside_reference else member.idle
        held = member.busy[phase] if is_busy else left
        by_role[member.role] = held if member.role not in by_role else added(by_role[member.role], held)
    return PhaseMemory(phase=phase, role=worker.role, memory=added(*by_role.values()), by_role=by_role)


def added(*parts: PeakMemory) -> PeakMemory:
    """Return the sum, term by term, in the order of the terms."""
    return parts[0] if len(parts) == 1 else SummedMemory(parts)


def greatest(one: PeakMemory, other: PeakMemory) -> PeakMemory:
    """Return what two states of one role take together: each term once, as large as the larger."""
    both = {term: max(one.terms.get(term, 0), other.terms.get(term, 0)) for term in _TERMS}
    return PeakMemory(terms={term: size for term, size in both.items() if size})


def _trainer(role: str, job: Job, training: Training, constants: Constants, memo: Memo) -> Member:
    def make() -> Member:
        accelerator = job.fleet.accelerator
        resident = _resident(training, accelerator, constants, memo)
        busy = {
            "load": load_memory(training, accelerator, constants),
            "update": _update(training, accelerator, constants, memo),
            "checkpoint": checkpoint_memory(training, accelerator, constants),
        }
        if role == "policy" and job.engine is None and is_in(job.algorithm, "rl"):
            busy["rollout"] = _generation(training, job, constants)
        if role == "policy" and job.precomputes_reference:
            alone = process_memory(training, accelerator, constants)
            busy["reference"] = added(alone, _scoring(training, job, constants))
        if job.scores_mismatches:
            busy["old_logprobs"] = greatest(resident, _scoring(training, job, constants))
        if job.rollouts is not None:
            scores = role == "critic" or job.rollouts.has_old_logprobs
            if scores:
                busy["old_logprobs"] = greatest(resident, _scoring(training, job, constants))
            if role == "policy":
                busy["weight_sync"] = sync_memory(training, accelerator, constants, bucket_bytes=job.sync_bucket_bytes)
        waits = role == "policy" and job.scores_beside_graph and not accelerator.is_host  # counted on devices alone
        graph = graph_memory(training, accelerator, constants) if waits else None
        return Member(role=role, idle=resident, busy=busy, beside_reference=graph)

    return memo.of(
        "trainer",
        (training, job.fleet.accelerator),
        make,
        role,
        job.rollouts,
        job.sync_bucket_bytes,
        job.scores_mismatches,
        job.precomputes_reference,
        job.scores_beside_graph,
        job.algorithm,
        job.engine is None,
    )


def _generation(training: Training, job: Job, constants: Constants) -> PeakMemory:
    """Return what the policy takes where it generates by itself: the samples of a step that fall to a rank, at once; a
    micro-batch where nothing is said."""
    rows, length = training.micro_batch, training.sequence
    if job.rollouts is not None:
        lengths = job.rollouts.lengths
        samples = job.rollouts.prompts * job.rollouts.samples_per_prompt
        rows, length = -(-samples // max(training.layout.data, 1)), lengths.max_prompt + lengths.max_response
    return generation_memory(training, job.fleet.accelerator, constants, rows=rows, length=length)


def _scoring(training: Training, job: Job, constants: Constants) -> PeakMemory:
    rollouts = job.rollouts
    tokens = work_of(training).tokens
    if rollouts is not None and rollouts.score_micro_batch:
        row = rollouts.score_sequence or training.sequence
        tokens = rollouts.score_micro_batch * row / (training.layout.context * training.layout.ulysses)
    held = training.base_bytes if training.method != "full" else training.weight_bytes
    return scoring_memory(
        training.model,
        training.layout,
        weight_bytes=0.0 if _streams(training, training.layout) else held,
        element_bytes=compute_bytes(training),
        tokens=round(tokens),
        has_head=training.objective != "scalar",
        head=training.head,
        head_chunk=training.head_chunk if training.head_axis == "tokens" else 0,
        logit_bytes=training.scored_logit_bytes,
        accelerator=job.fleet.accelerator,
        constants=constants,
    )


def _streams(training: Training, layout: Layout) -> bool:
    """Return whether a pass fetches weights from the host unit by unit: FSDP's and ZeRO-3's offload of parameters."""
    return training.offload.params and layout.shards == 3


def _frozen(job: Job, frozen: FrozenModel, constants: Constants, memo: Memo) -> Member:
    def make() -> Member:
        accelerator = job.fleet.accelerator
        idle = _unused(frozen, accelerator, constants, memo)
        working = scoring_memory(
            frozen.model,
            frozen.layout,
            weight_bytes=0.0 if frozen.is_offloaded and _streams(job.policy, frozen.layout) else frozen.weight_bytes,
            element_bytes=compute_bytes(job.policy),
            tokens=frozen.micro_batch * frozen.sequence // (frozen.layout.context * frozen.layout.ulysses),
            has_head=frozen.has_head,
            head=job.policy.head,
            head_chunk=job.policy.head_chunk if job.policy.head_axis == "tokens" else 0,
            logit_bytes=job.policy.scored_logit_bytes,
            accelerator=accelerator,
            constants=constants,
        )
        phase = "reward" if frozen.role == "reward" else "reference"
        role = "reference" if frozen.role == "teacher" else frozen.role  # both give log-probabilities to compare with
        return Member(role=role, idle=idle, busy={phase: greatest(idle, working)})

    return memo.of(
        "frozen_member",
        (frozen, job.fleet.accelerator),
        make,
        job.policy.head,
        job.policy.head_chunk,
        job.policy.scored_logit_bytes,
        job.policy.compute,
        job.policy.offload.params,
    )


def _engine(engine: EngineMemory, *, sleeps: bool, wakes_at_once: bool, bucket: int) -> Member:
    """Return the engine: awake while it generates; during the sync, where it sleeps, its weights alone, or its cache
    too if it wakes up at once. What a forward pass takes comes after that."""
    awake = engine.memory
    syncing = awake
    if sleeps:
        terms: dict[Term, int] = dict(engine.sleeping.terms)
        woken: tuple[Term, ...] = ("weights", "kv_cache") if wakes_at_once else ("weights",)
        for term in woken:
            terms[term] = awake.terms.get(term, 0)
        syncing = PeakMemory(terms=terms)
    elif bucket:
        syncing = added(awake, PeakMemory(terms={"overhead": bucket}))
    busy = {"rollout": awake, "weight_sync": syncing}
    return Member(role="vllm", idle=engine.sleeping if sleeps else awake, busy=busy)


def _bucket(job: Job) -> int:
    """Return bytes of one buffer of the weight sync: as set, or one largest matrix."""
    return job.sync_bucket_bytes or 2 * max(layer.largest_matrix for layer in job.policy.model.layers)
