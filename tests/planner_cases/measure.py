"""What the planner says of a case, beside what was measured: a reading per quantity. Nothing is skipped: what cannot be
estimated is a reading without an estimate, with the reason, and counts as wrong."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from jobs.planner.can_it_run.language_models import can_it_run
from jobs.planner.can_it_run.plans import Demand
from jobs.planner.constant import Constants, shipped_constants
from jobs.planner.estimate import Estimator
from jobs.planner.job import Job
from jobs.planner.memory.phases import counted
from jobs.planner.memory.storage import node_bytes
from jobs.planner.result import TIGHT_FROM, Estimate, Interval, JobInvalid
from jobs.planner.serving.engine_memory import engine_memory
from jobs.planner.serving.kv_cache import token_bytes
from jobs.planner.shapes.model_shape import ModelShape
from jobs.planner.time.decoding import decode_step_seconds
from jobs.planner.time.generation import decode_tokens_per_second, generation_seconds, mean_lengths
from jobs.planner.time.steps import NOTHING, TOGETHER
from jobs.planner.time.training import scoring_seconds, work_of
from jobs.planner.time.weight_sync import sync_seconds
from tests.planner_cases.load import Case

Quantity = Literal[
    "count",
    "memory",
    "host memory",
    "verdict",
    "fewest devices",
    "engine weights",
    "engine cache",
    "training speed",
    "scoring",
    "RL step",
    "RL phase",
    "decode",
    "token interval",
    "generation",
    "weight sync",
]
WIDEST = 2.5  # an interval that is wider says nothing
_SPEEDS = ("training speed", "RL step")
NEAR = 0.08  # of capacity: "tight" is right within it
_GIB = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One quantity of one case. `estimate` is None if it cannot be estimated; `why` then says why.

    `error`: relative, None where there is none; `is_right`: whether it counts as right where that is a yes or no;
    `detail` is what the planner adds: an interval, the phase that binds. `interval`: of what is measured in seconds, or
    in tokens or FLOPs by the second (`is_rate`).
    """

    case: Case
    quantity: Quantity
    what: str
    truth: float | str
    estimate: float | str | None
    error: float | None = None
    is_right: bool | None = None
    detail: str = ""
    why: str = ""
    interval: Interval | None = None

    @property
    def is_rate(self) -> bool:
        """True if more is faster."""
        return self.what.startswith("tok/s") or self.what == "MFU"


def readings(case: Case, k: Constants | None = None) -> tuple[Reading, ...]:
    """Return a reading of everything that was measured of a case."""
    return tuple(_readings(case, k or shipped_constants()))


def time_readings(case: Case, k: Constants, estimator: Estimator) -> tuple[Reading, ...]:
    """Return the readings of seconds alone; `estimator`, with the same constants, may know parts of the answer."""
    found, problem = _estimated(case, estimator)
    why = problem or "the case has no policy to train"
    return (*_times(case, found, why, k), *_of_decoding(case, k))


def _estimated(case: Case, estimator: Estimator) -> tuple[Estimate | None, str]:
    if case.job is None or case.problem:
        return None, case.problem
    try:
        return estimator.estimate(case.job), ""
    except (JobInvalid, ValueError) as error:
        return None, str(error)


def _readings(case: Case, k: Constants) -> Iterator[Reading]:
    found, problem = _estimated(case, Estimator(k))
    yield from _counts(case)
    yield from _of_estimate(case, found, problem, k)
    yield from _of_engine(case, problem, k)
    yield from _of_decoding(case, k)
    yield from _fewest(case, k)


def kv_bytes_of(model: ModelShape) -> int:
    """Return bytes of bf16 keys and values of one token on an engine of one device."""
    return token_bytes(model.layers, 1, 2.0)


def _counts(case: Case) -> Iterator[Reading]:
    keys = ("parameters", "active_parameters", "kv_bytes_per_token")
    for key in (key for key in keys if key in case.truth.numbers):
        truth = case.truth.numbers[key]
        if case.model is None:
            yield _unknown(case, "count", key, truth, case.problem or "the case names no model")
            continue
        value = kv_bytes_of(case.model) if key == "kv_bytes_per_token" else getattr(case.model, key)
        yield Reading(
            case=case,
            quantity="count",
            what=key,
            truth=truth,
            estimate=value,
            error=value / truth - 1,
            is_right=value == truth,
        )


def _of_estimate(case: Case, found: Estimate | None, problem: str, k: Constants) -> Iterator[Reading]:
    numbers, job = case.truth.numbers, case.job
    why = problem or "the case has no policy to train"
    if truth := case.truth.peak_bytes:
        if found is None or job is None:
            yield _unknown(case, "memory", "peak GiB", truth / _GIB, why)
        else:
            peak = _peak(case, job, found, k)
            yield _number(case, "memory", "peak GiB", truth / _GIB, peak / _GIB, detail=f"{found.phase}, {found.term}")
    if "host_gb" in numbers:
        if found is None:
            yield _unknown(case, "host memory", "GB", numbers["host_gb"], why)
        else:
            yield _number(case, "host memory", "GB", numbers["host_gb"], found.host_bytes / 1e9)
    if case.truth.verdict:
        yield _unknown(case, "verdict", "", case.truth.verdict, why) if found is None else _verdict(case, found, k)
    yield from _times(case, found, why, k)


def _times(case: Case, found: Estimate | None, why: str, k: Constants) -> Iterator[Reading]:
    numbers = case.truth.numbers
    if "sync_seconds" in numbers:
        phase = found.time.phases.get("weight_sync") if found else None
        yield _timed(case, "weight sync", "seconds", numbers["sync_seconds"], phase, why)
    if "transfer_seconds" in numbers:
        alone = sync_seconds(case.job, k) if found and case.job else None
        yield _timed(case, "weight sync", "transfer", numbers["transfer_seconds"], alone, why)
    yield from _speeds(case, found, why)
    if "score_seconds" in numbers:
        pass_seconds = _scored(case, k) if found else None
        yield _timed(case, "scoring", "seconds", numbers["score_seconds"], pass_seconds, why)
    for name, seconds in case.truth.phases.items():
        yield _timed(case, "RL phase", name, seconds, _phase(found, name) if found else None, why)


def _phase(found: Estimate, phase: str) -> Interval | None:
    """Return seconds of a phase of a step; of one that some trainers tell for several, their sum."""
    parts = [part for part in TOGETHER.get(phase, (phase,)) if part in found.time.phases]
    return sum((found.time.phases[part] for part in parts), start=NOTHING) if parts else None


def _speeds(case: Case, found: Estimate | None, why: str) -> Iterator[Reading]:
    numbers, job = case.truth.numbers, case.job
    quantity: Quantity = "training speed" if job is None or job.rollouts is None else "RL step"
    time = found.time if found else None
    devices = job.fleet.num_devices if job else 1
    if "step_seconds" in numbers:
        yield _timed(case, quantity, "s/step", numbers["step_seconds"], time and time.step, why)
    elif "tokens_per_second_per_device" in numbers:
        rate = time and time.tokens_per_second.scaled(1 / devices)
        yield _timed(case, quantity, "tok/s/device", numbers["tokens_per_second_per_device"], rate, why)
    elif "tokens_per_second" in numbers:
        yield _timed(case, quantity, "tok/s", numbers["tokens_per_second"], time and time.tokens_per_second, why)
    elif "mfu" in numbers:  # the share moves as the seconds do
        share = time and time.step.inverse(time.mfu * time.step.middle)
        yield _timed(case, quantity, "MFU", numbers["mfu"], share, why)


def _scored(case: Case, k: Constants) -> Interval:
    """Return seconds of one pass without gradients over the policy's micro-batches."""
    assert case.job is not None
    training, work = case.job.policy, work_of(case.job.policy)
    return scoring_seconds(
        training.model,
        training.layout,
        training,
        case.job.fleet,
        k,
        tokens=work.tokens * work.count * training.layout.data,
        document=work.document,
        row=work.tokens,
    )


def _peak(case: Case, job: Job, found: Estimate, k: Constants) -> float:
    """Return what the case's tool counts: all of a device in any phase, or what the allocator has at a step."""
    if case.counts == "device":
        return max(phase.memory.total for pool in found.pools for phase in pool.phases)
    updates = (phase.memory for pool in found.pools for phase in pool.phases if phase.phase == "update")
    memory = max(updates, key=lambda each: each.total)
    return counted(memory, job.policy, case.counts, job.fleet.accelerator, k)


def _verdict(case: Case, found: Estimate, k: Constants) -> Reading:
    share = max(pool.share for pool in found.pools)
    engine = case.job.engine if case.job is not None else None
    if engine is not None and engine.name != "trainer" and case.fleet is not None:
        a = case.fleet.accelerator
        shortage = engine_memory(engine, a, k).shortage
        share = share if shortage is None else 1 + shortage.missing / a.usable_bytes
    if case.fleet is not None:
        share = max(share, found.host_bytes / node_bytes(case.fleet, k))
    is_near = abs(share - 1) <= NEAR
    right = {"fits": found.verdict == "fits", "oom": found.verdict == "no"}[case.truth.verdict]
    return Reading(
        case=case,
        quantity="verdict",
        what="",
        truth=case.truth.verdict,
        estimate=found.verdict,
        is_right=right or (found.verdict == "tight" and is_near),
        detail=f"{share:.0%} of what is usable, {found.phase}, {found.term}",
    )


def _of_engine(case: Case, problem: str, k: Constants) -> Iterator[Reading]:
    numbers = case.truth.numbers
    keys = {"weights_gib": "engine weights", "kv_gib": "engine cache", "kv_tokens": "engine cache"}
    wanted = [key for key in keys if key in numbers]
    if not wanted:
        return
    if case.engine is None or case.fleet is None:
        for key in wanted:
            yield _unknown(case, keys[key], key, numbers[key], problem or "the case has no engine")  # type: ignore[arg-type]
        return
    held = engine_memory(case.engine, case.fleet.accelerator, k)
    values = {
        "weights_gib": held.memory.terms["weights"] / _GIB,
        "kv_gib": held.rollout_kv_bytes / _GIB,
        "kv_tokens": held.kv_tokens,
    }
    for key in wanted:
        yield _number(case, keys[key], key, numbers[key], values[key])  # type: ignore[arg-type]


def _of_decoding(case: Case, k: Constants) -> Iterator[Reading]:
    seconds = case.truth.numbers.get("generation_seconds")
    if not case.truth.decode and seconds is None:
        return
    engine, lengths = case.engine, case.lengths
    if case.problem or engine is None or case.fleet is None or lengths is None:
        why = case.problem or "the case has no engine and lengths"
        for point in case.truth.decode:
            yield _unknown(case, "decode", f"tok/s at {point.batch}", point.tokens_per_second, why)
        if seconds is not None:
            yield _unknown(case, "generation", "seconds", seconds, why)
        return
    a = case.fleet.accelerator
    means = mean_lengths(lengths, k)
    for point in case.truth.decode:
        prompt, output = point.prompt or means[0], point.output or means[1]
        if point.tokens_per_second:
            rate = decode_tokens_per_second(engine, a, point.batch, prompt, output, k)
            yield _timed(case, "decode", f"tok/s at {point.batch}", point.tokens_per_second, rate, "")
        if point.itl_ms:
            step = 1e3 * decode_step_seconds(engine, a, point.batch, prompt + k.decode.live_share * output, k)
            yield _number(case, "token interval", f"ms at {point.batch}", point.itl_ms, step)
    if seconds is not None and case.rollouts is not None:
        whole = generation_seconds(engine, a, case.rollouts, engine.num_engines, k)
        yield _timed(case, "generation", "seconds", seconds, whole, "")


def _fewest(case: Case, k: Constants) -> Iterator[Reading]:
    if "min_devices" not in case.truth.numbers:
        return
    truth = case.truth.numbers["min_devices"]
    if case.model is None or case.fleet is None or not case.method:
        yield _unknown(case, "fewest devices", case.method, truth, case.problem or "the case names no model and method")
        return
    verdict = can_it_run(
        case.model,
        case.fleet.accelerator,
        case.method,
        devices_per_node=case.fleet.devices_per_node,
        demand=case.demand or Demand(),
        host_bytes=case.fleet.host_bytes,
        constants=k,
    )
    need = verdict.minimum_with_offload if case.is_on_host else verdict.minimum
    if need.num_devices is None:
        yield _unknown(case, "fewest devices", case.method, truth, f"no number of devices fits: {verdict.summary}")
        return
    yield Reading(
        case=case,
        quantity="fewest devices",
        what=case.method,
        truth=truth,
        estimate=need.num_devices,
        error=need.num_devices / truth - 1,
        is_right=truth / 2 <= need.num_devices <= truth * 2,  # one parallel step is a factor of two
        detail=f"{need.label.lower()}; {need.phase} binds",
    )


def _unknown(case: Case, quantity: Quantity, what: str, truth: float | str, why: str) -> Reading:
    return Reading(case=case, quantity=quantity, what=what, truth=truth, estimate=None, is_right=False, why=why)


def _number(case: Case, quantity: Quantity, what: str, truth: float, value: float, detail: str = "") -> Reading:
    return Reading(
        case=case, quantity=quantity, what=what, truth=truth, estimate=value, error=value / truth - 1, detail=detail
    )


def _timed(case: Case, quantity: Quantity, what: str, truth: float, interval: Interval | None, why: str) -> Reading:
    if interval is None:
        return _unknown(case, quantity, what, truth, why or "the planner knows no such phase of this job")
    # What is judged by class alone (held_out.py) may be as wide as its readings ask for.
    is_narrow = quantity not in _SPEEDS or interval.high <= interval.low * WIDEST * 1.001  # what rounding adds
    return Reading(
        case=case,
        quantity=quantity,
        what=what,
        truth=truth,
        estimate=interval.middle,
        error=interval.middle / truth - 1,
        is_right=is_narrow and interval.low <= truth <= interval.high,
        detail=f"{interval.low:.3g} – {interval.high:.3g}",
        interval=interval,
    )


__all__ = ["NEAR", "TIGHT_FROM", "WIDEST", "Quantity", "Reading", "readings"]
