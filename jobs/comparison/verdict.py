"""What may be said of one run against another: how its outcome and its step time differ, and whether that shows.

The outcome decides; where it shows no difference, the time of a step does. One run each is one seed each: intervals
cover the noise between the steps of these runs, not what another seed would do.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

import numpy as np

from jobs.catalog.metric import metric
from jobs.comparison.phases import STEP_METRIC
from jobs.comparison.read import Columns, SeriesPoints
from jobs.comparison.stats import ConfidenceInterval, mean_interval, median_interval, ratio_interval
from jobs.telemetry.chunks import Floats

Badge = Literal["better", "worse", "no_difference", "not_enough"]

DROPPED_STEPS = 3  # of the window's first steps, where caches fill and kernels compile
OUTCOMES = ("reward/mean", "loss/sft", "teacher/gap")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunVerdict:
    """Run `run_id` against the base.

    `speed` is the ratio of median step times, below 1 where the run is faster; `times` are the medians (run, base).
    `outcome` names the metric that decides ("" if they have none in common), `gain` the mean difference of its last
    common steps, run minus base. None: too few steps to say.
    """

    run_id: str
    badge: Badge
    speed: ConfidenceInterval | None
    times: tuple[ConfidenceInterval, ConfidenceInterval] | None
    outcome: str
    gain: ConfidenceInterval | None


def decide(*, speed: ConfidenceInterval | None, outcome: str, gain: ConfidenceInterval | None) -> Badge:
    """Return the badge: by the outcome if it shows a difference, else by the step time."""
    if outcome and gain is None:
        return "not_enough"
    if gain is not None and gain.excludes(0):
        return "better" if (gain.value > 0) == (metric(outcome).better == "higher") else "worse"
    if speed is not None and speed.excludes(1):
        return "better" if speed.value < 1 else "worse"
    return "no_difference" if gain is not None or speed is not None else "not_enough"


def verdict(*, run_id: str, run: Columns, base: Columns) -> RunVerdict:
    """Return the verdict on a run from the points of both in their common window."""
    times = _times(run, base)
    speed = ratio_interval(*times) if times else None
    outcome = outcome_of([run, base])
    gain = paired_difference(run[outcome], base[outcome]) if outcome else None
    return RunVerdict(
        run_id=run_id,
        badge=decide(speed=speed, outcome=outcome, gain=gain),
        speed=speed,
        times=times,
        outcome=outcome,
        gain=gain,
    )


def outcome_of(sides: Collection[Columns]) -> str:
    """Return the outcome that all sides have: the reward, or for SFT the loss; "" if they share none."""
    return next((name for name in OUTCOMES if all(name in side for side in sides)), "")


def steady(column: SeriesPoints) -> Floats:
    """Return the values after the first steps of the run, which are slower than those that follow. [n]"""
    return column.y[column.x > DROPPED_STEPS]


def paired_difference(run: SeriesPoints, base: SeriesPoints) -> ConfidenceInterval | None:
    """Return the mean of run minus base over their last common steps with its interval; None if they are too few.

    Differences are taken step by step: what both runs share at a step (its prompts, a late curriculum) cancels.
    """
    _, own, theirs = np.intersect1d(run.x, base.x, return_indices=True)
    return mean_interval(run.y[own] - base.y[theirs])


def _times(run: Columns, base: Columns) -> tuple[ConfidenceInterval, ConfidenceInterval] | None:
    if STEP_METRIC not in run or STEP_METRIC not in base:
        return None
    own, theirs = median_interval(steady(run[STEP_METRIC])), median_interval(steady(base[STEP_METRIC]))
    return (own, theirs) if own and theirs else None
