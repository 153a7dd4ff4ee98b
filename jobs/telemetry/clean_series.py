"""Read each series of a run as one clean line over its attempts; what was resumed past is left out."""

from collections.abc import Callable, Collection, Mapping

import numpy as np

from jobs.models import Metric
from jobs.telemetry import history
from jobs.telemetry.chunks import POINTS_PER_ROW, PointRows, join_rows, roll_up
from jobs.telemetry.series import Series, SeriesAnswer, SeriesRequest, SeriesWindow, make_series, series_rows
from jobs.telemetry.smoothing import Smoothing
from jobs.telemetry.stocks import Key, Stock, read_stocks

_NOTHING = -(2**62)  # below every step


def read_clean(
    *,
    run_id: str,
    names: Collection[str],
    num_points: int = 1000,
    smoothing: Smoothing | None = None,
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
    limits = history.limits_of([run_id]) if through is None else {run_id: through}
    return read_clean_of(run_ids=[run_id], names=names, request=request, limits=limits)[run_id]


def read_clean_of(
    *,
    run_ids: Collection[str],
    names: Collection[str],
    request: SeriesRequest,
    limits: Mapping[str, Mapping[int, int | None]] | None = None,
    check: Callable[[], None] = lambda: None,
) -> dict[str, SeriesAnswer]:
    """Return run id -> what `read_clean` returns of it, with as many statements for many runs as for one.

    `limits` are those of `jobs.telemetry.history.limits_of`, None for the histories as they are. `check` is called
    before each few million points, and may raise to end the work. Raises: ValueError if a number is out of its range.
    """
    request.check()
    metrics = series_rows(run_ids=run_ids, names=names)
    cuts = cuts_of(metrics, history.limits_of(run_ids) if limits is None else limits)

    def drawn(metric: Metric, stocks: Mapping[int, Stock]) -> tuple[str, Series | None]:
        line = clean_line(metric, stocks, cuts)
        return metric.run_id, None if line is None else make_series(metric, *line, request)

    made, through = read_stocks(
        run_ids=run_ids, metrics=metrics, request=request.stocks(), use=drawn, last_steps=cuts, check=check
    )
    by_run: dict[str, list[Series]] = {run_id: [] for run_id in run_ids}
    for run_id, series in made:
        if series is not None:
            by_run[run_id].append(series)
    return {
        run_id: SeriesAnswer(through_seq=through[run_id], series=tuple(sorted(own, key=_place)))
        for run_id, own in by_run.items()
    }


def _place(series: Series) -> tuple[str, str, str, int]:
    return series.kind, series.name, series.role, series.rank


def cuts_of(metrics: Mapping[int, Metric], limits: Mapping[str, Mapping[int, int | None]]) -> dict[Key, int]:
    """Return the last step that counts of each series and attempt that does not count whole."""
    return {
        (pk, attempt): step if step >= 0 else _NOTHING
        for pk, metric in metrics.items()
        if metric.kind == "metric"
        for attempt, step in limits.get(metric.run_id, {}).items()
        if step is not None
    }


def clean_line(
    metric: Metric, stocks: Mapping[int, Stock], last_steps: Mapping[Key, int]
) -> tuple[int, PointRows, int] | None:
    """Return the newest attempt that has a part in the line, the line's rows, and for how many points each stands.

    The newest attempt comes first where attempts meet; None if nothing of any of them counts.
    """
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
    return remaining[0][0], join_rows(lines[::-1]), coarsest
