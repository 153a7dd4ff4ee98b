"""The health of a run as it was judged while it went on, and the bands that it is drawn against."""

from datetime import datetime
from typing import Annotated

from django.http import HttpRequest
from ninja import Field, Query, Router, Schema

from console.api.problem import REFUSALS, RequestProblem
from console.api.visible import caller, project_for, run_for
from console.labels.health import finding_title
from jobs.diagnosis.bands import Band, BandRefused, bands_of, set_bands
from jobs.diagnosis.health import BAND
from jobs.models import HealthMark, Project

router = Router(tags=["runs"])
projects = Router(tags=["projects"])


class BandOut(Schema):
    """Where a metric usually is, both ends null for no band; `is_own`: the project has set it, for the runs of
    `algorithm` alone where that is not "".
    """

    metric: str
    algorithm: str
    low: float | None
    high: float | None
    source: str
    is_own: bool


class MarkOut(Schema):
    """Steps over which something held: a symptom, or a metric outside of the project's own band."""

    finding: str = Field(description="Id of the symptom; `band:` and the metric for a band of the project")
    title: str
    tone: str = Field(description="alarm or good")
    begin_step: int
    end_step: int | None = Field(description="null: it holds still")
    evidence: str
    began_at: datetime
    ended_at: datetime | None


class HealthOut(Schema):
    """The marks of a run in the order of steps, judged through `judged_step`."""

    judged_step: int
    judged_at: datetime | None
    marks: list[MarkOut]


class BandsIn(Schema):
    """The project's own bands by metric: [least, most], [] for none, null for that of the dictionary again."""

    model_config = {"extra": "forbid"}

    bands: dict[str, list[float] | None]
    algorithm: str = Field("", max_length=200, description="For runs of this algorithm alone; else for all")


class BandsOut(Schema):
    """All bands of a project, by metric."""

    bands: list[BandOut]


@router.get("/{run_id}/health", response={200: HealthOut, **REFUSALS}, summary="Health of the run")
def read_health(request: HttpRequest, run_id: str) -> HealthOut:
    """Return what was found in the run's metrics, from which step to which; judged every ten seconds."""
    run = run_for(request, run_id)
    marks = HealthMark.objects.filter(run=run).order_by("begin_step", "pk")
    return HealthOut(judged_step=run.health_step, judged_at=run.health_at, marks=[_mark(mark) for mark in marks])


@projects.get("/{slug:project}/bands", response={200: BandsOut, **REFUSALS}, summary="Healthy bands")
def read_bands(
    request: HttpRequest,
    project: str,
    algorithm: Annotated[str, Query("", max_length=200, description="For runs of this algorithm; else for all")] = "",
) -> BandsOut:
    """Return the healthy bands of the project's charts: its own, and the dictionary's for other metrics."""
    return _bands(project_for(request, project), algorithm)


@projects.patch("/{slug:project}/bands", response={200: BandsOut, **REFUSALS}, summary="Set healthy bands")
def patch_bands(request: HttpRequest, project: str, body: BandsIn) -> BandsOut:
    """Set bands of the project's own; metrics that are not named stay. Runs that leave one get a mark. Admins only."""
    home = project_for(request, project, "admin")
    try:
        set_bands(project=home, raw=body.bands, user=caller(request), algorithm=body.algorithm)
    except BandRefused as error:
        field = error.field if error.field == "algorithm" else f"bands.{error.field}"
        raise RequestProblem(422, str(error), field=field) from error
    return _bands(home, body.algorithm)


def _mark(mark: HealthMark) -> MarkOut:
    return MarkOut(
        finding=mark.finding,
        title=finding_title(mark.finding, band_prefix=BAND),
        tone=mark.tone,
        begin_step=mark.begin_step,
        end_step=mark.end_step,
        evidence=mark.text,
        began_at=mark.began_at,
        ended_at=mark.ended_at,
    )


def _bands(project: Project, algorithm: str) -> BandsOut:
    return BandsOut(bands=[_band(band) for band in bands_of(project, algorithm).values()])


def _band(band: Band) -> BandOut:
    return BandOut(
        metric=band.metric,
        algorithm=band.algorithm,
        low=band.low,
        high=band.high,
        source=band.source,
        is_own=band.is_own,
    )
