"""Lists of runs: completion of the filter line, verbs on many runs, and saved views."""

from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any, Literal

from django.http import Http404, HttpRequest
from django.utils import timezone
from django.utils.translation import gettext as _
from ninja import Field, Query, Router, Schema, Status

from console.api.problem import EXPENSIVE, REFUSALS, RequestProblem
from console.api.visible import ProjectSlug, caller, project_for
from console.budget import expensive
from jobs.models import SavedView
from jobs.retention.bulk import AT_ONCE, change_runs
from jobs.runs.filter import FilterInvalid, parse_filter
from jobs.runs.find.completion import complete
from jobs.runs.find.language import MAX_CHARS
from jobs.runs.find.saved import delete_view, save_view, views_of
from jobs.runs.queries import matching_ids

router = Router(tags=["runs"])
projects = Router(tags=["runs"])
Place = Literal["all", "running", "failed", "mine", "archived"]
Verb = Literal["tag", "untag", "archive", "restore", "stop", "undo_stop", "delete", "undelete"]
_MAX_ID = 2**62


class SuggestionOut(Schema):
    """What to put in place of the piece that is typed."""

    text: str
    about: str


class CompletionOut(Schema):
    """Suggestions for characters `start` to `end` of the line."""

    start: int
    end: int
    suggestions: list[SuggestionOut]


class BulkIn(Schema):
    """A verb and the runs it is for: these ids, or all that a filter lets through."""

    model_config = {"extra": "forbid"}

    verb: Verb
    ids: list[Annotated[str, Field(max_length=40)]] = Field(
        [], max_length=AT_ONCE, description="Of one project; leave out for the filter"
    )
    q: str = Field("", max_length=MAX_CHARS, description=f"A filter that lets at most {AT_ONCE} runs through")
    archived: bool = Field(False, description="The filter looks at the archived runs")
    tags: list[Annotated[str, Field(max_length=200)]] = Field([], max_length=20, description="For tag and untag")
    is_dry_run: bool = Field(False, description="Change nothing, and return the runs that it would be asked of")


class BulkRefusalOut(Schema):
    """A run that was not changed, and why."""

    id: str
    name: str
    message: str


class BulkStepOut(Schema):
    """A verb on runs, with the tags that it is about: send it to undo."""

    verb: str
    tags: list[str]
    ids: list[str]


class BulkOut(Schema):
    """Runs that were changed, runs that refused, and the steps that take it back."""

    done: list[str]
    refused: list[BulkRefusalOut]
    undo: list[BulkStepOut]


class ViewIn(Schema):
    """A view to keep; one of that name is replaced."""

    model_config = {"extra": "forbid"}

    name: str = Field(max_length=200)
    is_shared: bool = Field(False, description="For the whole project, not for you alone; needs an editor")
    view: Place = "all"
    q: str = Field("", max_length=MAX_CHARS)
    sort: str = Field("-started", max_length=200)
    columns: list[Annotated[str, Field(max_length=200)]] = Field([], max_length=100)


class ViewOut(Schema):
    """A kept view; `address` shows it on the page."""

    id: int
    name: str
    is_shared: bool
    view: str
    q: str
    sort: str
    columns: list[str]
    address: str
    created_at: datetime


class ViewsOut(Schema):
    """The project's views and yours."""

    views: list[ViewOut]


@router.get("/complete", response={200: CompletionOut, **REFUSALS}, summary="Complete a filter")
def complete_filter(
    request: HttpRequest,
    project: ProjectSlug = None,
    q: Annotated[str, Query(max_length=MAX_CHARS, description="The line")] = "",
    at: Annotated[int | None, Query(ge=0, le=MAX_CHARS, description="Characters before the cursor; else all")] = None,
) -> CompletionOut:
    """Return names, or the values that the project's runs have, that may stand at the cursor."""
    home = project_for(request, project)
    line = q.replace("\0", "")
    completion = complete(home, line, len(line) if at is None else min(at, len(line)))
    return CompletionOut.model_validate(asdict(completion))


@router.post("/change", response={200: BulkOut, **EXPENSIVE}, summary="Change many runs")
@expensive
def change_many(request: HttpRequest, body: BulkIn, project: ProjectSlug = None) -> BulkOut:
    """Do a verb to many runs of a project, each by itself."""
    home = project_for(request, project, "editor")
    if bool(body.ids) == bool(body.q.strip()):
        raise RequestProblem(422, _("Name the runs by ids, or by a filter (q): one of both."), field="ids")
    ids = list(dict.fromkeys(run_id.replace("\0", "") for run_id in body.ids)) or _matching(request, home, body)
    if body.is_dry_run:
        return BulkOut(done=ids, refused=[], undo=[])
    done = change_runs(project=home, verb=body.verb, ids=ids, tags=body.tags, user=caller(request), now=timezone.now())
    return BulkOut.model_validate(asdict(done))


@projects.get("/{slug:project}/run-views", response={200: ViewsOut, **REFUSALS}, summary="Saved views of runs")
def list_run_views(request: HttpRequest, project: str) -> ViewsOut:
    """Return the project's views and your own of it."""
    home = project_for(request, project)
    return ViewsOut(views=[_view(one) for one in views_of(home, request.user)])


@projects.post("/{slug:project}/run-views", response={201: ViewOut, **REFUSALS}, summary="Save a view of runs")
def keep_run_view(request: HttpRequest, project: str, body: ViewIn) -> Status[ViewOut]:
    """Keep a filter, an order and columns under a name."""
    home = project_for(request, project, "editor" if body.is_shared else "viewer")
    body_values = body.model_dump()
    try:
        saved = save_view(project=home, user=caller(request), query=body_values.pop("q"), **body_values)
    except FilterInvalid as error:
        raise RequestProblem(422, str(error), field=error.field) from error
    return Status(201, _view(saved))


@projects.delete(
    "/{slug:project}/run-views/{int:view_id}", response={204: None, **REFUSALS}, summary="Delete a view of runs"
)
def delete_run_view(request: HttpRequest, project: str, view_id: int) -> Any:
    """Delete your own view, or as an editor the project's."""
    home = project_for(request, project)
    if view_id > _MAX_ID or not delete_view(home, view_id, request.user):
        raise Http404
    return Status(204, None)


def _matching(request: HttpRequest, home: Any, body: BulkIn) -> list[str]:
    try:
        filters = parse_filter(q=body.q, username=caller(request).get_username(), is_archived=body.archived)
    except FilterInvalid as error:
        raise RequestProblem(422, str(error), field=error.field) from error
    ids = matching_ids(home, filters, most=AT_ONCE + 1)
    if len(ids) > AT_ONCE:
        text = _("The filter lets more than %(most)s runs through. Narrow it, or name up to %(most)s ids at a time.")
        raise RequestProblem(422, text % {"most": AT_ONCE}, field="q")
    return ids


def _view(saved: SavedView) -> ViewOut:
    return ViewOut(
        id=saved.pk,
        name=saved.name,
        is_shared=saved.owner_id is None,
        view=saved.view,
        q=saved.query,
        sort=saved.sort,
        columns=saved.columns,
        address=f"/runs?saved={saved.pk}",
        created_at=saved.created_at,
    )
