"""Read each series of a run as one clean line over its attempts; what was resumed past is left out."""

from collections.abc import Collection, Mapping

import numpy as np

from jobs.models import Metric
from jobs.telemetry import history
from jobs.telemetry.chunks import POINTS_PER_ROW, PointRows, join_rows, roll_up
from jobs.telemetry.series import (
    Key,
    Series,
    SeriesAnswer,
    SeriesRequest,
    SeriesWindow,
    Stock,
    make_series,
    read_stocks,
    series_rows,
)

_NOTHING = -(2**62)  # below every step


def read_clean(
    *,
    run_id: str,
    names: Collection[str],
    num_points: int = 1000,
    smoothing: float | None = None,
    window: SeriesWindow | None = None,
    through: Mapping[int, int | None] | None = None,
) -> SeriesAnswer:
    """Return one series per name, role and rank, over all attempts; `attempt` is the newest that it has points of.

    An earlier attempt ends at the step that was restored from it, and where two have a point at one step, the later
    one's counts. Series over time (kind system) are not cut: a machine's load is true in a dead branch too. Smoothing
    runs on through the restored step. `num_points`, `smoothing` and `window` are those of
    `jobs.telemetry.series.read_series`; `through` is attempt -> its last step that counts
    (`jobs.telemetry.history.limits`), None for the run's history as it is. Raises: ValueError if a number is out of its
    range.
    """
    request = SeriesRequest(num_points=num_points, smoothing=smoothing, window=window or SeriesWindow())
    request.check()
    metrics = series_rows(run_id=run_id, names=names)
    over_steps = [pk for pk, metric in metrics.items() if metric.kind == "metric"]
    through = history.visible_through(run_id) if through is None else through
    last_steps: dict[Key, int] = {
        (pk, attempt): step if step >= 0 else _NOTHING
        for attempt, step in through.items()
        if step is not None
        for pk in over_steps
    }
    stocks, through_seq = read_stocks(run_id=run_id, metrics=metrics, request=request, last_steps=last_steps)
    series = (
        _one_line(metric, {a: stock for (pk, a), stock in stocks.items() if pk == metric.pk}, last_steps, request)
        for metric in sorted(metrics.values(), key=lambda m: (m.kind, m.name, m.role, m.rank))
    )
    return SeriesAnswer(through_seq=through_seq, series=tuple(s for s in series if s is not None))


def _one_line(
    metric: Metric, stocks: Mapping[int, Stock], last_steps: Mapping[Key, int], request: SeriesRequest
) -> Series | None:
    """Return the series over its attempts, the newest first where they meet."""
    remaining: list[
        tuple[int, PointRows, int]
    ] = []  # attempt, rows, points that each stands for; from the newest attempt back
    for attempt in sorted(stocks, reverse=True):
        rows, row_points = stocks[attempt].rows()
        last = last_steps.get((metric.pk, attempt))
        if last is not None:  # its rows are single points
            keep = rows.x0 <= last
            for _attempt, later, _points in remaining:
                keep &= ~np.isin(rows.x0, later.x0)
            rows = rows.take(keep)
        if len(rows):
            remaining.append((attempt, rows, row_points))
    if not remaining:
        return None
    coarsest = max(row_points for _attempt, _rows, row_points in remaining)
    assert coarsest in POINTS_PER_ROW.values(), coarsest
    lines = [roll_up(rows, width=coarsest // points) if points < coarsest else rows for _a, rows, points in remaining]
    return make_series(metric, remaining[0][0], join_rows(lines[::-1]), coarsest, request)
