"""What was planned for a run beside what was measured of it: seconds by phase, bytes by role and phase, states by role.

What was not measured is None, never 0. Bytes are those that the run's own roles took: on CUDA the most that torch had
reserved, which the plan's context, graphs and communicators are not in; on CPU the most that was resident, less what
the process held before its model.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from jobs.catalog.metric import metric, peak_name
from jobs.planner.constant import Constants, shipped_constants
from jobs.planner.result import TERMS, Estimate, Interval, PeakMemory, Term
from jobs.planner.time.steps import PACES, TOGETHER
from jobs.telemetry.chunks import Floats
from jobs.telemetry.clean_series import read_clean
from jobs.telemetry.series import MAX_POINTS, Series
from profiling.phases import PHASES, ROLES

Quantity = Literal["seconds", "bytes"]
Source = Literal["device", "process", ""]

STEP = "step"
BASELINE = "memory_baseline_bytes"
STATES: Mapping[Term, str] = {
    "weights": "parameter_bytes",
    "gradients": "gradient_bytes",
    "optimizer": "optimizer_bytes",
}
"""The terms of memory that a role reads off itself, and the readings."""
BANDS: Mapping[str, str] = {
    "weights": "memory.states_band",
    "gradients": "memory.gradients_band",
    "optimizer": "memory.states_band",
}
"""The constants that say how far what holds these terms may be from their elements."""
_PHASES = tuple(phase.key for phase in PHASES)
_SECONDS = {f"time/{phase}_seconds": phase for phase in (*_PHASES, STEP, *TOGETHER)}
_FURTHER = {"time/values_seconds": "old_logprobs", "time/critic_update_seconds": "update"}
"""Seconds that belong to a phase beside its own."""
_DEVICE_TOTALS = tuple(f"gpu{index}_memory_total_bytes" for index in range(16))  # read by the runner
_PEAKS = {
    peak_name(kind, phase): (kind, phase) for kind in ("resident_peak", "device_reserved_peak") for phase in _PHASES
}
_FIRST = "load"  # before it a process has freed nothing
_LENGTHS = ("prompt/length_mean", "response/length_mean")
_LONGEST = 1e9  # what a trainer says may be anything
_OUTSIDE: tuple[Term, ...] = ("graphs", "overhead")  # torch's allocator does not know of them

RoleKey = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecEstimate:
    """An estimate of a run's spec. `seconds`: the phases, and "step", whose time means anything; None: all of them.
    `constants`: those of its estimate."""

    estimate: Estimate
    seconds: frozenset[str] | None = None
    constants: Constants = field(default_factory=shipped_constants)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunMeasurements:
    """What a run told. `seconds`: phase, or "step" for the whole -> median over its steps. `peaks`: (role, phase) ->
    most bytes over ranks and steps; `source` says of what: "device", or "process" less its baseline, "" for none.
    `states`: (role, term) -> bytes of the rank that holds most. `num_steps`: steps that the medians are of.
    `device_bytes`: memory of a device as the driver reports it; `mean_prompt`, `mean_response`: tokens, the median of
    steps; 0 where it was not told."""

    seconds: Mapping[str, float] = field(default_factory=dict)
    peaks: Mapping[RoleKey, float] = field(default_factory=dict)
    states: Mapping[RoleKey, float] = field(default_factory=dict)
    source: Source = ""
    num_steps: int = 0
    device_bytes: float = 0.0
    mean_prompt: float = 0.0
    mean_response: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRow:
    """One line: seconds of a `phase` ("step": the whole; "experience": all of TOGETHER's), or bytes of a `role` in a
    phase, or of one `term` of its states ("" for all terms). None where nothing was planned or measured. `difference`
    is measured / planned - 1 of the middle; `is_inside` whether the interval holds what was measured. Neither is said
    where it `has_freed_memory`: memory that another phase freed and the process did not give back."""

    quantity: Quantity
    phase: str
    role: str = ""
    term: str = ""
    predicted: Interval | None
    measured: float | None
    has_freed_memory: bool = False

    @property
    def difference(self) -> float | None:
        """How far the measured value is from the middle of the plan, as a share of it."""
        if self.predicted is None or self.measured is None or self.predicted.middle <= 0 or self.has_freed_memory:
            return None
        return self.measured / self.predicted.middle - 1

    @property
    def is_inside(self) -> bool | None:
        """Whether the planned interval holds what was measured."""
        if self.predicted is None or self.measured is None or self.has_freed_memory:
            return None
        return self.predicted.low <= self.measured <= self.predicted.high


def planned_rows(plan: SpecEstimate, measured: RunMeasurements, *, frees_memory: bool = True) -> tuple[PlannedRow, ...]:
    """Return the lines for the plan of the run's spec and what the run told. `frees_memory`: its processes gave freed
    memory back to the system before each phase, as marks of memory make them."""
    return (*_seconds(plan, measured), *_bytes(plan.estimate, measured, frees_memory), *_states(plan, measured))


def plan_of_cpu(made: Estimate, constants: Constants) -> SpecEstimate:
    """Return what of an estimate on the CPU means anything: the bytes of the roles that learn and score, and the
    seconds of phases whose pace was measured there."""
    phases = seconds_on_cpu(made, constants)
    pools = tuple(pool for pool in made.pools if pool.name != "vllm")
    return SpecEstimate(estimate=replace(made, pools=pools), seconds=phases, constants=constants)


def seconds_on_cpu(made: Estimate, constants: Constants) -> frozenset[str]:
    """Return the phases of an estimate on the CPU whose pace was measured there, and "step" where all were.

    A pace that the project set is for GPUs as well: alone it says nothing here, beside a measured one it holds.
    """
    paces = {phase: constants.get(PACES[phase]) for phase in made.time.phases if phase in PACES}
    is_measured = any(pace.is_changed and pace.evidence == "measured" for pace in paces.values())
    phases = frozenset(phase for phase, pace in paces.items() if pace.is_changed and is_measured)
    is_whole = phases and phases >= set(made.time.phases) - {"reward"}
    return phases | {STEP} if is_whole else phases


def _seconds(plan: SpecEstimate, measured: RunMeasurements) -> Iterator[PlannedRow]:
    time = plan.estimate.time
    planned = {**time.phases, STEP: time.step}
    if plan.seconds is not None:
        planned = {phase: seconds for phase, seconds in planned.items() if phase in plan.seconds}
    order = [*_PHASES, STEP]
    for whole, parts in TOGETHER.items():
        if whole in measured.seconds and not any(part in measured.seconds for part in parts):
            order.insert(order.index(parts[0]), whole)
            together = [planned.pop(part) for part in parts if part in planned]
            if together:
                planned[whole] = sum(together[1:], start=together[0])
    for phase in order:
        if phase in planned or phase in measured.seconds:
            yield PlannedRow(
                quantity="seconds",
                phase=phase,
                predicted=planned.get(phase),
                measured=measured.seconds.get(phase),
            )


def _bytes(made: Estimate, measured: RunMeasurements, frees_memory: bool) -> Iterator[PlannedRow]:
    """Yield what each role takes in each phase in which it works: where it is planned most, if it is in several pools,
    and in which it was measured."""
    planned = _by_role(made)
    fullest = {} if frees_memory or measured.source != "process" else _fullest(measured.peaks)
    for role, phase in _ordered({*planned, *measured.peaks}):
        memory = planned.get((role, phase))
        yield PlannedRow(
            quantity="bytes",
            phase=phase,
            role=role,
            predicted=None if memory is None else _interval(_comparable(memory, measured.source), made.band),
            measured=measured.peaks.get((role, phase)),
            has_freed_memory=(role, phase) in measured.peaks and phase not in (_FIRST, fullest.get(role, phase)),
        )


def _fullest(peaks: Mapping[RoleKey, float]) -> dict[str, str]:
    """Return the phase in which each role took most."""
    return {role: max((each for each in peaks if each[0] == role), key=peaks.__getitem__)[1] for role, _ in peaks}


def _states(plan: SpecEstimate, measured: RunMeasurements) -> Iterator[PlannedRow]:
    """Yield weights, gradients and optimizer states of each role: the least of its phases, as what is gathered or
    copied for a while is not what the role reads off itself. Their interval is what holding them may add (BANDS), not
    the band of a whole peak."""
    planned: dict[RoleKey, int] = {}
    for (role, _phase), memory in _by_role(plan.estimate).items():
        for term in STATES:
            if size := memory.terms.get(term, 0):
                planned[role, term] = min(planned.get((role, term), size), size)
    for role, name in sorted({*planned, *measured.states}, key=lambda key: (_place(key[0]), _term_place(key[1]))):
        held = planned.get((role, name))
        yield PlannedRow(
            quantity="bytes",
            phase="",
            role=role,
            term=name,
            predicted=None if held is None else _interval(held, plan.constants.value(BANDS[name])),
            measured=measured.states.get((role, name)),
        )


def _by_role(made: Estimate) -> dict[RoleKey, PeakMemory]:
    """Return (role, phase) -> what the role holds in the phases in which it works itself."""
    peaks: dict[RoleKey, PeakMemory] = {}
    for pool in made.pools:
        for phase in pool.phases:
            held = phase.by_role.get(phase.role)
            if held is not None:
                peaks[phase.role, phase.phase] = held
    return peaks


def _comparable(memory: PeakMemory, source: Source) -> int:
    """Return the bytes that a measurement of that source sees."""
    unseen = sum(memory.terms.get(term, 0) for term in _OUTSIDE) if source == "device" else 0
    return memory.total - unseen


def _interval(size: int, band: float) -> Interval:
    return Interval(low=size * (1 - band), middle=size, high=size * (1 + band))


def _ordered(keys: Iterable[RoleKey]) -> list[RoleKey]:
    return sorted(keys, key=lambda key: (_place(key[0]), _PHASES.index(key[1])))


def _place(role: str) -> int:
    return ROLES.index(role) if role in ROLES else len(ROLES)


def _term_place(term: str) -> int:
    return TERMS.index(term)


# -- what the run told --


def read_measured(run_id: str) -> RunMeasurements:
    """Return the medians and peaks of a run. The first step is left out of medians if there are others: it warms up."""
    names = [*_SECONDS, *_further_names(), *_LENGTHS, *_PEAKS, *STATES.values(), BASELINE, *_DEVICE_TOTALS]
    series = read_clean(run_id=run_id, names=names, num_points=MAX_POINTS).series
    seconds = {_SECONDS[each.name]: each for each in series if each.kind == "metric" and each.name in _SECONDS}
    source, peaks = _peaks(series)
    totals = [float(np.nanmax(each.high)) for each in series if each.name in _DEVICE_TOTALS]
    return RunMeasurements(
        seconds=_medians(series),
        peaks=peaks,
        states=_largest_states(series),
        source=source,
        num_steps=len(_warm(seconds[STEP])) if STEP in seconds else 0,
        device_bytes=max(totals, default=0.0),
        mean_prompt=_length(series, _LENGTHS[0]),
        mean_response=_length(series, _LENGTHS[1]),
    )


def _length(series: Iterable[Series], name: str) -> float:
    """Return the median of mean lengths, 0 where none was told or it is no length."""
    medians = [_median(each) or 0.0 for each in series if each.kind == "metric" and each.name == name]
    return next((length for length in medians if 0 < length < _LONGEST), 0.0)


def _further_names() -> dict[str, str]:
    """Return the names of seconds that belong to a phase beside its own -> the phase; also as trainers call them, which
    is how runs have them that ended before the dictionary did."""
    phases: dict[str, str] = {}
    for name, phase in _FURTHER.items():
        theirs = [each for names in metric(name).names.values() for each in names]
        phases |= dict.fromkeys((name, *theirs), phase)
    return phases


def _medians(series: Iterable[Series]) -> dict[str, float]:
    """Return phase -> median seconds, with what belongs to the phase beside its own."""
    phases = {**_SECONDS, **_further_names()}
    by_phase: dict[str, float] = {}
    for each in series:
        if each.kind == "metric" and each.name in phases and (value := _median(each)) is not None:
            by_phase[phases[each.name]] = by_phase.get(phases[each.name], 0.0) + value
    return by_phase


def _warm(series: Series) -> Floats:
    """Return the values after the first step, all of them if there are no others; finite ones alone."""
    finite = np.isfinite(series.y)
    later = finite & (series.x > series.x[finite].min()) if finite.any() else finite
    return series.y[later if later.any() else finite]


def _median(series: Series) -> float | None:
    values = _warm(series)
    return float(np.median(values)) if len(values) else None


def _peaks(series: Iterable[Series]) -> tuple[Source, dict[RoleKey, float]]:
    """Return the most of each role and phase over ranks: of the device where one was measured, else of the process."""
    most: dict[tuple[str, str, int, str], float] = {}
    baselines: dict[tuple[str, int], float] = {}
    for each in series:
        if each.kind != "system":
            continue
        if each.name == BASELINE:
            baselines[each.role, each.rank] = float(each.y[-1])
        elif each.name in _PEAKS:
            kind, phase = _PEAKS[each.name]
            most[kind, each.role, each.rank, phase] = float(np.nanmax(each.high))
    kinds = {kind for kind, *_ in most}
    if "device_reserved_peak" in kinds:
        return "device", _over_ranks(
            ((role, phase), value) for (kind, role, _, phase), value in most.items() if kind == "device_reserved_peak"
        )
    peaks = _over_ranks(
        ((role, phase), value - baselines[role, rank])
        for (_, role, rank, phase), value in most.items()
        if (role, rank) in baselines
    )
    return ("process", peaks) if peaks else ("", {})


def _largest_states(series: Iterable[Series]) -> dict[RoleKey, float]:
    terms = {name: term for term, name in STATES.items()}
    return _over_ranks(
        ((each.role, terms[each.name]), float(np.nanmax(each.high)))
        for each in series
        if each.kind == "system" and each.name in terms
    )


def _over_ranks(values: Iterable[tuple[RoleKey, float]]) -> dict[RoleKey, float]:
    peaks: dict[RoleKey, float] = {}
    for key, value in values:
        peaks[key] = max(peaks.get(key, value), value)
    return peaks
