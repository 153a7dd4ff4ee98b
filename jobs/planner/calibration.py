"""What finished runs say of the planner's paces: seconds measured over seconds estimated, and if that foretells others.

    calibrate(runs, neutral, present) -> Calibration

A pace is one factor on the seconds of a phase (jobs.planner.time.steps.PACES). It is fitted as the median of
ln(measured / estimated) over settings, so that one strange run does not move it; runs of one setting count once, by
their own median. Whether it helps is told by runs that it was not fitted on: each setting in turn is left out, the
pace is fitted on the others, and held against it. Where the median error of that is not less than what it is now,
nothing is proposed. All on one kind of device.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist, median

from jobs.catalog.sentence import Sentence
from jobs.planner.constant import Constants
from jobs.planner.estimate import estimate
from jobs.planner.job import Job
from jobs.planner.time.steps import EXPERIENCE, PACES, SCORING, TOGETHER

LEAST_SETTINGS = 3
"""So many different settings are needed: of two, each foretells the other by itself."""
OTHER = "speed.other_share"
CALIBRATED: tuple[str, ...] = (*dict.fromkeys(PACES.values()), OTHER)
"""The constants that are fitted, in the order of a step."""
STEP = "step"
_FAR = math.log(2)
_PRIOR, _PRIOR_WEIGHT = math.log(1.5), 3.0
"""How far settings lie apart before they tell, as ln of a factor, and how many settings that counts for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedRun:
    """A run that is over. `setting`: equal for runs that the planner takes for the same; `job`: what it was, with the
    lengths that were measured; `seconds`: phase, or "step" for the whole -> measured median."""

    run: str
    setting: str
    job: Job
    seconds: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """What runs say of one constant. `proposed` is None where nothing is proposed, and `refusal` says why.

    `fitted`: what the median of all runs makes of it, None without runs; `before` and `after`: the median error of
    runs that were left out, with the value of now and with one fitted on the others, as a share (0.1: a tenth too long
    or too short); None where there are too few. `far`: runs that are further than twice from the fit. `spread`: how
    many times more or less than the fit the next setting may take (`spread_of`), None without runs.
    """

    constant: str
    present: float
    fitted: float | None = None
    proposed: float | None = None
    before: float | None = None
    after: float | None = None
    runs: tuple[str, ...] = ()
    num_settings: int = 0
    spread: float | None = None
    far: tuple[str, ...] = ()
    refusal: str = ""

    @property
    def is_confirmed(self) -> bool:
        """Whether enough runs were held against the value of now, and none that they make of it comes closer."""
        return self.before is not None and self.after is not None and self.before <= self.after


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What runs of one kind of device say. `before` and `after`: as in Proposal, of the whole step, with all that is
    proposed; None where no step was measured of enough settings, or nothing is proposed."""

    proposals: tuple[Proposal, ...]
    before: float | None
    after: float | None

    @property
    def values(self) -> dict[str, float]:
        """What is proposed, by constant."""
        return {each.constant: each.proposed for each in self.proposals if each.proposed is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    """ln(measured / estimated with the constant as shipped) of one run."""

    run: str
    setting: str
    ratio: float


def miss_text(error: float) -> Sentence:
    """Return an error of a Proposal for people: a share, or how many times as long or short it is."""
    if error < 1:
        return Sentence("{share:.0f} %", share=error * 100)
    return Sentence("a factor of {factor:.3g}", factor=1 + error)


def spread_of(ratios: Collection[float]) -> float:
    """Return the factor to either side of the fit in which the next setting's seconds lie in four of five cases.

    `ratios`: ln(measured / estimated) by setting. The interval of a further value of a normal law, by Student's t;
    before any two settings tell how far they lie apart, one is taken that weighs as much as three (conjugate prior).
    """
    n = len(ratios)
    fit = median(ratios)
    freedom = _PRIOR_WEIGHT + n - 1
    apart = (_PRIOR_WEIGHT * _PRIOR**2 + sum((each - fit) ** 2 for each in ratios)) / freedom
    return math.exp(_student(freedom) * math.sqrt(apart * (1 + 1 / n)))


def _student(freedom: float) -> float:
    """Return Student's t at 0.9: Cornish and Fisher's series from the normal law (Abramowitz and Stegun 26.7.5)."""
    z = NormalDist().inv_cdf(0.9)
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


def calibrate(runs: Sequence[FinishedRun], neutral: Constants, present: Constants) -> Calibration:
    """Return what runs on one kind of device say of each constant of CALIBRATED.

    `neutral`: the constants without any pace; `present`: those of now. Raises: JobInvalid for a run that cannot be
    estimated.
    """
    readings = _readings(runs, neutral)
    proposals = tuple(_proposal(name, readings.get(name, []), present) for name in CALIBRATED)
    before, after = _step_errors(runs, readings, proposals, neutral, present)
    return Calibration(proposals=proposals, before=before, after=after)


def _readings(runs: Iterable[FinishedRun], neutral: Constants) -> dict[str, list[_Reading]]:
    by_name: dict[str, list[_Reading]] = {}
    for run in runs:
        for name, ratio in _ratios(run, neutral):
            by_name.setdefault(name, []).append(_Reading(run=run.run, setting=run.setting, ratio=ratio))
    return by_name


def _ratios(run: FinishedRun, neutral: Constants) -> Iterable[tuple[str, float]]:
    """Yield ln(measured / estimated) by constant: of phases with one pace together, as far as both were told."""
    planned = estimate(run.job, neutral).time.phases
    seconds = _phase_seconds(run, planned)
    for name in dict.fromkeys(PACES.values()):
        phases = [phase for phase in planned if PACES.get(phase) == name and seconds.get(phase, 0.0) > 0]
        measured = sum(seconds[phase] for phase in phases)
        if name == SCORING and not phases:  # rewards are in it, and are no matter of this pace
            phases = [phase for phase in planned if PACES.get(phase) == name and phase in TOGETHER[EXPERIENCE]]
            rewards = planned["reward"].middle if "reward" in planned else 0.0
            measured = seconds.get(EXPERIENCE, 0.0) - rewards
        estimated = sum(planned[phase].middle for phase in phases)
        if estimated > 0 and measured > 0:
            yield name, math.log(measured / estimated)
    follows = run.job.schedule == "sync" or run.job.placement != "split"  # one phase after the other
    is_told = all(seconds.get(phase, 0.0) > 0 for phase in (*planned, STEP))
    if run.job.rollouts is not None and follows and is_told:
        yield OTHER, math.log(seconds[STEP] / sum(seconds[phase] for phase in planned))


def _phase_seconds(run: FinishedRun, planned: Iterable[str]) -> Mapping[str, float]:
    """Return what a run told; a step that is one phase, as that of other trainers' fine-tuning, is its seconds."""
    if run.job.rollouts is None and tuple(planned) == ("update",) and STEP in run.seconds:
        return {"update": run.seconds[STEP], **run.seconds}
    return run.seconds


def _proposal(name: str, readings: Sequence[_Reading], present: Constants) -> Proposal:
    constant = present.get(name)
    settings = _settings(readings)
    proposal = Proposal(
        constant=name,
        present=constant.value,
        runs=tuple(reading.run for reading in readings),
        num_settings=len(settings),
    )
    if not readings:
        return _refused(proposal, Sentence("No finished run reports how many seconds it takes."))
    fit = median(settings.values())
    proposal = replace(
        proposal,
        fitted=_value(name, fit),
        spread=spread_of(settings.values()),
        far=tuple(r.run for r in readings if abs(r.ratio - fit) > _FAR),
    )
    if len(settings) < LEAST_SETTINGS:
        text = "Runs of {least} different settings are needed, and there are {n}."
        return _refused(proposal, Sentence(text, least=LEAST_SETTINGS, n=len(settings)))
    now = _ratio(name, constant.value)
    before = _error(ratio - now for ratio in settings.values())
    after = _error(ratio - fitted for ratio, fitted in _left_out(settings))
    proposal = replace(proposal, before=before, after=after)
    value = _value(name, fit)
    if name == OTHER and value < 0:
        return _refused(proposal, Sentence("Phases of these runs overlap: together they take longer than the step."))
    if not constant.low <= value <= constant.high:
        text = "Runs give {value:.3g}, outside {low:g} to {high:g}: the difference has another cause."
        return _refused(proposal, Sentence(text, value=value, low=constant.low, high=constant.high))
    if after >= before:
        text = "No improvement: on runs that it was not fitted on, the error would be {after}; it is {before} now."
        return _refused(proposal, Sentence(text, after=miss_text(after), before=miss_text(before)))
    return replace(proposal, proposed=value)


def _step_errors(
    runs: Iterable[FinishedRun],
    readings: Mapping[str, Sequence[_Reading]],
    proposals: Iterable[Proposal],
    neutral: Constants,
    present: Constants,
) -> tuple[float | None, float | None]:
    """Return the median error of whole steps with the constants of now, and with those fitted on other settings."""
    names = [each.constant for each in proposals if each.proposed is not None]
    before: dict[str, list[float]] = {}
    after: dict[str, list[float]] = {}
    for run in runs:
        measured = run.seconds.get(STEP, 0.0)
        if not names or not measured:
            continue
        values = {name: present.value(name) for name in CALIBRATED if present.get(name).is_changed}
        for name in names:
            others = _settings(reading for reading in readings[name] if reading.setting != run.setting)
            values[name] = _within(neutral, name, _value(name, median(others.values())))
        for constants, errors in ((present, before), (neutral.with_values(values), after)):
            errors.setdefault(run.setting, []).append(
                math.log(measured / estimate(run.job, constants).time.step.middle)
            )
    if len(before) < LEAST_SETTINGS:
        return None, None
    was, would = (_error(median(run_errors) for run_errors in errors.values()) for errors in (before, after))
    return was, would


def _refused(proposal: Proposal, why: str) -> Proposal:
    return replace(proposal, refusal=why)


def _settings(readings: Iterable[_Reading]) -> dict[str, float]:
    """Return the median of each setting's runs."""
    by_setting: dict[str, list[float]] = {}
    for reading in readings:
        by_setting.setdefault(reading.setting, []).append(reading.ratio)
    return {setting: median(ratios) for setting, ratios in by_setting.items()}


def _left_out(settings: Mapping[str, float]) -> Iterable[tuple[float, float]]:
    """Yield each setting's ratio with the median of the others."""
    for setting, ratio in settings.items():
        yield ratio, median(other for name, other in settings.items() if name != setting)


def _error(logs: Iterable[float]) -> float:
    """Return the median of absolute logarithms, as a share."""
    return math.expm1(median(abs(each) for each in logs))


def _ratio(name: str, value: float) -> float:
    """Return ln(seconds with a value / seconds as shipped): the step is its phases over 1 - other."""
    return -math.log1p(-value) if name == OTHER else math.log(value)


def _value(name: str, ratio: float) -> float:
    return -math.expm1(-ratio) if name == OTHER else math.exp(ratio)


def _within(constants: Constants, name: str, value: float) -> float:
    constant = constants.get(name)
    return min(max(value, constant.low), constant.high)
