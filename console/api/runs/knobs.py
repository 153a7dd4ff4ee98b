"""Knobs of a run that change while it trains."""

from django.http import HttpRequest
from django.utils import timezone
from ninja import Field, Router, Schema

from console.api.problem import REFUSALS, RequestProblem
from console.api.visible import caller, run_for
from jobs.catalog.value import Value
from jobs.runs.annotate import ChangeRefused
from jobs.runs.live_changes import LiveChange, LiveKnob, change_knobs, live_settings

router = Router(tags=["runs"])


class LiveSettingsOut(Schema):
    """What can change of the run now, and what did."""

    knobs: list[LiveKnob]
    changes: list[LiveChange] = Field(description="Oldest first")
    problem: str = Field(description="Why nothing can change now")
    refused: str = Field(description="By which sentence the trainer refused the last request")


class KnobsIn(Schema):
    """The knobs to go on with, by id; all of them change before the same step, or none."""

    model_config = {"extra": "forbid"}

    knobs: dict[str, Value]


class KnobsChangedOut(Schema):
    """What was asked for; False where all of it is so already, or was asked for before."""

    is_changed: bool
    settings: LiveSettingsOut


@router.get("/{run_id}/knobs", response={200: LiveSettingsOut, **REFUSALS}, summary="Knobs that can change")
def read_live_knobs(request: HttpRequest, run_id: str) -> LiveSettingsOut:
    """Return the knobs that the run takes another value of while it trains, and all changes so far."""
    return LiveSettingsOut.from_orm(live_settings(run_for(request, run_id)))


@router.post("/{run_id}/knobs", response={200: KnobsChangedOut, **REFUSALS}, summary="Change knobs of a running run")
def change_live_knobs(request: HttpRequest, run_id: str, body: KnobsIn) -> KnobsChangedOut:
    """Ask a running run to go on with other values, from its next step on. Asking twice changes nothing more."""
    run = run_for(request, run_id, "editor")
    try:
        differing = change_knobs(run_id=run.pk, wanted=body.knobs, user=caller(request), now=timezone.now())
    except ChangeRefused as error:
        raise RequestProblem(409 if error.is_conflict else 422, str(error), field=error.field) from error
    run.refresh_from_db()
    return KnobsChangedOut(is_changed=bool(differing), settings=LiveSettingsOut.from_orm(live_settings(run)))
