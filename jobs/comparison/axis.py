"""X axes other than steps: how far a run had come when each of its steps ended, by what it measured itself."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from jobs.comparison.phases import STEP_METRIC
from jobs.comparison.read import lane_order
from jobs.models import Attempt, Metric
from jobs.telemetry.chunks import Floats, Ints, PointRows
from jobs.telemetry.clean_series import clean_line, cuts_of
from jobs.telemetry.downsampling import sort_rows
from jobs.telemetry.history import limits_of
from jobs.telemetry.series import series_rows
from jobs.telemetry.stocks import Stock, StockRequest, read_stocks

AxisName = Literal["time", "tokens", "samples", "gpu_hours"]
"""time: seconds of training, the sum of the step times; gpu_hours: these times the GPUs of the attempt."""
ChartAxis = Literal["step", AxisName]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepAxis:
    """Where steps stand: `places` is how far the run had come when each of `steps` ended. Both [n], rising.

    Loading, waiting in a queue and pauses between attempts do not count. n is 0 where the run has not measured it.
    """

    steps: Ints
    places: Floats

    @property
    def is_known(self) -> bool:
        """Whether the run has measured it."""
        return len(self.steps) > 0

    def __call__(self, steps: Ints) -> Floats:
        """Return the places of steps [n]; NaN everywhere where nothing is known."""
        if not self.is_known:
            return np.full(len(steps), np.nan)
        return np.interp(steps, self.steps, self.places, left=0.0)

    def step_at(self, place: float) -> int | None:
        """Return the step that ended nearest to a place; None before anything is known, and beyond the last step."""
        if not self.is_known:
            return None
        last_length = self.places[-1] - (self.places[-2] if len(self.places) > 1 else 0.0)
        if place > self.places[-1] + last_length / 2:
            return None
        return int(self.steps[np.argmin(np.abs(self.places - place))])

    def thinned(self, num_points: int) -> "StepAxis":
        """Return at most so many of its steps, evenly chosen, the first and the last among them."""
        if len(self.steps) <= num_points:
            return self
        rows = np.linspace(0, len(self.steps) - 1, num_points).round().astype(np.int64)
        return StepAxis(steps=self.steps[rows], places=self.places[rows])


_UNKNOWN = StepAxis(steps=np.empty(0, np.int64), places=np.empty(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """Metrics whose product is the share of a step, or with `is_total` one that counts from the start of the run."""

    names: tuple[str, ...]
    is_total: bool = False


_SOURCES: Mapping[AxisName, Sequence[_Source]] = {  # the best first
    "time": (_Source(names=(STEP_METRIC,)),),
    "gpu_hours": (_Source(names=(STEP_METRIC,)),),
    "samples": (_Source(names=("train/samples",)),),
    "tokens": (
        _Source(names=("train/tokens",)),
        _Source(names=("train/tokens_seen",), is_total=True),
        _Source(names=("throughput/update_tokens_per_second", "time/update_seconds")),
    ),
}


def axes_of(*, run_ids: Collection[str], axis: AxisName) -> dict[str, StepAxis]:
    """Return run id -> its axis over the clean history, with as many statements for many runs as for one."""
    names = {name for source in _SOURCES[axis] for name in source.names}
    rows = {pk: m for pk, m in series_rows(run_ids=run_ids, names=names).items() if m.kind == "metric"}
    chosen = _chosen(rows.values(), _SOURCES[axis])
    metrics = {pk: m for pk, m in rows.items() if m.run_id in chosen and m.name in chosen[m.run_id].names}
    limits = limits_of(run_ids)
    cuts = cuts_of(metrics, limits)

    def of(metric: Metric, stocks: Mapping[int, Stock]) -> tuple[Metric, PointRows] | None:
        line = clean_line(metric, stocks, cuts)
        return (metric, sort_rows(line[1])) if line else None

    made, _through = read_stocks(run_ids=run_ids, metrics=metrics, request=StockRequest(), use=of, last_steps=cuts)
    lines: dict[str, dict[str, PointRows]] = {run_id: {} for run_id in run_ids}
    for metric, line in sorted((one for one in made if one), key=lambda one: lane_order(one[0])):
        lines[metric.run_id].setdefault(metric.name, line)
    gpus = _gpus(run_ids) if axis == "gpu_hours" else {}
    axes = dict.fromkeys(run_ids, _UNKNOWN)
    for run_id, source in chosen.items():
        if all(name in lines[run_id] for name in source.names):
            steps, shares = _shares([lines[run_id][name] for name in source.names])
            if axis == "gpu_hours":
                shares = shares * _gpus_at(steps, limits[run_id], gpus.get(run_id, {})) / 3600
            axes[run_id] = _axis(steps, shares, is_total=source.is_total)
    return axes


def _chosen(rows: Collection[Metric], sources: Sequence[_Source]) -> dict[str, _Source]:
    """Return run id -> the best source of which the run has every metric."""
    names: dict[str, set[str]] = {}
    for row in rows:
        names.setdefault(row.run_id, set()).add(row.name)
    complete = {run_id: [s for s in sources if own.issuperset(s.names)] for run_id, own in names.items()}
    return {run_id: own[0] for run_id, own in complete.items() if own}


def _shares(lines: Sequence[PointRows]) -> tuple[Ints, Floats]:
    """Return the steps that all of these have, and the product of their values there."""
    steps, shares = lines[0].x0, lines[0].y0
    for line in lines[1:]:
        steps, here, there = np.intersect1d(steps, line.x0, return_indices=True)
        shares = shares[here] * line.y0[there]
    return steps, shares


def _axis(steps: Ints, shares: Floats, *, is_total: bool) -> StepAxis:
    """Return the axis of these shares; one that is not finite counts nothing. Unknown where they come to nothing."""
    counted = np.where(np.isfinite(shares), np.maximum(shares, 0.0), 0.0)
    places = np.maximum.accumulate(counted) if is_total else np.cumsum(counted)
    return StepAxis(steps=steps, places=places) if len(places) and places[-1] > 0 else _UNKNOWN


def _gpus(run_ids: Collection[str]) -> dict[str, dict[int, float]]:
    """Return run id -> attempt -> its GPUs."""
    gpus: dict[str, dict[int, float]] = {}
    for run_id, number, count in Attempt.objects.filter(run__in=run_ids).values_list("run_id", "number", "num_gpus"):
        gpus.setdefault(run_id, {})[number] = count
    return gpus


def _gpus_at(steps: Ints, limits: Mapping[int, int | None], gpus: Mapping[int, float]) -> Floats:
    """Return the GPUs of the attempt that did each step of the clean history."""
    counts = np.full(len(steps), np.nan)
    for number, through in sorted(limits.items()):
        own = np.isnan(counts) if through is None else np.isnan(counts) & (steps <= through)
        counts[own] = gpus.get(number, 0.0)
    return np.nan_to_num(counts)
