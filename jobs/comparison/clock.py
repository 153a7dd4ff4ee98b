"""X axes besides the step: how many seconds, tokens or GPU hours a run's steps had taken when each of them ended."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Literal

import numpy as np

from jobs.comparison.phases import STEP_METRIC
from jobs.comparison.read import lane_order
from jobs.models import Attempt, Metric, Run
from jobs.telemetry.chunks import Floats, Ints, PointRows
from jobs.telemetry.clean_series import clean_line, cuts_of
from jobs.telemetry.downsampling import sort_rows
from jobs.telemetry.history import limits_of
from jobs.telemetry.series import series_rows
from jobs.telemetry.stocks import Stock, StockRequest, read_stocks

Clock = Callable[[Ints], Floats]
ChartAxis = Literal["step", "time", "tokens", "gpu_hours"]
"""What charts of several runs are laid over: steps, seconds of training, tokens trained on, GPU hours of training."""
TOKENS_OF_STEP = (  # speed and time of the phase whose tokens are counted: those learned, or else those generated
    ("throughput/update_tokens_per_second", "time/update_seconds"),
    ("throughput/rollout_tokens_per_second", "time/rollout_seconds"),
)


def axis_clocks(*, runs: Sequence[Run], axis: ChartAxis) -> dict[str, Clock]:
    """Return run id -> the function from steps [n] to where they end on the axis [n], NaN where it has nothing to say.

    Tokens are those of the update, or else of the rollout: speed times seconds, summed over the steps. GPU hours are
    the seconds of training by the GPUs of the latest attempt; a run without GPUs has none.
    """
    ids = [run.pk for run in runs]
    if axis == "tokens":
        return _token_clocks(ids)
    clocks = training_clocks(run_ids=ids)
    if axis != "gpu_hours":
        return clocks
    gpus = dict(Attempt.objects.filter(run__in=ids).order_by("number").values_list("run_id", "num_gpus"))
    return {run_id: _scaled(clock, (gpus.get(run_id) or np.nan) / 3600) for run_id, clock in clocks.items()}


def training_clocks(*, run_ids: Collection[str]) -> dict[str, Clock]:
    """Return run id -> the function from steps [n] to seconds [n]: the sum of the step times up to and with each step.

    Loading, waiting in a queue and pauses between attempts do not count. A step without a measured time takes none; a
    run without any has NaN everywhere. As many statements for many runs as for one.
    """
    rows = _rows_of(run_ids, [STEP_METRIC])
    return {run_id: _clock(own[STEP_METRIC]) if own else _nowhere for run_id, own in rows.items()}


def _token_clocks(run_ids: Collection[str]) -> dict[str, Clock]:
    rows = _rows_of(run_ids, [name for pair in TOKENS_OF_STEP for name in pair])
    clocks: dict[str, Clock] = {}
    for run_id, own in rows.items():
        pair = next((pair for pair in TOKENS_OF_STEP if all(name in own for name in pair)), None)
        if pair is None:
            clocks[run_id] = _nowhere
            continue
        speed, seconds = (own[name] for name in pair)
        steps, first, second = np.intersect1d(speed.x0, seconds.x0, return_indices=True)
        clocks[run_id] = _sums(steps, speed.y0[first] * seconds.y0[second])
    return clocks


def _rows_of(run_ids: Collection[str], names: Collection[str]) -> dict[str, dict[str, PointRows]]:
    """Return run id -> metric name -> the clean history of its first lane."""
    metrics = {pk: m for pk, m in series_rows(run_ids=run_ids, names=names).items() if m.kind == "metric"}
    cuts = cuts_of(metrics, limits_of(run_ids))

    def of(metric: Metric, stocks: Mapping[int, Stock]) -> tuple[Metric, PointRows] | None:
        line = clean_line(metric, stocks, cuts)
        return (metric, sort_rows(line[1])) if line else None

    made, _through = read_stocks(run_ids=run_ids, metrics=metrics, request=StockRequest(), use=of, last_steps=cuts)
    by_run: dict[str, dict[str, PointRows]] = {run_id: {} for run_id in run_ids}
    for metric, rows in sorted((one for one in made if one), key=lambda one: lane_order(one[0])):
        by_run[metric.run_id].setdefault(metric.name, rows)
    return by_run


def _clock(rows: PointRows) -> Clock:
    return _sums(rows.x0, rows.y0)


def _sums(steps: Ints, values: Floats) -> Clock:
    totals = np.cumsum(np.where(np.isfinite(values), values, 0.0))
    return lambda x: np.interp(x, steps, totals, left=0.0)


def _scaled(clock: Clock, factor: float) -> Clock:
    return lambda x: clock(x) * factor


def _nowhere(x: Ints) -> Floats:
    return np.full(len(x), np.nan)
