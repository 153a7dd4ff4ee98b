"""The planner's answer: does a job fit, how long is a step, what does the run cost. Pure arithmetic, milliseconds.

    estimate(job) -> Estimate

Verdict: what is estimated fits up to 0.92 of what is usable, and is tight up to 1.08 (result.TIGHT_FROM, TIGHT_TO).
Every phase is checked, and the worst verdict is the job's. An engine sizes its cache by what it was given, to the byte:
its own bytes count as they are, the others' with that margin. What its budget leaves out, the driver's context, is not
known to the byte: it fits if it does at its largest. A family that was never measured widens the margin by its band.
Host memory counts too, with the same margin: what is known to be too little does not fit, and what is more than a node
usually has is tight, where nobody says what it has.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from jobs.catalog.accelerator import Accelerator
from jobs.catalog.sentence import Sentence
from jobs.planner.constant import Constant, Constants, shipped_constants
from jobs.planner.hardware_notes import notes_of
from jobs.planner.job import Engine, Job
from jobs.planner.memo import Memo, TrackedConstants
from jobs.planner.memory.measured import (
    doubt_of,
    is_measured,
    is_quantized_and_sharded,
    trains_experts_of_modules,
)
from jobs.planner.memory.phases import checkpoint_bytes, export_bytes, host_bytes
from jobs.planner.memory.storage import node_bytes
from jobs.planner.pools import idle_bytes, least_bytes_of_update, pools_of
from jobs.planner.result import (
    ENGINE_LACK,
    TIGHT_FROM,
    TIGHT_TO,
    ConstantUse,
    EngineCache,
    Estimate,
    PhaseMemory,
    PoolEstimate,
    Term,
    Verdict,
    cost_of,
    lean_of,
)
from jobs.planner.serving.engine_memory import EngineMemory, engine_memory, reserves_memory, starts_beside
from jobs.planner.shapes.said import doubts_of
from jobs.planner.time.split import with_best_split
from jobs.planner.time.steps import batch_of, step_time
from jobs.planner.validation import validate

__all__ = ["Estimator", "estimate", "validate"]

_NUM_USED = 6
_RANKS: tuple[Verdict, ...] = ("fits", "tight", "no")
_GIB = 1 << 30


def estimate(job: Job, constants: Constants | None = None) -> Estimate:
    """Return the whole answer for a job. Raises: JobInvalid for one that cannot be (see validate)."""
    return Estimator(constants).estimate(job)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Whether a job fits: bytes alone, which is half of the answer and is enough to turn a layout down.

    `job` as it is estimated, its engine as trainers start it; `problems`: why it does not, beside bytes of devices;
    `names`: the constants that the verdict rests on. The rest as in Estimate.
    """

    job: Job
    engine: EngineMemory | None
    pools: tuple[PoolEstimate, ...]
    verdict: Verdict
    pool: PoolEstimate
    phase: PhaseMemory
    band: float
    risk: float
    rollout: EngineCache | None
    host_bytes: int
    problems: tuple[str, ...]
    names: frozenset[str]


class Estimator:
    """Answers for many jobs that share parts, as a search has them: what the same object makes is estimated once."""

    def __init__(self, constants: Constants | None = None) -> None:
        self._constants = TrackedConstants(constants or shipped_constants())
        self._memo = Memo(self._constants)
        self._valid: dict[int, object] = {}

    def estimate(self, job: Job) -> Estimate:
        """Return the whole answer. Raises: JobInvalid."""
        return self.answer(self.fit(job))

    def rollout(self, job: Job) -> EngineCache | None:
        """Return what the cache of a job's engine holds, whatever is trained; None without an engine."""
        job, engine = self._with_engine(job)
        return None if engine is None else self._rollout(job, engine)

    def trainer_is_too_large(self, job: Job, *, above: float = 0.0) -> bool:
        """Return True if the policy's update and what the other trainers and models keep beside it are alone more than
        fits, whatever the engine: `fit` would say no. False says nothing. `above`: the share of what is usable that is
        too much, 0 for the share at which nothing is tight any more."""
        most = job.fleet.accelerator.usable_bytes * (above or TIGHT_TO)
        return least_bytes_of_update(job, self._constants, self._memo, most=most) > most

    def holds_no_sequence(self, job: Job) -> bool:
        """Return True if the cache of a job's engine cannot hold one sequence of full length, whatever is trained."""
        cache = self.rollout(job)
        return cache is not None and cache.full_sequences < 1

    def engine_is_too_large(self, job: Job) -> bool:
        """Return True if a job's engine does not start, alone or beside what its trainers leave on its devices: `fit`
        would say no. False says nothing."""
        job, engine = self._with_engine(job)
        if engine is None or job.engine is None:
            return False
        accelerator = job.fleet.accelerator
        if engine.shortage is not None:
            return not _is_near(engine, accelerator)
        if not reserves_memory(job.engine) or job.placement == "split":
            return False
        return not starts_beside(engine, accelerator, sum(idle_bytes(job, self._constants, self._memo).values()))

    def fit(self, job: Job) -> Fit:
        """Return whether a job fits. Raises: JobInvalid."""
        constants, memo = self._constants, self._memo
        constants.names = set()
        job = with_best_split(job, constants, memo)
        validate(job, self._valid)
        job, engine = self._with_engine(job)
        pools = pools_of(job, engine, constants, memo)
        usual, band = _bands(job, constants)
        context = constants.get("engine.context_bytes")
        verdict, pool, phase = _verdict(pools, band - usual, context.high - context.value)
        problems: list[str] = []
        if engine is not None and (problem := _start_problem(job, engine, pools)):
            problems.append(problem)
            verdict = "tight" if _is_near(engine, job.fleet.accelerator) and verdict != "no" else "no"
            pool = next(each for each in pools if "vllm" in each.binding.by_role)
            phase = next(each for each in pool.phases if each.phase == "rollout")
        on_host = host_bytes(job, constants)
        if (limit := _exceeded_host_bytes(job, on_host, constants)) is not None:
            is_short = bool(job.fleet.host_bytes) and on_host > TIGHT_TO * limit
            verdict = "no" if verdict == "no" or is_short else "tight"
            has = (
                Sentence("it has {limit:,.0f} GiB", limit=limit / _GIB)
                if job.fleet.host_bytes
                else Sentence("{limit:,.0f} GiB are usual", limit=limit / _GIB)
            )
            problems.append(
                Sentence("A node needs {on_host:,.0f} GiB of host memory; {has}.", on_host=on_host / _GIB, has=has)
            )
        problems.extend(_doubts(job, verdict, pool, phase, band - usual))
        names = frozenset(constants.names)
        return Fit(
            job=job,
            engine=engine,
            pools=pools,
            verdict=verdict,
            pool=pool,
            phase=phase,
            band=band,
            risk=band - usual,
            rollout=None if engine is None else self._rollout(job, engine),
            host_bytes=on_host,
            problems=tuple(problems),
            names=names,
        )

    def seconds(self, fit: Fit) -> float:
        """Return the middle seconds of a step of a job of which it was estimated here whether it fits."""
        return step_time(fit.job, fit.engine, self._constants, self._memo).step.middle

    def rests_on_for_time(self, fit: Fit) -> frozenset[str]:
        """Return the names of the constants that the seconds of a step rest on, beside those of `fit.names`."""
        self._constants.names = set()
        step_time(fit.job, fit.engine, self._constants, self._memo)
        return frozenset(self._constants.names)

    def answer(self, fit: Fit) -> Estimate:
        """Return the whole answer for a job of which it was estimated here whether it fits."""
        job, constants = fit.job, self._constants
        constants.names = set()
        time = step_time(job, fit.engine, constants, self._memo)
        terms = fit.phase.memory.terms
        term: Term = max(terms, key=lambda each: terms[each])
        trained = (job.policy,) if job.critic is None else (job.policy, job.critic)
        return Estimate(
            verdict=fit.verdict,
            pools=fit.pools,
            pool=fit.pool.name,
            phase=fit.phase.phase,
            term=term,
            band=fit.band,
            risk=fit.risk,
            rollout=fit.rollout,
            time=time,
            cost=cost_of(time.step, job.fleet, job.num_steps, constants),
            host_bytes=fit.host_bytes,
            shm_bytes=_shm_bytes(job, constants),
            checkpoint_bytes=sum(checkpoint_bytes(training) for training in trained),
            export_bytes=export_bytes(job.policy),
            used=(*_used(fit.names, constants), *_used(_of_time(constants.names, time.bottleneck), constants)),
            unpriced=job.unpriced,
            notes=tuple(
                dict.fromkeys(
                    (
                        *job.notes,
                        *fit.problems,
                        *time.notes,
                        *doubts_of(training.model for training in trained),
                        *notes_of(job),
                    )
                )
            ),
        )

    def rests_on(self) -> tuple[Constant, ...]:
        """Return the constants that anything asked here so far rests on."""
        return tuple(self._constants.get(name) for name in sorted(self._constants.seen))

    def varied(self, name: str, value: float) -> "Estimator":
        """Return an estimator with another value of a constant, which has what is made here of the others already.

        Raises: ConstantInvalid.
        """
        made = Estimator(self._constants.with_values({name: value}))
        made._memo = self._memo.without(name, made._constants)
        made._valid = self._valid  # whether a job can be rests on no constant
        return made

    def _with_engine(self, job: Job) -> tuple[Job, EngineMemory | None]:
        """Return the job with its engine as trainers start it, and what that holds."""
        if job.engine is None:
            return job, None
        accelerator, constants, memo = job.fleet.accelerator, self._constants, self._memo
        serving = _served(job, job.engine, memo)
        held = memo.of("engine", (serving, accelerator), lambda: engine_memory(serving, accelerator, constants))
        return (job if serving is job.engine else replace(job, engine=serving)), held

    def _rollout(self, job: Job, engine: EngineMemory) -> EngineCache:
        return self._memo.of("cache", (engine,), lambda: _rollout(job, engine, self._constants), job.rollouts)


def _served(job: Job, engine: Engine, memo: Memo) -> Engine:
    """Return the engine as trainers start it: unless it is set, it takes as much as prompt and response need."""
    if engine.max_model_len or job.rollouts is None:
        return engine
    lengths = job.rollouts.lengths
    longest = lengths.max_prompt + lengths.max_response
    return memo.of("served", (engine,), lambda: replace(engine, max_model_len=longest), longest)


def _bands(job: Job, constants: Constants) -> tuple[float, float]:
    """Return the memory's uncertainty as a share of it: that of models which were measured, which the margin between
    fitting and not covers, and the job's own, which is more where nothing like it was measured."""
    training = job.policy
    accelerator = job.fleet.accelerator
    is_known = (
        training.model.is_exact
        and not training.model.rough_layers
        and training.attends_by != "eager"
        and accelerator.vendor == "nvidia"
    )
    is_known = is_known and training.model.cache_layers == training.model.num_layers
    band = usual = constants.estimate.band_experts if training.model.experts else constants.estimate.band_dense
    trained = [each for each in (training, job.critic) if each is not None]
    is_known = is_known and (accelerator.is_host or all(is_measured(each) for each in trained))
    sharded = [each for each in trained if is_quantized_and_sharded(each)]
    if not is_known or sharded:
        band = max(band, constants.estimate.band_unmeasured)
    if not all(is_measured(each) for each in sharded):
        band = max(band, constants.estimate.band_sharded_quantized)
    if any(trains_experts_of_modules(each) for each in trained):
        band = max(band, constants.estimate.band_expert_modules)
    return usual, band


def _doubts(job: Job, verdict: Verdict, pool: PoolEstimate, phase: PhaseMemory, risk: float) -> Iterator[Sentence]:
    """Yield why a verdict that is no clear one is none: how near it is and to which side it leans, and what was never
    measured together."""
    if verdict != "tight":
        return
    share = phase.memory.total / pool.limit
    if share > TIGHT_FROM / (1 + risk):
        yield Sentence("Tight: {share:.0%} of what is usable; {leans}.", share=share, leans=lean_of(share, risk))
    if job.fleet.accelerator.is_host:
        return
    for training in (job.policy, job.critic):
        if training is not None and not is_measured(training):
            yield doubt_of(training)
            return


def _verdict(pools: tuple[PoolEstimate, ...], risk: float, unsure: float) -> tuple[Verdict, PoolEstimate, PhaseMemory]:
    """Return the verdict, and the pool and phase that decide it: of the phases with the worst one, that with least to
    spare. `risk` widens the margin below the limit, as a share of what is needed; `unsure` as in _phase_verdict."""
    ranked = [
        (_RANKS.index(_phase_verdict(pool, phase, risk, unsure)), _needed(pool, phase), pool, phase)
        for pool in pools
        for phase in pool.phases
    ]
    rank, _, pool, phase = max(ranked, key=lambda each: each[:2])
    return _RANKS[rank], pool, phase


def _phase_verdict(pool: PoolEstimate, phase: PhaseMemory, risk: float, unsure: float) -> Verdict:
    """Return the verdict of one phase. An engine that fills its share on purpose is not tight by that, as long as what
    its budget leaves out fits too, were it larger by `unsure` bytes; beyond the limit it does not start."""
    own, others = _shares(pool, phase)
    brim = phase.memory.total + (unsure if own else 0)
    if _needed(pool, phase) * (1 + risk) <= 1 and brim <= pool.limit:
        return "fits"
    return "tight" if own + others / TIGHT_TO <= 1 else "no"


def _needed(pool: PoolEstimate, phase: PhaseMemory) -> float:
    """Return the share of the limit that a phase needs with its margin: above 1 it does not surely fit."""
    own, others = _shares(pool, phase)
    return own + others / TIGHT_FROM


def _shares(pool: PoolEstimate, phase: PhaseMemory) -> tuple[float, float]:
    """Return the shares of the limit that an engine takes, which is known to the byte, and all others."""
    engine = phase.by_role.get("vllm")
    own = engine.total if engine is not None and engine.terms.get("kv_cache") else 0
    return own / pool.limit, (phase.memory.total - own) / pool.limit


def _exceeded_host_bytes(job: Job, needed: float, constants: Constants) -> float | None:
    """Return the host memory of a node where what it must keep comes near it, else None. A device that is the host's
    own CPU has its memory in the pools."""
    limit = node_bytes(job.fleet, constants)
    return limit if not job.fleet.accelerator.is_host and needed > TIGHT_FROM * limit else None


def _is_near(engine: EngineMemory, accelerator: Accelerator) -> bool:
    """Return whether what an engine is short of is less than its own bytes are known to."""
    lack = 0 if engine.shortage is None else engine.shortage.missing
    return 0 < lack <= ENGINE_LACK * accelerator.usable_bytes


def _start_problem(job: Job, engine: EngineMemory, pools: tuple[PoolEstimate, ...]) -> str | None:
    """Return why the engine does not start, None if it does."""
    if engine.shortage is not None:
        return engine.shortage.text
    pool = next(each for each in pools if "vllm" in each.binding.by_role)
    rollout = next(each for each in pool.phases if each.phase == "rollout")
    others = sum(held.total for role, held in rollout.by_role.items() if role != "vllm")
    if job.engine is None or not reserves_memory(job.engine) or starts_beside(engine, job.fleet.accelerator, others):
        return None
    free = pool.limit - others
    return Sentence(
        "The engine wants {budget:.1f} GiB of a device; the other roles leave {free:.1f} GiB. Use"
        " at most {most:.2f} for engine.utilization, or move them away between phases.",
        budget=engine.budget / _GIB,
        free=free / _GIB,
        most=max(free, 0) / pool.limit,
    )


def _rollout(job: Job, engine: EngineMemory, constants: Constants) -> EngineCache:
    """Return what the cache holds: of sequences as long as they are in the mean, and as they may be at most."""
    longest, mean = engine.max_model_len, float(engine.max_model_len)
    if job.rollouts is not None:
        lengths = job.rollouts.lengths
        longest, mean = lengths.max_prompt + lengths.max_response, batch_of(job.rollouts, constants).length
    blocks = max(engine.cache.num_blocks, 0)
    return EngineCache(
        kv_bytes=engine.rollout_kv_bytes,
        kv_tokens=engine.kv_tokens,
        mean_sequences=blocks / engine.cache.sequence_blocks(mean),
        full_sequences=blocks / engine.cache.sequence_blocks(longest),
    )


def _shm_bytes(job: Job, constants: Constants) -> int:
    """Return shared memory per node: buffers of communication, and the batch on its way between roles."""
    size: float = constants.estimate.shm_device_bytes * min(job.fleet.devices_per_node, job.fleet.num_devices)
    if job.rollouts is not None:
        size += (
            2 * constants.estimate.batch_token_bytes * batch_of(job.rollouts, constants).tokens / job.fleet.num_nodes
        )
    return round(size)


def _of_time(names: set[str], bottleneck: str) -> set[str]:
    """Return the constants that the seconds of a phase rest on."""
    groups = {"rollout": ("decode",), "weight_sync": ("network",)}.get(bottleneck, ("speed", "network"))
    return {name for name in names if name.split(".")[0] in groups}


def _used(names: Iterable[str], constants: Constants) -> tuple[ConstantUse, ...]:
    """Return the constants of an answer, those first that were set by hand, then those that may vary most."""
    by_spread = sorted((constants.get(name) for name in names), key=lambda c: (not c.is_changed, -_spread(c), c.name))
    return tuple(
        ConstantUse(name=each.name, value=each.value, is_measured=each.evidence == "measured", source=each.source)
        for each in by_spread[:_NUM_USED]
    )


def _spread(constant: Constant) -> float:
    return constant.high / max(constant.low, constant.high / 1e3)
