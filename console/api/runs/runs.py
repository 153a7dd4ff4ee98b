"""Runs: launch, find, read, change, delete."""

from collections.abc import Mapping
from typing import Annotated, Any

from django.conf import settings
from django.http import HttpRequest, StreamingHttpResponse
from django.urls import reverse
from django.utils import timezone
from ninja import Body, Header, Query, Router, Status
from pydantic import JsonValue

from console.api.problem import EXPENSIVE, REFUSALS, RequestProblem
from console.api.runs.schema import (
    ArtifactOut,
    ArtifactsOut,
    DeletionOut,
    DoneOut,
    EventOut,
    EventsOut,
    LaunchedOut,
    RunPatchIn,
    RunRowOut,
    RunsOut,
    TrainerCommandOut,
    deletion_out,
)
from console.api.runs.spec_schema import SpecIn
from console.api.visible import ProjectSlug, caller, page_of, project_for, run_for
from console.budget import expensive
from console.downloads.csv_response import csv_answer
from console.downloads.kept import keep_download
from console.trainer_command import command_of
from jobs.catalog.spec.parse import SpecInvalid, parse_spec
from jobs.models import Artifact, Run
from jobs.processes import tasks
from jobs.retention.deletion import delete_runs
from jobs.runs import lifecycle
from jobs.runs.annotate import ChangeRefused, annotate_run
from jobs.runs.checkpoints import lost_checkpoints
from jobs.runs.checks import check_launchable, parse_for_cluster
from jobs.runs.environment import split_secrets
from jobs.runs.filter import FilterInvalid, RunFilter, check_sort, parse_filter
from jobs.runs.launch import MAX_KEY_LENGTH, create_run, launched_before, parent_of
from jobs.runs.notes import WRITTEN
from jobs.runs.queries import MAX_PAGE_SIZE, PAGE_SIZE, RunHeader, project_counts, run_header, runs_csv, runs_list
from jobs.runs.stored_sentences import say_stored
from jobs.telemetry.attempt_spec import latest_spec_json

router = Router(tags=["runs"])

States = Annotated[list[str] | None, Query(None, description="Any of these states")]
Algorithms = Annotated[list[str] | None, Query(None, description="Any of these algorithms")]
Tags = Annotated[list[str] | None, Query(None, description="All of these tags")]
Words = Annotated[
    str, Query("", description="The filter line: words, state:failed, lr>1e-4, reward/mean>=0.6, tag:x, -, or, ( )")
]
Archived = Annotated[bool, Query(False, description="The archived runs instead of the others")]
Sort = Annotated[str, Query("-created", description="A column, knob or metric; - first for descending")]
Page = Annotated[int, Query(1, ge=1, le=1_000_000)]
_EVENTS_PER_PAGE = 100


@router.post("", response={200: LaunchedOut, 201: LaunchedOut, **REFUSALS}, summary="Launch a run")
def launch_run(
    request: HttpRequest,
    spec: Annotated[SpecIn, Body()],
    project: ProjectSlug = None,
    idempotency_key: Annotated[str | None, Header(None, alias="Idempotency-Key", max_length=MAX_KEY_LENGTH)] = None,
    parent: Annotated[str, Query("", description="Id of the run that this one is a clone of", max_length=16)] = "",
) -> Status[Any]:
    """Queue a run of this spec. With an `Idempotency-Key` a repeated request gives the first one's run and 200.

    `environment.secrets` may be an object here: name to value, or to null for a secret that the project keeps. Values
    are encrypted, and no answer has them. What is left out takes its default; an empty spec is the default run, and
    `note` says so.
    """
    home = project_for(request, project, "editor")
    checked, secrets = parse_for_cluster(spec), split_secrets(spec)[1]
    origin = parent_of(home, parent)
    if parent and origin is None:
        raise RequestProblem(404, f"The project has no run {parent!r}.", field="parent")
    if not launched_before(project=home, idempotency_key=idempotency_key):
        problems = check_launchable(checked, home, caller(request), secrets=secrets)
        if problems:
            raise SpecInvalid(problems)
    run, is_new = create_run(
        project=home,
        spec=checked,
        user=caller(request),
        idempotency_key=idempotency_key,
        now=timezone.now(),
        secrets=secrets,
        parent=origin,
    )
    if is_new:
        tasks.enqueue(tasks.submit, run_id=run.pk)
    run.refresh_from_db()
    note = "" if spec else f"The spec says nothing: this is the default run, {run.name}, of {run.num_steps:,} steps."
    answer = {"run": run_header(run), "url": f"{settings.PUBLIC_URL}/runs/{run.pk}", "note": note}
    return Status(201 if is_new else 200, answer)


@router.get("", response={200: RunsOut, **REFUSALS}, summary="List runs")
def list_runs(
    request: HttpRequest,
    project: ProjectSlug = None,
    q: Words = "",
    state: States = None,
    algorithm: Algorithms = None,
    tag: Tags = None,
    archived: Archived = False,
    sort: Sort = "-created",
    column: Annotated[list[str] | None, Query(None, description="Knobs to return with each run")] = None,
    page: Page = 1,
    page_size: Annotated[int, Query(PAGE_SIZE, ge=1, le=MAX_PAGE_SIZE)] = PAGE_SIZE,
) -> RunsOut:
    """Return a page of a project's runs, newest first unless `sort` says otherwise."""
    home = project_for(request, project)
    filters = _filter(request, q, state, algorithm, tag, archived)
    try:
        listed = runs_list(home, filters, sort, page, page_size=page_size, columns=column or ())
    except FilterInvalid as error:
        raise RequestProblem(422, str(error), field=error.field) from error
    states, tags = project_counts(home, is_archived=archived)
    return RunsOut(
        runs=[RunRowOut(run=row.header, knobs=dict(row.knobs)) for row in listed.rows],
        total=listed.total,
        is_counted=listed.is_counted,
        page=listed.page,
        num_pages=listed.num_pages,
        page_size=listed.page_size,
        states=states,
        tags=tags,
    )


@router.get(
    "/export.csv",
    response={200: None, **EXPENSIVE},
    summary="Runs as CSV",
    openapi_extra={"responses": {200: {"description": "CSV", "content": {"text/csv": {"schema": {"type": "string"}}}}}},
)
@expensive
def list_runs_csv(
    request: HttpRequest,
    project: ProjectSlug = None,
    q: Words = "",
    state: States = None,
    algorithm: Algorithms = None,
    tag: Tags = None,
    archived: Archived = False,
    sort: Sort = "-created",
) -> StreamingHttpResponse:
    """Return all runs that pass the filter with every knob and last metric."""
    home = project_for(request, project)
    lines = runs_csv(home, _filter(request, q, state, algorithm, tag, archived), _sort(sort))
    keep_download(request, "project", home.slug, f"{home.slug}-runs.csv")
    return csv_answer(lines, name=f"{home.slug}-runs.csv")


@router.get("/{run_id}", response={200: RunHeader, **REFUSALS}, summary="Read a run")
def read_run(request: HttpRequest, run_id: str) -> RunHeader:
    """Return the run's header."""
    return run_header(run_for(request, run_id))


@router.patch("/{run_id}", response={200: RunHeader, **REFUSALS}, summary="Rename, tag, note, archive")
def change_run(request: HttpRequest, run_id: str, changes: RunPatchIn) -> RunHeader:
    """Change what people may change of a run; all of it or, with a problem, none."""
    run = run_for(request, run_id, "editor")
    chosen = {k: v for k, v in changes.model_dump(exclude_unset=True).items() if v is not None}
    try:
        return run_header(annotate_run(run_id=run.pk, changes=chosen, user=caller(request), now=timezone.now()))
    except ChangeRefused as error:
        raise RequestProblem(409 if error.is_conflict else 422, str(error), field=error.field) from error


@router.delete("/{run_id}", response={200: DeletionOut, **REFUSALS}, summary="Delete a run into the trash")
def remove_run(
    request: HttpRequest,
    run_id: str,
    stop: Annotated[bool, Query(False, description="A live one is stopped first, and goes when it has ended")] = False,
) -> DeletionOut:
    """Move the run to the trash, from where it can be taken back: admins, and editors whose own run it is."""
    run = run_for(request, run_id, "editor")
    done = delete_runs(runs=[run], user=caller(request), stop=stop, now=timezone.now())[0]
    if done.outcome == "refused":
        raise RequestProblem(409 if done.is_allowed else 403, done.message, field="state")
    return deletion_out(done)


@router.post("/{run_id}/checkpoint", response={200: DoneOut, **REFUSALS}, summary="Save a checkpoint")
def checkpoint_run(request: HttpRequest, run_id: str) -> DoneOut:
    """Ask a running run to save a checkpoint after its step."""
    run = run_for(request, run_id, "editor")
    if not lifecycle.request_checkpoint(run_id=run.pk, user=caller(request), now=timezone.now()):
        raise RequestProblem(
            409, f"{run.name} is {run.state}. Only a running run can save a checkpoint.", field="state"
        )
    return DoneOut(is_changed=True, run=run_header(run))


@router.get("/{run_id}/spec", response={200: dict[str, JsonValue], **REFUSALS}, summary="The run's spec")
def read_spec(request: HttpRequest, run_id: str) -> dict[str, JsonValue]:
    """Return the complete spec, with what a resume changed of it; launching it again makes the same run."""
    return latest_spec_json(run_for(request, run_id))


@router.get("/{run_id}/events", response={200: EventsOut, **REFUSALS}, summary="The run's history")
def list_events(request: HttpRequest, run_id: str, page: Page = 1) -> EventsOut:
    """Return changes of state, commands, notes and checkpoints, newest first."""
    run = run_for(request, run_id)
    rows, total = page_of(run.events.select_related("actor").order_by("-at", "-pk"), page=page, size=_EVENTS_PER_PAGE)
    events = [
        EventOut(
            id=e.pk,
            at=e.at,
            attempt=e.attempt,
            verb=e.verb,
            text=e.text if e.verb == WRITTEN else say_stored(e.text),
            step=e.step,
            actor=e.actor.get_username() if e.actor else "",
            data=e.data,
        )
        for e in rows
    ]
    return EventsOut(events=events, total=total, page=page)


@router.get("/{run_id}/artifacts", response={200: ArtifactsOut, **REFUSALS}, summary="Files the run left")
def list_artifacts(request: HttpRequest, run_id: str) -> ArtifactsOut:
    """Return models, checkpoints, traces and TensorBoard folders, oldest first."""
    run = run_for(request, run_id)
    lost = lost_checkpoints(run.attempts.order_by("number"))
    return ArtifactsOut(artifacts=[_artifact(run, row, lost) for row in run.artifacts.order_by("pk")])


@router.get(
    "/{run_id}/trainer-command",
    response={200: TrainerCommandOut, **REFUSALS},
    summary="What the trainer is started with",
)
def read_trainer_command(request: HttpRequest, run_id: str) -> TrainerCommandOut:
    """Return the command of the latest attempt, byte for byte, and the same as a shell script with files and env."""
    run = run_for(request, run_id)
    attempt = run.attempts.get(number=run.latest_attempt)
    command = command_of(parse_spec(latest_spec_json(run)), attempt)
    return TrainerCommandOut(argv=list(command.argv), shell=command.shell, problem=command.problem)


def _artifact(run: Run, row: Artifact, lost: Mapping[tuple[int, int], str]) -> ArtifactOut:
    return ArtifactOut(
        id=row.pk,
        name=row.name,
        type=row.type,
        attempt=row.attempt,
        step=row.step,
        size=row.size,
        received=row.received,
        sha256=row.sha256,
        is_ready=row.is_ready,
        problem=lost.get((row.attempt, row.step), "") if row.type == "checkpoint" else "",
        meta=row.meta,
        created_at=row.created_at,
        download_url=reverse("run-file", args=[run.pk, row.pk]) if row.is_ready else None,
    )


def _filter(request: HttpRequest, q: str, state: Any, algorithm: Any, tag: Any, archived: bool) -> RunFilter:
    chosen = {"states": state or (), "algorithms": algorithm or (), "tags": tag or ()}
    try:
        return parse_filter(q=q, username=caller(request).get_username(), is_archived=archived, **chosen)
    except FilterInvalid as error:
        raise RequestProblem(422, str(error), field=error.field) from error


def _sort(sort: str) -> str:
    try:
        check_sort(sort)
    except FilterInvalid as error:
        raise RequestProblem(422, str(error), field=error.field) from error
    return sort
