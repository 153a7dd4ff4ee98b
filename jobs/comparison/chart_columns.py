"""The charts of a comparison: the same metrics of several runs on one grid of screen columns."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from jobs.comparison.axis import ChartAxis, StepAxis, axes_of
from jobs.comparison.read import lane_order
from jobs.models import Metric, Run
from jobs.telemetry.clean_series import clean_line, cuts_of
from jobs.telemetry.downsampling import sort_rows
from jobs.telemetry.history import limits_of
from jobs.telemetry.screen_columns import ScreenColumns, ScreenGrid, columns_of, step_grid
from jobs.telemetry.series import series_rows
from jobs.telemetry.smoothing import Smoothing, smooth
from jobs.telemetry.stocks import Stock, StockRequest, read_stocks

_NARROWEST = 1e-6  # of an axis that is not steps: a grid of no width has no columns


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartRequest:
    """What a chart shows: `low` to `high` (None: everything) in about `num_columns` columns, in units of `axis`.

    `check` is called now and then, and may raise to end the work.
    """

    num_columns: int
    smoothing: Smoothing | None = None
    low: float | None = None
    high: float | None = None
    axis: ChartAxis = "step"
    check: Callable[[], None] = lambda: None


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricLine:
    """One metric of one run, of the driver or else of the first role and rank."""

    run_id: str
    name: str
    role: str
    rank: int
    columns: ScreenColumns


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartLines:
    """Lines on one grid, in the order of the runs, then by name. `unplaced`: runs that have not measured the axis."""

    grid: ScreenGrid
    lines: tuple[MetricLine, ...]
    unplaced: tuple[str, ...] = ()


def read_lines(*, runs: Sequence[Run], names: Collection[str], request: ChartRequest) -> ChartLines:
    """Return the clean histories of these metrics, with as many statements for many runs as for one."""
    ids = [run.pk for run in runs]
    axes = {} if request.axis == "step" else axes_of(run_ids=ids, axis=request.axis)
    grid = _grid(runs, request, axes)
    lanes = _lanes(series_rows(run_ids=ids, names=names).values())
    lines: dict[tuple[str, str], MetricLine] = {}
    while lanes:  # once, but where all that the first lane had was resumed past
        first = {own[0].pk: own[0] for own in lanes.values()}
        for line in _read(ids, first, request, grid, axes):
            lines[line.run_id, line.name] = line
        lanes = {key: own[1:] for key, own in lanes.items() if key not in lines and own[1:]}
    place = {run_id: i for i, run_id in enumerate(ids)}
    return ChartLines(
        grid=grid,
        lines=tuple(sorted(lines.values(), key=lambda line: (place[line.run_id], line.name))),
        unplaced=tuple(run_id for run_id in ids if run_id in axes and not axes[run_id].is_known),
    )


def _grid(runs: Sequence[Run], request: ChartRequest, axes: Mapping[str, StepAxis]) -> ScreenGrid:
    if request.axis == "step":
        high = max((max(run.step, run.num_steps) for run in runs), default=0) if request.high is None else request.high
        low = min(0 if request.low is None else request.low, high)
        return step_grid(low=int(low), high=int(high), num_columns=request.num_columns)
    ends = [float(axes[run.pk](np.array([run.step]))[0]) for run in runs]
    last = max((end for end in ends if np.isfinite(end)), default=0.0)
    low, high = request.low or 0.0, last if request.high is None else request.high
    return ScreenGrid(low=low, width=max(high - low, _NARROWEST) / request.num_columns)


def _lanes(rows: Iterable[Metric]) -> dict[tuple[str, str], list[Metric]]:
    """Return the lanes of each run and metric in the order in which one is taken."""
    lanes: dict[tuple[str, str], list[Metric]] = {}
    for row in sorted((row for row in rows if row.kind == "metric"), key=lane_order):
        lanes.setdefault((row.run_id, row.name), []).append(row)
    return lanes


def _read(
    run_ids: Sequence[str],
    metrics: Mapping[int, Metric],
    request: ChartRequest,
    grid: ScreenGrid,
    axes: Mapping[str, StepAxis],
) -> Iterable[MetricLine]:
    cuts = cuts_of(metrics, limits_of(run_ids))

    def of(metric: Metric, stocks: Mapping[int, Stock]) -> MetricLine | None:
        line = clean_line(metric, stocks, cuts)
        if line is None:
            return None
        rows = sort_rows(line[1])
        smoothed = smooth(rows, request.smoothing) if request.smoothing else None
        x, y = axes[metric.run_id](rows.x0) if axes else rows.x0, rows.y0
        if axes or request.low is not None or request.high is not None:
            shown = np.isfinite(x)
            if request.low is not None:
                shown &= x >= request.low
            if request.high is not None:
                shown &= x <= request.high
            x, y, smoothed = x[shown], y[shown], None if smoothed is None else smoothed[shown]
        columns = columns_of(x, y, smoothed, grid=grid)
        return MetricLine(run_id=metric.run_id, name=metric.name, role=metric.role, rank=metric.rank, columns=columns)

    part = StockRequest()
    if not axes:
        low, high = (None if end is None else int(end) for end in (request.low, request.high))
        part = StockRequest(low=low, high=high, reach=request.smoothing.reach if request.smoothing else (0, 0))
    made, _through = read_stocks(
        run_ids=run_ids, metrics=metrics, request=part, use=of, last_steps=cuts, check=request.check
    )
    return [line for line in made if line is not None]
