"""How far runs had come when they first reached a level of their outcome: steps, training time, GPU hours."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from jobs.catalog.metric import metric
from jobs.comparison.axis import axes_of
from jobs.comparison.read import Columns, SeriesPoints, StepWindow, read_columns
from jobs.comparison.verdict import OUTCOMES, outcome_of
from jobs.models import Attempt, Run
from jobs.telemetry.chunks import Floats

MOST_RUNS = 10
"""Of more runs every step's time is read only if a level is named."""
MEAN_OF = 5
"""A level is reached when the mean of so many steps is: one lucky step is not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """When a run first had the level. `seconds` of training, None without step times; `gpu_hours` None without GPUs."""

    step: int
    seconds: float | None
    gpu_hours: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A level of the outcome `metric`, and who reached it when: run id -> None where it was not."""

    metric: str
    value: float
    reached: Mapping[str, Reached | None]


def find_target(*, runs: Sequence[Run], value: float | None = None) -> Target | None:
    """Return who reached `value` of the outcome that all runs have; None: the best level that each of them reached.

    None where they share no outcome, or one has fewer steps than a level needs; of more than ten runs a level has to be
    named. Of more than 5,000 steps the extremes of short stretches are looked at.
    """
    if value is None and len(runs) > MOST_RUNS:
        return None
    begun = [run for run in runs if run.step > 0]
    columns = [_outcomes(run) for run in begun]
    name = outcome_of(columns) if columns else ""
    if not name:
        return None
    sign = -1.0 if metric(name).better == "lower" else 1.0
    levels = {run.pk: trailing_mean(own[name]) for run, own in zip(begun, columns, strict=True)}
    if not all(np.isfinite(level.y).any() for level in levels.values()):
        return None
    if value is None:
        value = sign * min(float(np.nanmax(sign * level.y)) for level in levels.values())
    gpus = dict(Attempt.objects.filter(run__in=begun).order_by("number").values_list("run_id", "num_gpus"))
    reached = {run.pk: _reached(run, levels[run.pk], sign, value, gpus.get(run.pk, 0.0)) for run in begun}
    return Target(metric=name, value=value, reached={run.pk: reached.get(run.pk) for run in runs})


def trailing_mean(points: SeriesPoints) -> SeriesPoints:
    """Return the mean of each five finite values at the last of them; none below five."""
    finite = np.isfinite(points.y)
    x, y = points.x[finite], points.y[finite]
    if len(y) < MEAN_OF:
        return SeriesPoints(x=x[:0], y=y[:0])
    means: Floats = np.convolve(y, np.full(MEAN_OF, 1 / MEAN_OF), "valid")
    return SeriesPoints(x=x[MEAN_OF - 1 :], y=means)


def _outcomes(run: Run) -> Columns:
    window = StepWindow(low=1, high=run.step, total=run.step)
    return read_columns(run_id=run.pk, names=OUTCOMES, window=window)


def _reached(run: Run, level: SeriesPoints, sign: float, value: float, gpus: float) -> Reached | None:
    places = np.flatnonzero(sign * level.y >= sign * value - 1e-9 * abs(value))
    if not len(places):
        return None
    step = level.x[places[:1]]
    seconds = float(axes_of(run_ids=[run.pk], axis="time")[run.pk](step)[0])
    if not np.isfinite(seconds):
        return Reached(step=int(step[0]), seconds=None, gpu_hours=None)
    return Reached(step=int(step[0]), seconds=seconds, gpu_hours=seconds * gpus / 3600 if gpus else None)
