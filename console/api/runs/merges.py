"""Make models of checkpoints."""

from datetime import datetime

from django.http import Http404, HttpRequest
from django.utils import timezone
from ninja import Router, Schema, Status

from console.api.problem import REFUSALS, RequestProblem
from console.api.runs.attempts import Ordinal
from console.api.visible import caller, run_for
from jobs.models import Merge
from jobs.processes import tasks
from jobs.runs.annotate import ChangeRefused
from jobs.runs.merges import cancel_merge, delete_model, request_merge

router = Router(tags=["runs"])

_SHOWN = 200


class MergeOut(Schema):
    """A model that is made of a checkpoint.

    `state` is queued, starting (it is being made), finished, failed with the reason `problem`, or canceled;
    `artifact_id` is the model's file once it is here, null again after that was deleted.
    """

    id: int
    attempt: int
    step: int
    state: str
    problem: str
    artifact_id: int | None
    author: str
    created_at: datetime
    ended_at: datetime | None


class MergesOut(Schema):
    """The newest merges first."""

    merges: list[MergeOut]


@router.post(
    "/{run_id}/checkpoints/{attempt}/{step}/merge",
    response={201: MergeOut, **REFUSALS},
    summary="Make a model of a checkpoint",
)
def post_merge(request: HttpRequest, run_id: str, attempt: Ordinal, step: Ordinal) -> Status[MergeOut]:
    """Queue a short job that makes a Hugging Face folder of the checkpoint by the trainer's own program.

    It runs on the checkpoint's node as soon as a CPU is free. The model arrives among the run's files, to be tried and
    downloaded like the one that a run leaves at its end. Follow it with GET merges.
    """
    run = run_for(request, run_id, "editor")
    try:
        merge = request_merge(run_id=run.pk, attempt=attempt, step=step, user=caller(request), now=timezone.now())
    except ChangeRefused as error:
        raise RequestProblem(409 if error.is_conflict else 422, str(error), field=error.field) from error
    tasks.enqueue(tasks.make_model, merge_id=merge.pk)
    merge.refresh_from_db()
    return Status(201, _merge(merge))


@router.get("/{run_id}/merges", response={200: MergesOut, **REFUSALS}, summary="Models made of checkpoints")
def list_merges(request: HttpRequest, run_id: str) -> MergesOut:
    """Return the newest 200 models that people have asked for, and what came of them."""
    run = run_for(request, run_id)
    rows = Merge.objects.filter(run=run).select_related("created_by").order_by("-pk")[:_SHOWN]
    return MergesOut(merges=[_merge(row) for row in rows])


@router.delete(
    "/{run_id}/merges/{int:merge_id}",
    response={200: MergeOut, **REFUSALS},
    summary="Cancel a merge, or delete its model",
)
def delete_merge(request: HttpRequest, run_id: str, merge_id: int) -> MergeOut:
    """End the making of a model, and keep nothing of it; of a finished one, delete the model.

    409 if it failed or was canceled, or its model is gone already or being asked a prompt.
    """
    run = run_for(request, run_id, "editor")
    merge = Merge.objects.filter(run=run, pk=merge_id).first() if merge_id < 2**62 else None
    if merge is None:
        raise Http404
    end = delete_model if merge.state == "finished" else cancel_merge
    try:
        end(merge=merge, user=caller(request), now=timezone.now())
    except ChangeRefused as error:
        raise RequestProblem(409, str(error), field=error.field) from error
    merge.refresh_from_db()
    return _merge(merge)


def _merge(row: Merge) -> MergeOut:
    return MergeOut(
        id=row.pk,
        attempt=row.attempt,
        step=row.step,
        state=row.state,
        problem=row.problem,
        artifact_id=row.artifact_id,
        author=row.created_by.get_username() if row.created_by else "",
        created_at=row.created_at,
        ended_at=row.ended_at,
    )
