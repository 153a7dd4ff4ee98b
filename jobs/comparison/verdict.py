"""What may be said of one run against another: how its outcome and its step time differ, and whether that shows.

The outcome decides; where it shows no difference, the time of a step does, unless the conditions differ under which it
was measured (jobs.comparison.conditions). One run each is one seed each: intervals cover the noise between the steps of
these runs, and as much more as runs of one configuration differed by, not what every other seed would do.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from jobs.catalog.metric import metric
from jobs.comparison.conditions import DifferingCondition
from jobs.comparison.phases import PHASE_METRICS, STEP_METRIC
from jobs.comparison.read import Columns, SeriesPoints
from jobs.comparison.stats import ConfidenceInterval, RunSpread, correlated_mean_interval, median_interval
from jobs.telemetry.chunks import Floats

Badge = Literal["better", "worse", "no_difference", "not_comparable", "not_enough"]

DROPPED_STEPS = 3  # of the window's first steps, where caches fill and kernels compile
OUTCOMES = (
    "reward/mean",
    "loss/sft",
    "teacher/gap",
    "pairs/accuracy",  # losses of preferences depend on beta
    "labels/accuracy",
    "loss/pairs",  # of trainers that count nothing
    "loss/labels",
)
"""What a run is judged by: the first that both have."""
SEED_ALLOWANCE = 1.3
"""So much wider is the interval of an outcome than its noise between steps says: two seeds of one configuration differ
by more. Measured on seeds of the demo (docs/proofs/verdict.md): without it 6 to 9 % of identical pairs were told apart.
"""
DEMO_SPREAD, DEMO_ROLLOUT_SPREAD = RunSpread(log_sd=0.038, degrees=11), RunSpread(log_sd=0.068, degrees=11)
"""How far median times lie apart of runs that differ in nothing but the seed, one after the other on one quiet node:
what the steps of one run cannot show, as where its processes and memory lay. Of a step and its other phases, and of the
rollout, on 12 seeds of the demo on CPU (docs/proofs/verdict.md): without it 42 % of their pairs were told apart.
"""
MAIN_PART = 0.5
"""A phase is why a step is shorter or longer if this share of the difference is its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpreads:
    """By how much times and speeds of runs of one configuration differ. `measured`: metric -> what repeats in the
    project say (jobs.comparison.repeats); of others what seeds of the demo said."""

    measured: Mapping[str, RunSpread] = field(default_factory=dict)

    def of(self, name: str) -> RunSpread:
        """Return the spread of a metric's median."""
        return self.measured.get(name) or (DEMO_ROLLOUT_SPREAD if "rollout" in name else DEMO_SPREAD)


OF_DEMO = RunSpreads()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """The phase that most of a difference in step time comes from; `ratio` of its median seconds, run over base."""

    phase: str
    ratio: ConfidenceInterval


@dataclass(frozen=True, slots=True, kw_only=True)
class RunVerdict:
    """Run `run_id` against the base.

    `speed` is the ratio of step times (`paired_ratio`), below 1 where the run is faster; `times` are the medians (run,
    base).
    `outcome` names the metric that decides ("" if they have none in common), `gain` the mean difference of its last
    common steps, run minus base. None: too few steps to say. `conditions` differ, and if any of them is decisive,
    `speed` is no difference of the runs themselves; `reason` is where a speed that differs comes from, None where no
    phase stands out.
    """

    run_id: str
    badge: Badge
    speed: ConfidenceInterval | None
    times: tuple[ConfidenceInterval, ConfidenceInterval] | None
    outcome: str
    gain: ConfidenceInterval | None
    conditions: tuple[DifferingCondition, ...] = ()
    reason: Reason | None = None

    @property
    def is_speed_comparable(self) -> bool:
        """Whether the step times were measured under the same conditions, as far as is recorded."""
        return not any(one.is_decisive for one in self.conditions)


def decide(
    *,
    speed: ConfidenceInterval | None,
    outcome: str,
    gain: ConfidenceInterval | None,
    is_comparable: bool = True,
    learns_alike: bool = True,
) -> Badge:
    """Return the badge: by the outcome if it shows a difference, else by the step time if that `is_comparable`.

    `learns_alike` is False where they share no outcome though one of them has one: then no step time makes one better.
    """
    if outcome and gain is None:
        return "not_enough"
    if gain is not None and gain.excludes(0):
        return "better" if (gain.value > 0) == (metric(outcome).better == "higher") else "worse"
    if speed is not None and not (is_comparable and learns_alike):
        return "not_comparable"
    if speed is not None and speed.excludes(1):
        return "better" if speed.value < 1 else "worse"
    return "no_difference" if gain is not None or speed is not None else "not_enough"


def verdict(
    *,
    run_id: str,
    run: Columns,
    base: Columns,
    conditions: Sequence[DifferingCondition] = (),
    spreads: RunSpreads = OF_DEMO,
) -> RunVerdict:
    """Return the verdict on a run from the points of both in their common window, the conditions that differ, and the
    spreads between the times of runs of one configuration."""
    is_comparable = not any(one.is_decisive for one in conditions)
    times = _times(run, base)
    speed = paired_ratio(run[STEP_METRIC], base[STEP_METRIC], spreads.of(STEP_METRIC)) if times else None
    outcome = outcome_of([run, base])
    gain = paired_difference(run[outcome], base[outcome]) if outcome else None
    learns_alike = bool(outcome) or not any(name in side for side in (run, base) for name in OUTCOMES)
    return RunVerdict(
        run_id=run_id,
        badge=decide(speed=speed, outcome=outcome, gain=gain, is_comparable=is_comparable, learns_alike=learns_alike),
        speed=speed,
        times=times,
        outcome=outcome,
        gain=gain,
        conditions=tuple(conditions),
        reason=_reason(run, base, spreads) if speed is not None and speed.excludes(1) and is_comparable else None,
    )


def outcome_of(sides: Collection[Columns]) -> str:
    """Return the outcome that all sides have: the reward, for SFT the loss, of preferences how often they are right; ""
    if they share none."""
    return next((name for name in OUTCOMES if all(name in side for side in sides)), "")


def steady(column: SeriesPoints) -> Floats:
    """Return the values after the first steps of the run, which are slower than those that follow. [n]"""
    return column.y[column.x > DROPPED_STEPS]


def paired_difference(run: SeriesPoints, base: SeriesPoints) -> ConfidenceInterval | None:
    """Return the mean of run minus base over their last common steps with its interval; None if they are too few.

    Differences are taken step by step: what both runs share at a step (its prompts, a late curriculum) cancels. The
    interval is wider than their noise, by `SEED_ALLOWANCE`.
    """
    _, own, theirs = np.intersect1d(run.x, base.x, return_indices=True)
    estimate = correlated_mean_interval(run.y[own] - base.y[theirs])
    if estimate is None:
        return None
    half = SEED_ALLOWANCE * estimate.half
    return ConfidenceInterval(value=estimate.value, low=estimate.value - half, high=estimate.value + half, n=estimate.n)


def paired_mean_ratio(run: SeriesPoints, base: SeriesPoints) -> ConfidenceInterval | None:
    """Return the geometric mean of run / base over their last common steps with its interval, as `paired_difference` of
    logarithms; None if they are too few, or if a value after the first steps is not above 0.

    What grows by factors, as a KL divergence that runs away, differs by a steady amount in logarithms only.
    """
    if any((steady(side) <= 0).any() for side in (run, base)):
        return None
    sides = [SeriesPoints(x=side.x[side.x > DROPPED_STEPS], y=np.log(steady(side))) for side in (run, base)]
    logs = paired_difference(*sides)
    return logs.exp if logs else None


def paired_ratio(run: SeriesPoints, base: SeriesPoints, spread: RunSpread) -> ConfidenceInterval | None:
    """Return the median of run / base at the same steps, after the first ones, with its interval; None below ten.

    The interval covers the noise between steps and the `spread` between runs of one configuration.

    What steps of both have in common (responses that grow longer, a late curriculum) cancels.
    """
    x, own, theirs = np.intersect1d(run.x, base.x, return_indices=True)
    pairs = np.stack([run.y[own], base.y[theirs]])[:, x > DROPPED_STEPS]
    positive = np.log(pairs[:, (pairs > 0).all(axis=0)])
    logs = median_interval(positive[0] - positive[1])
    if logs is None:
        return None
    return spread.widened(logs.exp)


def _reason(run: Columns, base: Columns, spreads: RunSpreads) -> Reason | None:
    """Return the phase that the difference of the median steps comes from, if one shows it and has most of it."""
    whole = _change(run, base, STEP_METRIC, spreads)
    if whole is None:
        return None
    changes = {name: _change(run, base, name, spreads) for name in PHASE_METRICS}
    shares = {name: change[0] / whole[0] for name, change in changes.items() if change is not None}
    name = max(shares, key=lambda one: shares[one], default="")
    change = changes.get(name)
    if change is None or shares[name] < MAIN_PART or change[1] is None or not change[1].excludes(1):
        return None
    return Reason(phase=PHASE_METRICS[name], ratio=change[1])


def _change(
    run: Columns, base: Columns, name: str, spreads: RunSpreads
) -> tuple[float, ConfidenceInterval | None] | None:
    """Return how many seconds longer a metric's median is than the base's, and the ratio of the two."""
    if name not in run or name not in base:
        return None
    own, theirs = median_interval(steady(run[name])), median_interval(steady(base[name]))
    return (own.value - theirs.value, paired_ratio(run[name], base[name], spreads.of(name))) if own and theirs else None


def _times(run: Columns, base: Columns) -> tuple[ConfidenceInterval, ConfidenceInterval] | None:
    if STEP_METRIC not in run or STEP_METRIC not in base:
        return None
    own, theirs = median_interval(steady(run[STEP_METRIC])), median_interval(steady(base[STEP_METRIC]))
    return (own, theirs) if own and theirs else None
