"""Sweeps: launch, list, read, stop, and how many run at once."""

from typing import Annotated, Any

from django.conf import settings
from django.http import Http404, HttpRequest
from django.utils import timezone
from ninja import Field, Header, Query, Router, Schema, Status

from console.api.problem import REFUSALS, RequestProblem
from console.api.runs.spec_schema import SpecIn
from console.api.visible import ProjectSlug, caller, project_for
from console.sweep_launch import launch_sweep, run_ids
from jobs.accounts.access import Role, require
from jobs.catalog.spec.parse import SpecInvalid
from jobs.models import Study
from jobs.runs.launch import MAX_KEY_LENGTH
from jobs.sweeps.importance import KnobImportance
from jobs.sweeps.plan import MAX_KNOBS, MAX_RUNS
from jobs.sweeps.sweeps import change_max_concurrent, stop_study
from jobs.sweeps.table import PAGE_SIZE, StudyHeader, StudyRow, StudyTable, studies_of, study_table, table_importance

router = Router(tags=["sweeps"])


class StudyIn(Schema):
    """A sweep. What is allowed is checked in one place for page, API and command line, so types here only document."""

    model_config = {"extra": "forbid"}

    spec: SpecIn = Field(description="The run that every point starts from; its name is the sweep's")
    sweep: Any = Field(
        description=f'`knobs`: 1 to {MAX_KNOBS} of {{"id", "values": [...]}} or {{"id", "low", "high", "scale": '
        f'"linear" | "log"}} · `method`: grid (default) or random · `num_runs`: up to {MAX_RUNS}; a grid without it '
        "takes every point · `max_concurrent`: so many run at once (1) · `seed`: of what is drawn (0)"
    )


class StudyPatchIn(Schema):
    """What may be changed of a sweep."""

    model_config = {"extra": "forbid"}

    max_concurrent: Any = Field(description=f"So many of its runs may be live at once, 1 to {MAX_RUNS}")


class StudyLaunchedOut(Schema):
    """The sweep a POST made, or made before with the same Idempotency-Key."""

    study: StudyHeader
    runs: list[str] = Field(description="Ids of its runs, in the order of its points")
    url: str = Field(description="The sweep's page")


class StudiesOut(Schema):
    """One page of sweeps, newest first."""

    studies: list[StudyHeader]
    total: int
    page: int


class StudyOut(Schema):
    """A sweep, its runs in the order of its points, what each knob explains of the order of their best values, and the
    metrics one can ask for.
    """

    study: StudyHeader
    runs: list[StudyRow]
    importance: list[KnobImportance]
    metrics: list[str]


class StudyStoppedOut(Schema):
    """How many runs a stop has stopped or canceled; 0 where none was waiting or running."""

    num_stopped: int
    study: StudyHeader


@router.post("", response={200: StudyLaunchedOut, 201: StudyLaunchedOut, **REFUSALS}, summary="Launch a sweep")
def launch_study(
    request: HttpRequest,
    body: StudyIn,
    project: ProjectSlug = None,
    idempotency_key: Annotated[str | None, Header(None, alias="Idempotency-Key", max_length=MAX_KEY_LENGTH)] = None,
) -> Status[Any]:
    """Queue a run for each point, all or none. With an `Idempotency-Key` a repeated request gives the first one's."""
    home = project_for(request, project, "editor")
    study, is_new = launch_sweep(
        spec=body.spec,
        sweep=body.sweep,
        project=home,
        user=caller(request),
        idempotency_key=idempotency_key,
        now=timezone.now(),
    )
    url = f"{settings.PUBLIC_URL}/tune/{study.pk}"
    answer = {"study": study_table(study).header, "runs": run_ids(study), "url": url}
    return Status(201 if is_new else 200, answer)


@router.get("", response={200: StudiesOut, **REFUSALS}, summary="List sweeps")
def list_studies(
    request: HttpRequest, project: ProjectSlug = None, page: Annotated[int, Query(1, ge=1, le=1_000_000)] = 1
) -> StudiesOut:
    """Return a page of a project's sweeps, newest first."""
    listed, total = studies_of(project_for(request, project), page=page, page_size=PAGE_SIZE)
    return StudiesOut(studies=listed, total=total, page=page)


@router.get("/{study_id}", response={200: StudyOut, **REFUSALS}, summary="Read a sweep")
def read_study(
    request: HttpRequest,
    study_id: str,
    metric: Annotated[
        str, Query("", description="What runs are judged by; the main metric without", max_length=120)
    ] = "",
) -> StudyOut:
    """Return the sweep with every run's values and the last and best value of the metric."""
    table = study_table(_study_for(request, study_id), metric_name=metric.replace("\0", ""))
    return _out(table)


@router.post("/{study_id}/stop", response={200: StudyStoppedOut, **REFUSALS}, summary="Stop a sweep")
def stop_all(request: HttpRequest, study_id: str) -> StudyStoppedOut:
    """Cancel its waiting runs; the running ones save a checkpoint and end. Asking twice changes nothing more."""
    study = _study_for(request, study_id, "editor")
    num_stopped = stop_study(study_id=study.pk, user=caller(request), now=timezone.now())
    study.refresh_from_db()
    return StudyStoppedOut(num_stopped=num_stopped, study=study_table(study).header)


@router.patch("/{study_id}", response={200: StudyHeader, **REFUSALS}, summary="Change how many run at once")
def change_study(request: HttpRequest, study_id: str, changes: StudyPatchIn) -> StudyHeader:
    """Let more or fewer runs be live at once; what runs goes on."""
    study = _study_for(request, study_id, "editor")
    try:
        change_max_concurrent(study_id=study.pk, value=changes.max_concurrent, user=caller(request))
    except SpecInvalid as error:
        raise RequestProblem(422, error.problems[0].message, field="max_concurrent") from error
    study.refresh_from_db()
    return study_table(study).header


def _study_for(request: HttpRequest, study_id: str, needed: Role = "viewer") -> Study:
    study = Study.objects.select_related("project", "created_by").filter(pk=study_id.replace("\0", "")).first()
    if study is None:
        raise Http404
    require(request.user, study.project, needed)
    return study


def _out(table: StudyTable) -> StudyOut:
    importance = table_importance(table)
    return StudyOut(study=table.header, runs=list(table.rows), importance=importance, metrics=list(table.metrics))
