"""Delete runs into the trash, and what becomes of what is there."""

from datetime import datetime
from typing import Annotated, Any, Literal

from django.http import Http404, HttpRequest
from django.utils import timezone
from django.utils.translation import gettext as _
from ninja import Field, Query, Router, Schema, Status

from console.api.problem import REFUSALS, RequestProblem
from console.api.runs.schema import DeletionOut, DeletionsOut, deletion_out
from console.api.visible import ProjectSlug, caller, project_for
from jobs.accounts.access import NotAllowed, projects_of
from jobs.models import Run, TrashItem
from jobs.retention.deletion import MOST_RUNS, delete_runs, may_change, purge_now, restore
from jobs.retention.trash import entries_of, trash_of
from jobs.runs.annotate import ChangeRefused

runs_router = Router(tags=["runs"])
router = Router(tags=["trash"])
_MAX_ID = 2**62


class DeletionsIn(Schema):
    """The runs to delete."""

    model_config = {"extra": "forbid"}

    ids: list[Annotated[str, Field(max_length=40)]] = Field(min_length=1, max_length=MOST_RUNS)
    stop: bool = Field(False, description="Stop those that are live first; they go to the trash when they have ended")
    is_dry_run: bool = Field(False, description="Change nothing, and say what would become of each")


class TrashEntryOut(Schema):
    """One thing in the trash; bytes of the console and on the cluster.

    `state`: waiting for its run to stop, kept until `purge_at`, or purging: it cannot come back.
    """

    id: int
    kind: Literal["run", "logs", "samples", "capture", "checkpoints"]
    run_id: str
    run_name: str
    capture_id: str
    num_things: int
    bytes_here: int
    bytes_cluster: int
    state: Literal["waiting", "kept", "purging"]
    is_by_rule: bool
    author: str
    created_at: datetime
    purge_at: datetime
    problem: str
    may_change: bool


class TrashOut(Schema):
    """A page of the trash, the newest first."""

    entries: list[TrashEntryOut]
    total: int
    page: int
    num_pages: int
    bytes_here: int
    bytes_cluster: int


@runs_router.post("/delete", response={200: DeletionsOut, **REFUSALS}, summary="Delete runs into the trash")
def remove_runs(request: HttpRequest, body: DeletionsIn) -> DeletionsOut:
    """Move runs to the trash, each by itself, and say of each what became of it."""
    ids = list(dict.fromkeys(run_id.replace("\0", "") for run_id in body.ids))
    rows = Run.objects.select_related("project", "created_by").filter(project__in=projects_of(request.user))
    by_id = rows.in_bulk(ids)
    runs = [by_id[run_id] for run_id in ids if run_id in by_id]
    results = delete_runs(
        runs=runs, user=caller(request), stop=body.stop, now=timezone.now(), is_dry_run=body.is_dry_run
    )
    done = {each.id: deletion_out(each) for each in results}
    text = _("There is no such run, or you have no access to it.")
    unknown: dict[str, Any] = {"name": "", "bytes_here": 0, "bytes_cluster": 0, "outcome": "refused", "message": text}
    return DeletionsOut(runs=[done.get(i) or DeletionOut(id=i, purge_at=None, **unknown) for i in ids])


@router.get("", response={200: TrashOut, **REFUSALS}, summary="What is in the trash")
def list_trash(
    request: HttpRequest, project: ProjectSlug = None, page: Annotated[int, Query(1, ge=1, le=1_000_000)] = 1
) -> TrashOut:
    """Return what was deleted in a project and can still be taken back, or is being deleted for good."""
    return TrashOut.from_orm(trash_of(project_for(request, project), request.user, page=page))


@router.post("/{item_id}/restore", response={200: TrashEntryOut, **REFUSALS}, summary="Take back out of the trash")
def restore_item(request: HttpRequest, item_id: int) -> TrashEntryOut:
    """Undo the deletion; return the entry that was there. A run that was still to stop is stopped all the same."""
    item = _item(request, item_id)
    shown = _entry(request, item)
    try:
        restore(item_id=item.pk, user=caller(request), now=timezone.now())
    except TrashItem.DoesNotExist as error:
        raise Http404 from error
    except ChangeRefused as error:
        raise RequestProblem(409, str(error), field=error.field) from error
    return shown


@router.delete("/{item_id}", response={202: TrashEntryOut, **REFUSALS}, summary="Delete from the trash for good")
def purge_item(
    request: HttpRequest, item_id: int, confirm: Annotated[str, Query(description="The run's name")]
) -> Status[TrashEntryOut]:
    """Let it be deleted for good now instead of at `purge_at`: rows, files, and folders on the cluster follow."""
    item = _item(request, item_id)
    try:
        item = purge_now(item_id=item.pk, confirmed_name=confirm, user=caller(request), now=timezone.now())
    except TrashItem.DoesNotExist as error:
        raise Http404 from error
    except ChangeRefused as error:
        raise RequestProblem(409 if error.is_conflict else 422, str(error), field=error.field) from error
    return Status(202, _entry(request, item))


def _item(request: HttpRequest, item_id: int) -> TrashItem:
    """Return something in the trash that the caller may change. Raises: Http404, NotAllowed."""
    rows = TrashItem.objects.select_related("project", "created_by").filter(project__in=projects_of(request.user))
    item = rows.filter(pk=item_id).first() if abs(item_id) < _MAX_ID else None
    if item is None:
        raise Http404
    if not may_change(request.user, item):
        raise NotAllowed("Only an admin of the project, or an editor whose run it is, may do this.", is_member=True)
    return item


def _entry(request: HttpRequest, item: TrashItem) -> TrashEntryOut:
    return TrashEntryOut.from_orm(entries_of([item], item.project, request.user)[0])
