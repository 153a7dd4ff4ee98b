"""Compare runs: verdicts with intervals, the table of metrics, where the step goes, and series for one chart of all."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated

import numpy as np
import orjson
from django.http import Http404, HttpRequest, HttpResponse
from ninja import Query, Router

from console.api.compare.columns import compressed, lines_response
from console.api.compare.schema import (
    CompareColumnsOut,
    CompareOut,
    ComparePointOut,
    CompareSeriesListOut,
    compare_out,
    point_out,
)
from console.api.problem import EXPENSIVE, RequestProblem
from console.api.runs.series import Names, Points, Smooth, Step, smoothing_for
from console.api.runs.series_schema import numbers
from console.api.visible import caller
from console.budget import expensive
from console.middleware.caller_gone import check_caller
from jobs.catalog.metric import requested_names
from jobs.comparison.axis import ChartAxis, axes_of
from jobs.comparison.chart_columns import ChartRequest, read_lines
from jobs.comparison.compare import MAX_RUNS, compare, metric_table, visible_runs, window_of
from jobs.comparison.point import points_at
from jobs.comparison.read import one_lane
from jobs.comparison.targets import find_target
from jobs.comparison.traces import traces_side_by_side
from jobs.models import Run
from jobs.telemetry.clean_series import read_clean_of
from jobs.telemetry.series import MAX_NAMES, Series, SeriesRequest, SeriesWindow

router = Router(tags=["runs"])

_MOST = 1e18  # seconds, tokens, samples or GPU hours

RunIds = Annotated[str, Query(..., description=f"ids of 1 to {MAX_RUNS} runs, separated by commas", max_length=2000)]
Base = Annotated[str, Query("", description="id of the run to compare with; left out: the first", max_length=40)]
Columns = Annotated[int, Query(500, ge=8, le=5000, description="width in pixels")]
Level = Annotated[
    float | None,
    Query(None, ge=-1e12, le=1e12, description="level of the reward or loss; left out: the best that all reached"),
]
Axis = Annotated[
    ChartAxis,
    Query(
        "step",
        description="time: seconds of training, summed over steps; tokens, samples: those learned from; gpu_hours: "
        "training time by the GPUs of the attempt",
    ),
]


@router.get("", response={200: CompareOut, **EXPENSIVE}, summary="Compare runs")
@expensive
def compare_runs(
    request: HttpRequest, runs: RunIds, base: Base = "", step: Step = None, target: Level = None
) -> CompareOut:
    """Compare runs over the steps that all of them have done; `step` is that of the at-step values."""
    rows = _runs(request, runs)
    ids = [run.pk for run in rows]
    base = base or ids[0]
    if base not in ids:
        raise RequestProblem(422, f"{base!r} is not among the runs {', '.join(ids)}.", field="base")
    window = window_of(rows)
    at = step if step is not None else window.high if window else None
    return compare_out(
        runs=rows,
        comparison=compare(runs=rows, base_id=base),
        table=metric_table(runs=rows, at=at),
        at=at,
        traces=traces_side_by_side(run_ids=ids),
        target=find_target(runs=rows, value=target),
    )


@router.get("/series", response={200: CompareSeriesListOut, **EXPENSIVE}, summary="Series of several runs")
@expensive
def compare_series(
    request: HttpRequest,
    runs: RunIds,
    metrics: Names,
    points: Points = 500,
    smooth: Smooth = "",
    x: Axis = "step",
    low: Annotated[float | None, Query(None, alias="from", description="first step")] = None,
    high: Annotated[float | None, Query(None, alias="to", description="last step")] = None,
) -> HttpResponse:
    """Read the clean history of the same metrics of several runs, of the driver or else of the first role and rank."""
    rows = _runs(request, runs)
    names = _names(metrics)
    window = SeriesWindow(low=_step_number(low, "from", np.floor), high=_step_number(high, "to", np.ceil))
    requested, ids = requested_names(names), [run.pk for run in rows]
    answers = read_clean_of(
        run_ids=ids,
        names=names,
        request=SeriesRequest(num_points=points, smoothing=smoothing_for(smooth), window=window),
    )
    axes = {} if x == "step" else axes_of(run_ids=ids, axis=x)
    lines = []
    for run in rows:
        for series in one_lane(answers[run.pk].series).values():
            place = axes[run.pk](series.x) if axes else series.x
            lines.append(_series_json(run, series, place, requested[series.name]))
    body = orjson.dumps({"series": lines}, option=orjson.OPT_SERIALIZE_NUMPY)
    return compressed(request, HttpResponse(body, content_type="application/json"))


@router.get("/columns", response={200: CompareColumnsOut, **EXPENSIVE}, summary="Lines of a chart of several runs")
@expensive
def compare_columns(
    request: HttpRequest,
    runs: RunIds,
    metrics: Names,
    columns: Columns = 500,
    smooth: Smooth = "",
    x: Axis = "step",
    low: Annotated[float | None, Query(None, alias="from", description="first step, or place on the axis")] = None,
    high: Annotated[float | None, Query(None, alias="to", description="last step, or place on the axis")] = None,
) -> HttpResponse:
    """Read the same metrics of several runs by columns of a screen, each with the extremes of every point in it.

    All lines share the columns: the k-th begins at `low` + k * `width`. Smoothed values are those of every single
    point, the same at every zoom. With `Accept: application/vnd.pitwall.columns` numbers travel as typed arrays.
    """
    rows = _runs(request, runs)
    names = _names(metrics)
    for value, field in ((low, "from"), (high, "to")):
        if x != "step" and value is not None and not abs(value) < _MOST:
            raise RequestProblem(422, f"{value} is not a place on the axis {x}: a number up to 1e18.", field=field)
    if x == "step":
        low, high = _step_number(low, "from", np.floor), _step_number(high, "to", np.ceil)
    if low is not None and high is not None and low > high:
        raise RequestProblem(422, f"from: {low} is above to: {high}.", field="from")
    chart = read_lines(
        runs=rows,
        names=names,
        request=ChartRequest(
            num_columns=columns,
            smoothing=smoothing_for(smooth),
            low=low,
            high=high,
            axis=x,
            check=partial(check_caller, request),
        ),
    )
    return lines_response(request, chart, requested=requested_names(names), axis=x)


@router.get("/point", response={200: ComparePointOut, **EXPENSIVE}, summary="Runs at a place of a chart")
@expensive
def compare_point(
    request: HttpRequest,
    runs: RunIds,
    metric: Annotated[str, Query(..., max_length=200, description="name of one metric")],
    at: Annotated[float, Query(..., ge=0, le=_MOST, description="step, or place on the axis")],
    x: Axis = "step",
) -> ComparePointOut:
    """Return which step of each run stands there, and the metric's newest value at or before it."""
    (name,) = requested_names([metric.replace("\0", "")]) or ("",)
    points = points_at(runs=_runs(request, runs), name=name, axis=x, place=min(at, 2**62) if x == "step" else at)
    return ComparePointOut(x=x, at=at, runs=[point_out(point) for point in points])


def _names(text: str) -> list[str]:
    names = [name for name in dict.fromkeys(text.split(",")) if name]
    if not 1 <= len(names) <= MAX_NAMES:
        raise RequestProblem(422, f"Name 1 to {MAX_NAMES} metrics; these are {len(names)}.", field="metrics")
    return names


def _series_json(run: Run, series: Series, place: np.ndarray, name: str) -> dict[str, object]:
    is_known = np.isfinite(place)
    y, smooth = series.y[is_known], series.smooth
    return {
        "run": run.pk,
        "name": name,
        "role": series.role,
        "rank": series.rank,
        "n": len(y),
        "of": series.of,
        "x": np.ascontiguousarray(place[is_known]),
        "y": numbers(y),
        "smooth": None if smooth is None else numbers(smooth[is_known]),
    }


def _runs(request: HttpRequest, text: str) -> list[Run]:
    """Return the runs named. Raises: Http404 if any of them is not there for the caller."""
    ids = list(dict.fromkeys(part.strip() for part in text.replace("\0", "").split(",") if part.strip()))
    if not 1 <= len(ids) <= MAX_RUNS:
        raise RequestProblem(422, f"Name 1 to {MAX_RUNS} runs; these are {len(ids)}.", field="runs")
    visible: Sequence[Run] = visible_runs(user=caller(request), ids=ids)
    if len(visible) < len(ids):
        raise Http404
    return list(visible)


def _step_number(value: float | None, field: str, rounded: np.ufunc) -> int | None:
    if value is None:
        return None
    if not abs(value) < 2**62:
        raise RequestProblem(422, f"{value} is not a step.", field=field)
    return int(rounded(value))
