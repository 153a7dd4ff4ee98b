"""Training time as an x axis: how many seconds a run's steps had taken when each of them ended."""

from collections.abc import Callable, Collection, Mapping

import numpy as np

from jobs.comparison.phases import STEP_METRIC
from jobs.comparison.read import lane_order
from jobs.models import Metric, Run
from jobs.telemetry.chunks import Floats, Ints, PointRows
from jobs.telemetry.clean_series import clean_line, cuts_of
from jobs.telemetry.downsampling import sort_rows
from jobs.telemetry.history import limits_of
from jobs.telemetry.series import series_rows
from jobs.telemetry.stocks import Stock, StockRequest, read_stocks

Clock = Callable[[Ints], Floats]


def training_clock(*, run: Run) -> Clock:
    """Return the function from steps [n] to seconds [n]: the sum of the step times up to and with each step.

    Loading, waiting in a queue and pauses between attempts do not count. A step without a measured time takes none; a
    run without any has NaN everywhere.
    """
    return training_clocks(run_ids=[run.pk])[run.pk]


def training_clocks(*, run_ids: Collection[str]) -> dict[str, Clock]:
    """Return run id -> its clock, with as many statements for many runs as for one."""
    metrics = {pk: m for pk, m in series_rows(run_ids=run_ids, names=[STEP_METRIC]).items() if m.kind == "metric"}
    cuts = cuts_of(metrics, limits_of(run_ids))

    def of(metric: Metric, stocks: Mapping[int, Stock]) -> tuple[Metric, Clock] | None:
        line = clean_line(metric, stocks, cuts)
        return (metric, _clock(sort_rows(line[1]))) if line else None

    made, _through = read_stocks(run_ids=run_ids, metrics=metrics, request=StockRequest(), use=of, last_steps=cuts)
    clocks: dict[str, Clock] = {}
    for metric, clock in sorted((one for one in made if one), key=lambda one: lane_order(one[0])):
        clocks.setdefault(metric.run_id, clock)
    return {run_id: clocks.get(run_id, _nowhere) for run_id in run_ids}


def _clock(rows: PointRows) -> Clock:
    totals = np.cumsum(np.where(np.isfinite(rows.y0), rows.y0, 0.0))
    ends = rows.x0
    return lambda x: np.interp(x, ends, totals, left=0.0)


def _nowhere(x: Ints) -> Floats:
    return np.full(len(x), np.nan)
