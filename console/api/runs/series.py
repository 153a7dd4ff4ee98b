"""What a run reported: series, timeline, logs."""

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Literal

import orjson
from django.http import HttpRequest, HttpResponse
from ninja import Query, Router

from console.api.problem import EXPENSIVE, REFUSALS, RequestProblem
from console.api.runs.series_schema import AxisOut, LogsOut, MetricsOut, SeriesListOut, SpansOut, numbers
from console.api.visible import run_for
from console.budget import expensive
from console.middleware.caller_gone import check_caller
from jobs.catalog.log_level import Level
from jobs.catalog.metric import metric, requested_names
from jobs.comparison.axis import AxisName, axes_of
from jobs.telemetry.clean_series import read_clean
from jobs.telemetry.line_pattern import PatternInvalid
from jobs.telemetry.logs import CursorInvalid, LogFilter, LogPage, read_logs
from jobs.telemetry.series import (
    MAX_NAMES,
    MAX_POINTS,
    MIN_POINTS,
    SeriesAnswer,
    SeriesWindow,
    read_series,
    series_names,
)
from jobs.telemetry.smoothing import Smoothing, parse_smoothing
from jobs.telemetry.spans import MAX_LIMIT, SpansAnswer, read_spans
from profiling.phases import PHASES

router = Router(tags=["runs"])

MAX_INT64 = 2**63 - 1
MAX_INT32 = 2**31 - 1

MAX_MOMENT = 2**63 - 1
AXIS_POINTS = 2000  # more than a chart has pixels: between them it is straight
Moment = Annotated[int | None, Query(None, ge=0, le=MAX_MOMENT, description="Unix ns")]
Names = Annotated[str, Query(..., description="names of metrics, separated by commas", max_length=20_000)]
Points = Annotated[int, Query(1000, ge=MIN_POINTS, le=MAX_POINTS, description="width in pixels")]
Smooth = Annotated[
    str,
    Query(
        "",
        max_length=40,
        description="weight of what came before (0 to below 1), gaussian:<points> or mean:<points>; left out: none",
    ),
]
Branches = Annotated[Literal["all", "clean"], Query("all", description="all: each attempt apart; clean: one line")]
Low = Annotated[int | None, Query(None, alias="from", ge=-MAX_INT64, le=MAX_INT64, description="step, or Unix ns")]
High = Annotated[int | None, Query(None, alias="to", ge=-MAX_INT64, le=MAX_INT64)]
FromNs = Annotated[int | None, Query(None, ge=0, le=MAX_INT64)]
Limit = Annotated[int, Query(20_000, ge=1, le=MAX_LIMIT)]
Lines = Annotated[int, Query(500, ge=1, le=5000)]
Page = Annotated[int, Query(1, ge=1, le=1_000_000)]
Step = Annotated[int | None, Query(None, ge=-MAX_INT32, le=MAX_INT32)]
Rank = Annotated[int | None, Query(None, ge=0, le=MAX_INT32)]
Text = Annotated[str, Query("", max_length=500)]


@router.get("/{run_id}/metrics", response={200: MetricsOut, **REFUSALS}, summary="Which series there are")
def list_metrics(request: HttpRequest, run_id: str) -> HttpResponse:
    """List the run's series with what their metrics mean."""
    run = run_for(request, run_id)
    listed = []
    for series in series_names(run_id=run.pk):
        about = metric(series.name)
        named = {"kind": series.kind, "name": series.name, "role": series.role, "rank": series.rank}
        described = {"label": about.label, "unit": about.unit, "better": about.better, "definition": about.definition}
        listed.append({**named, **described})
    return _json({"through_seq": run.seq, "metrics": listed})


@router.get("/{run_id}/series", response={200: SeriesListOut, **REFUSALS}, summary="Points of series")
def get_series(
    request: HttpRequest,
    run_id: str,
    metrics: Names,
    points: Points = 1000,
    smooth: Smooth = "",
    low: Low = None,
    high: High = None,
    history: Branches = "all",
) -> HttpResponse:
    """Read series for a chart of `points` pixels. Extremes and NaNs stay whatever is left out.

    With `history=clean` the attempts of a resumed run are one line: what was resumed past is left out.
    """
    run = run_for(request, run_id)
    names = [name for name in dict.fromkeys(metrics.split(",")) if name]
    if not 1 <= len(names) <= MAX_NAMES:
        raise RequestProblem(422, f"Name 1 to {MAX_NAMES} metrics; these are {len(names)}.", field="metrics")
    read = read_clean if history == "clean" else read_series
    window = SeriesWindow(low=low, high=high)
    answer = read(run_id=run.pk, names=names, num_points=points, smoothing=smoothing_for(smooth), window=window)
    return _json(series_json(answer, requested=requested_names(names)))


@router.get("/{run_id}/axis", response={200: AxisOut, **REFUSALS}, summary="Where steps stand on another x axis")
def get_axis(request: HttpRequest, run_id: str, x: AxisName) -> HttpResponse:
    """Read how far the run had come when its steps ended: in seconds of training, tokens, samples or GPU hours.

    At most 2,000 steps, straight in between. Empty where the run has not measured it.
    """
    run = run_for(request, run_id)
    axis = axes_of(run_ids=[run.pk], axis=x)[run.pk].thinned(AXIS_POINTS)
    return _json({"x": x, "step": axis.steps.tolist(), "place": axis.places.tolist()})


def smoothing_for(text: str) -> Smoothing | None:
    """Return the smoothing that a request names. Raises: RequestProblem if it names none that there is."""
    try:
        return parse_smoothing(text)
    except ValueError as error:
        raise RequestProblem(422, str(error), field="smooth") from error


def series_json(answer: SeriesAnswer, *, requested: Mapping[str, str]) -> dict[str, object]:
    """Return the answer as orjson writes it; `requested` is what the request calls each metric."""
    return {
        "through_seq": answer.through_seq,
        "series": [
            {
                "kind": s.kind,
                "name": requested[s.name],
                "role": s.role,
                "rank": s.rank,
                "attempt": s.attempt,
                "n": s.n,
                "of": s.of,
                "row_points": s.row_points,
                "x": [str(x) for x in s.x.tolist()] if s.kind == "system" else s.x.tolist(),
                "y": numbers(s.y),
                "low": [] if s.n == s.of else numbers(s.low),
                "high": [] if s.n == s.of else numbers(s.high),
                "smooth": None if s.smooth is None else numbers(s.smooth),
            }
            for s in answer.series
        ],
    }


@router.get("/{run_id}/spans", response={200: SpansOut, **REFUSALS}, summary="The phase timeline")
def get_spans(
    request: HttpRequest, run_id: str, from_ns: FromNs = None, to_ns: FromNs = None, limit: Limit = 20_000
) -> HttpResponse:
    """Read the spans of a window of time, per role and rank."""
    run = run_for(request, run_id)
    return _json(spans_json(read_spans(run_id=run.pk, from_ns=from_ns, to_ns=to_ns, limit=limit)))


def spans_json(answer: SpansAnswer) -> dict[str, object]:
    """Return the answer as orjson writes it."""
    phases = list(dict.fromkeys([p.key for p in PHASES] + [p for lane in answer.lanes for p in lane.spans.phases]))
    lanes = []
    for lane in answer.lanes:
        spans = lane.spans
        to_phase = [phases.index(phase) for phase in spans.phases]
        lanes.append(
            {
                "role": lane.role,
                "rank": lane.rank,
                "attempt": lane.attempt,
                "phase": [to_phase[i] for i in spans.phase.tolist()],
                "name": [spans.names[i] for i in spans.name.tolist()],
                "start": [str(start) for start in spans.start.tolist()],
                "duration": spans.duration.tolist(),
                "depth": spans.depth.tolist(),
                "step": spans.step.tolist(),
            }
        )
    return {"through_seq": answer.through_seq, "n": answer.n, "of": answer.of, "phases": phases, "lanes": lanes}


@router.get("/{run_id}/logs", response={200: LogsOut, **EXPENSIVE}, summary="Log lines")
@expensive
def list_logs(
    request: HttpRequest,
    run_id: str,
    role: Text = "",
    rank: Rank = None,
    attempt: Rank = None,
    level: Annotated[Level | None, Query(None, description="lines of this level and worse ones")] = None,
    q: Text = "",
    is_expression: Annotated[bool, Query(False, description="q is a regular expression of RE2")] = False,
    since: Moment = None,
    until: Moment = None,
    before: Text = "",
    after: Text = "",
    at: Moment = None,
    limit: Lines = 500,
) -> dict[str, object]:
    """Read the newest lines, those before or after a cursor, or from the moment `at` on.

    `q` is looked for without regard to case. A search answers within about a second; where it has not come through by
    then, `searched` is the cursor to go on from.
    """
    run = run_for(request, run_id)
    wanted = LogFilter(
        role=role,
        rank=rank,
        attempt=attempt,
        level=level,
        query=q,
        is_expression=is_expression,
        since=_moment(since),
        until=_moment(until),
    )
    try:
        page: LogPage = read_logs(
            run_id=run.pk,
            wanted=wanted,
            before=before,
            after=after,
            at=_moment(at),
            limit=limit,
            check=partial(check_caller, request),
        )
    except CursorInvalid as error:
        raise RequestProblem(422, str(error), field="before" if before else "after" if after else "at") from error
    except PatternInvalid as error:
        raise RequestProblem(422, str(error), field="q") from error
    return {
        "lines": page.lines,
        "has_older": page.has_older,
        "has_newer": page.has_newer,
        "num_older": page.num_older,
        "searched": page.searched,
        "lanes": [{"role": role, "rank": rank} for role, rank in page.lanes],
    }


def _moment(ns: int | None) -> datetime | None:
    return None if ns is None else datetime.fromtimestamp(ns / 1e9, UTC)


def _json(content: object) -> HttpResponse:
    body = orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)
    return HttpResponse(body, content_type="application/json")
