"""Stop a run and take that back; start an ended one again: which checkpoints there are, from which one it goes on."""

import json
from datetime import timedelta
from typing import Annotated

from django.http import HttpRequest
from django.utils import timezone
from django.utils.translation import gettext as _
from ninja import Field, Path, Query, Router, Schema, Status
from pydantic import JsonValue

from console.api.problem import REFUSALS, RequestProblem
from console.api.runs.schema import DoneOut, StoppedOut
from console.api.visible import caller, run_for
from jobs.cluster.ray_api import cluster_state
from jobs.models import Run
from jobs.processes import tasks
from jobs.runs import lifecycle
from jobs.runs.annotate import ChangeRefused
from jobs.runs.checkpoints import Checkpoint, list_checkpoints
from jobs.runs.checks import check_cluster
from jobs.runs.pins import pin_checkpoint
from jobs.runs.queries import RunHeader, run_header
from jobs.runs.resume import ResumeRefused, resume_run, resumed_spec
from jobs.runs.undo_stop import undo_stop
from jobs.telemetry.attempt_spec import latest_spec_json

router = Router(tags=["runs"])

_MAX_INT32 = 2**31 - 1
Ordinal = Annotated[int, Path(ge=0, le=_MAX_INT32)]


class CheckpointsOut(Schema):
    """The checkpoints that a run can go on from, newest first, and what it would run with as it is."""

    checkpoints: list[Checkpoint]
    hardware: dict[str, JsonValue] = Field(description="The hardware section of the latest attempt's spec")
    num_steps: int


class ResumeIn(Schema):
    """From which checkpoint, and what changes. What is left out stays as in the latest attempt."""

    # Unknown fields are refused by the operation, in words that say what may change.
    model_config = {"json_schema_extra": {"additionalProperties": False}}

    step: int | None = Field(
        description="Step of the checkpoint; null starts again from the start", ge=0, le=_MAX_INT32
    )
    attempt: int | None = Field(None, description="Whose checkpoint, where several attempts saved this step", ge=1)
    hardware: dict[str, JsonValue] = Field(default_factory=dict, description="Fields of the spec's hardware section")
    num_steps: int | None = Field(None, description="Train to this step (knob train.num_steps)")


class ResumedOut(Schema):
    """The run with its new attempt."""

    attempt: int
    run: RunHeader


@router.get("/{run_id}/checkpoints", response={200: CheckpointsOut, **REFUSALS}, summary="Checkpoints to resume from")
def get_checkpoints(request: HttpRequest, run_id: str) -> CheckpointsOut:
    """Return the checkpoints that were not deleted, of the run's history and of its dead branches.

    One that an attempt did not find, or found damaged, has a `problem`; it may be tried again once its node is back.
    """
    run = run_for(request, run_id)
    spec = latest_spec_json(run)
    return CheckpointsOut(
        checkpoints=list(list_checkpoints(run)),
        hardware=spec.get("hardware", {}),
        num_steps=run.num_steps,
    )


class PinIn(Schema):
    """Whether the trainer must keep it."""

    model_config = {"extra": "forbid"}

    is_pinned: bool


@router.put(
    "/{run_id}/checkpoints/{attempt}/{step}/pin", response={200: DoneOut, **REFUSALS}, summary="Pin a checkpoint"
)
def put_pin(request: HttpRequest, run_id: str, attempt: Ordinal, step: Ordinal, body: PinIn) -> DoneOut:
    """Keep a checkpoint from being deleted for newer ones, or let it go again, while the run trains and after."""
    run = run_for(request, run_id, "editor")
    try:
        is_changed = pin_checkpoint(
            run_id=run.pk,
            attempt=attempt,
            step=step,
            is_pinned=body.is_pinned,
            user=caller(request),
            now=timezone.now(),
        )
    except ChangeRefused as error:
        raise RequestProblem(409 if error.is_conflict else 422, str(error), field=error.field) from error
    return DoneOut(is_changed=is_changed, run=run_header(run))


@router.post("/{run_id}/resume", response={201: ResumedOut, **REFUSALS}, summary="Start an ended run again")
def post_resume(request: HttpRequest, run_id: str, body: ResumeIn) -> Status[ResumedOut]:
    """Queue a new attempt of a run that has ended, from a checkpoint or from the start. Of many requests one does."""
    run = run_for(request, run_id, "editor")
    others = sorted(set(json.loads(request.body)) - set(ResumeIn.model_fields))
    if others:
        text = _("A resume changes hardware and num_steps only; for %(fields)s, clone the run.")
        raise RequestProblem(422, text % {"fields": ", ".join(others)[:200]}, field=others[0][:100])
    try:
        _check_fits(run, body)
        attempt = resume_run(
            run_id=run.pk,
            step=body.step,
            attempt=body.attempt,
            hardware=body.hardware,
            num_steps=body.num_steps,
            user=caller(request),
            now=timezone.now(),
        )
    except ResumeRefused as error:
        raise RequestProblem(_status(error), str(error), field=error.field) from error
    tasks.enqueue(tasks.submit, run_id=run.pk)
    run.refresh_from_db()
    return Status(201, ResumedOut(attempt=attempt.number, run=run_header(run)))


@router.post("/{run_id}/stop", response={200: StoppedOut, **REFUSALS}, summary="Stop or cancel a run")
def stop_run(
    request: HttpRequest,
    run_id: str,
    grace_seconds: Annotated[
        int, Query(0, ge=0, le=60, description="A run that is live goes on for so long, and the stop can be taken back")
    ] = 0,
) -> StoppedOut:
    """Cancel a queued run at once; let a running one save a checkpoint and end. Asking twice changes nothing more.

    What still can be taken back cannot any more after a second request without a grace.
    """
    run = run_for(request, run_id, "editor")
    now, grace = timezone.now(), timedelta(seconds=grace_seconds)
    is_changed = lifecycle.request_stop(run_id=run.pk, user=caller(request), now=now, grace=grace)
    run.refresh_from_db()
    is_waiting = is_changed and run.state == "stopping" and grace_seconds > 0
    return StoppedOut(is_changed=is_changed, run=run_header(run), undo_until=now + grace if is_waiting else None)


@router.delete("/{run_id}/stop", response={200: DoneOut, **REFUSALS}, summary="Take a stop back")
def delete_stop(request: HttpRequest, run_id: str) -> DoneOut:
    """Let a run go on whose stop has a grace that is not over; queue one again that had left the queue."""
    run = run_for(request, run_id, "editor")
    try:
        undo_stop(run_id=run.pk, user=caller(request), now=timezone.now())
    except ResumeRefused as error:
        raise RequestProblem(_status(error), str(error), field=error.field) from error
    tasks.enqueue(tasks.submit, run_id=run.pk)
    run.refresh_from_db()
    return DoneOut(is_changed=True, run=run_header(run))


def _status(error: ResumeRefused) -> int:
    """Return how HTTP calls it: not theirs to do, not now, or wrong in itself."""
    return 403 if error.needs_admin else 409 if error.is_conflict else 422


def _check_fits(run: Run, body: ResumeIn) -> None:
    """Refuse what this cluster can never hold, before anything is queued."""
    spec = resumed_spec(run_id=run.pk, hardware=body.hardware, num_steps=body.num_steps)
    for check in check_cluster(spec, cluster_state()):
        if check.state == "failed":
            raise ResumeRefused(check.field, check.text)
