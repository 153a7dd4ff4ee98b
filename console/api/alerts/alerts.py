"""Incidents: what is wrong by now, and what people do about it."""

from typing import Annotated, Literal

from django.http import Http404, HttpRequest
from django.utils import timezone
from ninja import Query, Router

from console.api.alerts.schema import (
    AlertDetailOut,
    AlertMuteIn,
    AlertNoteIn,
    AlertOut,
    AlertsOut,
    RunWatchOut,
    alert_out,
    message_out,
    note_out,
)
from console.api.problem import REFUSALS, RequestProblem
from console.api.visible import ProjectSlug, caller, page_of, project_for, run_for
from jobs.alerts import incidents
from jobs.alerts.kinds import AlertRefused
from jobs.alerts.outbox import messages_of
from jobs.alerts.queries import find_incidents, open_count
from jobs.alerts.subscriptions import watch
from jobs.models import AlertIncident, RunWatch

router = Router(tags=["alerts"])
runs = Router(tags=["alerts"])
State = Literal["open", "acknowledged", "muted", "resolved", "all"]


@router.get("", response={200: AlertsOut, **REFUSALS}, summary="Alerts")
def list_alerts(
    request: HttpRequest,
    project: ProjectSlug,
    state: State = "open",
    run: Annotated[str, Query("", description="Only those about this run", max_length=16)] = "",
    page: Annotated[int, Query(1, ge=1, le=10_000)] = 1,
    size: Annotated[int, Query(50, ge=1, le=200)] = 50,
) -> AlertsOut:
    """Return the incidents of a project and of the console, the newest first; open ones that are muted are *muted*."""
    home = project_for(request, project)
    now = timezone.now()
    mutes = incidents.current_mutes(now)
    rows, total = page_of(find_incidents(request.user, home, state=state, run=run, now=now), page=page, size=size)
    return AlertsOut(
        alerts=[AlertOut(**alert_out(incident, mutes)) for incident in rows],
        total=total,
        open=open_count(request.user, home, now=now),
    )


@router.get("/{int:alert_id}", response={200: AlertDetailOut, **REFUSALS}, summary="An alert")
def read_alert(request: HttpRequest, alert_id: int) -> AlertDetailOut:
    """Return an incident with its history, and what went out about it."""
    return _detail(incident_for(request, alert_id))


@router.post("/{int:alert_id}/acknowledge", response={200: AlertDetailOut, **REFUSALS}, summary="Acknowledge")
def acknowledge_alert(request: HttpRequest, alert_id: int) -> AlertDetailOut:
    """Say that you are on it; once."""
    incident = incident_for(request, alert_id, acts=True)
    if not incidents.acknowledge(incident, user=caller(request), now=timezone.now()):
        incident.refresh_from_db()
        raise RequestProblem(409, f"This alert is {incident.state} already.")
    return _detail(incident_for(request, alert_id))


@router.post("/{int:alert_id}/resolve", response={200: AlertDetailOut, **REFUSALS}, summary="Resolve")
def resolve_alert(request: HttpRequest, alert_id: int) -> AlertDetailOut:
    """Close an incident; while its condition lasts it opens no new one. Those of the console: superusers only."""
    incident = incident_for(request, alert_id, acts=True, silences=True)
    if not incidents.resolve_by_hand(incident, user=caller(request), now=timezone.now()):
        raise RequestProblem(409, "This alert is resolved already.")
    return _detail(incident_for(request, alert_id))


@router.post("/{int:alert_id}/mute", response={200: AlertDetailOut, **REFUSALS}, summary="Mute")
def mute_alert(request: HttpRequest, alert_id: int, body: AlertMuteIn) -> AlertDetailOut:
    """Tell nobody for a time: of this alert, or of all of its run, rule or project.

    Those of the console: superusers only.
    """
    incident = incident_for(request, alert_id, acts=True, silences=True)
    try:
        incidents.mute_of(incident, of=body.of, minutes=body.minutes, user=caller(request), now=timezone.now())
    except AlertRefused as error:
        raise RequestProblem(422, str(error), field=error.field) from error
    return _detail(incident_for(request, alert_id))


@router.post("/{int:alert_id}/notes", response={200: AlertDetailOut, **REFUSALS}, summary="Write a note")
def note_alert(request: HttpRequest, alert_id: int, body: AlertNoteIn) -> AlertDetailOut:
    """Keep a note with the incident."""
    incident = incident_for(request, alert_id, acts=True)
    try:
        incidents.add_note(incident, body.text, user=caller(request), now=timezone.now())
    except AlertRefused as error:
        raise RequestProblem(422, str(error), field=error.field) from error
    return _detail(incident_for(request, alert_id))


@runs.put("/{slug:run_id}/watch", response={200: RunWatchOut, **REFUSALS}, summary="Watch a run")
def watch_run(request: HttpRequest, run_id: str) -> RunWatchOut:
    """Be told of the run as of your own, if you subscribed to the runs that you watch."""
    watch(run_for(request, run_id), user=caller(request), is_on=True)
    return RunWatchOut(is_watched=True)


@runs.delete("/{slug:run_id}/watch", response={200: RunWatchOut, **REFUSALS}, summary="Watch a run no longer")
def unwatch_run(request: HttpRequest, run_id: str) -> RunWatchOut:
    """Watch the run no longer."""
    watch(run_for(request, run_id), user=caller(request), is_on=False)
    return RunWatchOut(is_watched=False)


@runs.get("/{slug:run_id}/watch", response={200: RunWatchOut, **REFUSALS}, summary="Do you watch a run?")
def read_watch(request: HttpRequest, run_id: str) -> RunWatchOut:
    """Return whether you watch the run."""
    run = run_for(request, run_id)
    return RunWatchOut(is_watched=RunWatch.objects.filter(run=run, user=caller(request).pk).exists())


def incident_for(request: HttpRequest, alert_id: int, *, acts: bool = False, silences: bool = False) -> AlertIncident:
    """Return the incident if the caller may see it, with `acts` do something about it, with `silences` also that nobody
    is told any more. Raises: Http404, NotAllowed.
    """
    incident = incidents.visible_incidents(request.user).filter(pk=alert_id).first() if alert_id < 1 << 63 else None
    if incident is None:
        raise Http404
    if acts:
        incidents.require_act(request.user, incident.project, silences=silences)
    return incident


def _detail(incident: AlertIncident) -> AlertDetailOut:
    notes = [note_out(note) for note in incident.notes.select_related("actor").order_by("pk")]
    messages = [message_out(message) for message in messages_of([incident])]
    mutes = incidents.current_mutes(timezone.now())
    return AlertDetailOut(**alert_out(incident, mutes), notes=notes, messages=messages)
