"""How far runs had come when they first reached a level of their outcome: steps, training time, GPU hours."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from jobs.catalog.metric import metric
from jobs.comparison.axis import StepAxis, axes_of
from jobs.comparison.read import Columns, SeriesPoints, StepWindow, read_columns_of
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
    columns = _columns(begun, OUTCOMES)
    name = outcome_of(list(columns.values())) if columns else ""
    if not name:
        return None
    levels = {run_id: trailing_mean(own[name]) for run_id, own in columns.items()}
    if not all(np.isfinite(level.y).any() for level in levels.values()):
        return None
    if value is None:
        sign = _sign(name)
        value = sign * min(float(np.nanmax(sign * level.y)) for level in levels.values())
    return _target(runs, name, value, levels)


def reach_level(*, runs: Sequence[Run], name: str, value: float) -> Target:
    """Return who reached `value` of this metric, with as many statements for many runs as for one."""
    columns = _columns([run for run in runs if run.step > 0], [name])
    levels = {run_id: trailing_mean(own[name]) for run_id, own in columns.items() if name in own}
    return _target(runs, name, value, levels)


def _target(runs: Sequence[Run], name: str, value: float, levels: Mapping[str, SeriesPoints]) -> Target:
    gpus = dict(Attempt.objects.filter(run__in=levels).order_by("number").values_list("run_id", "num_gpus"))
    clocks = axes_of(run_ids=list(levels), axis="time")
    reached = {
        run_id: _reached(clocks[run_id], level, _sign(name), value, gpus.get(run_id, 0.0))
        for run_id, level in levels.items()
    }
    return Target(metric=name, value=value, reached={run.pk: reached.get(run.pk) for run in runs})


def _sign(name: str) -> float:
    return -1.0 if metric(name).better == "lower" else 1.0


def trailing_mean(points: SeriesPoints) -> SeriesPoints:
    """Return the mean of each five finite values at the last of them; none below five."""
    finite = np.isfinite(points.y)
    x, y = points.x[finite], points.y[finite]
    if len(y) < MEAN_OF:
        return SeriesPoints(x=x[:0], y=y[:0])
    means: Floats = np.convolve(y, np.full(MEAN_OF, 1 / MEAN_OF), "valid")
    return SeriesPoints(x=x[MEAN_OF - 1 :], y=means)


def _columns(runs: Sequence[Run], names: Collection[str]) -> dict[str, Columns]:
    if not runs:
        return {}
    last = max(run.step for run in runs)
    window = StepWindow(low=1, high=last, total=last)
    return read_columns_of(run_ids=[run.pk for run in runs], names=names, window=window)


def _reached(clock: StepAxis, level: SeriesPoints, sign: float, value: float, gpus: float) -> Reached | None:
    places = np.flatnonzero(sign * level.y >= sign * value - 1e-9 * abs(value))
    if not len(places):
        return None
    step = level.x[places[:1]]
    seconds = float(clock(step)[0])
    if not np.isfinite(seconds):
        return Reached(step=int(step[0]), seconds=None, gpu_hours=None)
    return Reached(step=int(step[0]), seconds=seconds, gpu_hours=seconds * gpus / 3600 if gpus else None)
