"""Alerts: what is wrong by now, each with its history, and what people do about it."""

from dataclasses import dataclass
from datetime import datetime

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import path
from django.utils import timezone
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET, require_POST

from console.views.frame import current_project, person
from console.views.run.files import visible_run
from jobs.accounts.access import require
from jobs.alerts import incidents, words
from jobs.alerts.kinds import AlertRefused
from jobs.alerts.outbox import messages_of
from jobs.alerts.queries import find_incidents, open_count
from jobs.alerts.subscriptions import watch
from jobs.models import AlertIncident, AlertMute, AlertRule, Project

STATES: dict[str, Promise] = {
    "open": gettext_lazy("Open"),
    "acknowledged": gettext_lazy("Acknowledged"),
    "muted": gettext_lazy("Muted"),
    "resolved": gettext_lazy("Resolved"),
}
MUTE_MINUTES = (60, 8 * 60, 24 * 60, 7 * 24 * 60)
SAID_BY_THE_RUN = ("run_state", "lost_contact")  # kinds that say what Home and the run's page say anyway
_PAGE = 50
_OF_RUN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRow:
    """An incident as a line of a list."""

    incident: AlertIncident
    title: str
    text: str
    muted_until: datetime | None
    may_act: bool
    may_silence: bool

    @property
    def look(self) -> str:
        """The state whose tint it has."""
        if self.incident.state == "resolved":
            return "finished"
        return {"critical": "failed", "warning": "warning"}.get(self.incident.severity, "queued")


@require_GET
def alerts(request: HttpRequest) -> HttpResponse:
    """List the incidents of the project one is looking at, and of the console."""
    project = current_project(request)
    if project is None:
        return render(request, "home/no_project.html")
    require(request.user, project, "viewer")
    now = timezone.now()
    state = request.GET.get("state", "open")
    state = state if state in STATES else "open"
    matching = find_incidents(request.user, project, state=state, now=now)
    page = Paginator(matching, _PAGE).get_page(request.GET.get("page"))
    return render(
        request,
        "alerts/alerts.html",
        {
            "rows": rows_of(request, list(page), now=now),
            "page": page,
            "state": state,
            "tabs": tabs_of(request, project, now=now),
            "has_rules": AlertRule.objects.filter(project=project, is_enabled=True).exists(),
            "mute_minutes": MUTE_MINUTES,
            "project_mutes": _mutes_of_project(project.pk, now),
        },
    )


@require_GET
def alert(request: HttpRequest, alert_id: int) -> HttpResponse:
    """Show one incident with its history, and what went out."""
    return _show(request, _find(request, alert_id))


@require_POST
def act(request: HttpRequest, alert_id: int, verb: str) -> HttpResponse:
    """Acknowledge, resolve, mute or note an incident."""
    incident = _find(request, alert_id)
    incidents.require_act(request.user, incident.project, silences=verb in ("mute", "resolve"))
    user, now = person(request), timezone.now()
    try:
        if verb == "acknowledge":
            is_done = incidents.acknowledge(incident, user=user, now=now)
        elif verb == "resolve":
            is_done = incidents.resolve_by_hand(incident, user=user, now=now)
        elif verb == "mute":
            minutes, of = _number(request.POST.get("minutes", "")), request.POST.get("of", "alert")
            incidents.mute_of(incident, of=of, minutes=minutes, user=user, now=now)
            is_done = True
        else:
            incidents.add_note(incident, request.POST.get("text", ""), user=user, now=now)
            is_done = True
    except AlertRefused as error:
        return _show(request, incident, refused=error)
    if not is_done:
        messages.warning(request, _("Somebody else was first; this is how it stands now."))
    back = request.POST.get("back", "")
    return redirect("alerts") if back == "list" else redirect("alert", alert_id)


@require_POST
def unmute(request: HttpRequest, mute_id: int) -> HttpResponse:
    """End a mute of the project, its rules or runs before its time."""
    project = current_project(request)
    if project is None:
        raise Http404
    require(request.user, project, "editor")
    mutes = AlertMute.objects.filter(project=project).select_related("project", "rule", "run", "incident")
    mute = mutes.filter(pk=mute_id).first()
    if mute is not None:
        incidents.end_mute(mute, user=person(request))
        messages.success(request, _("The mute has ended."))
    return redirect("alerts")


@require_GET
def run_alerts(request: HttpRequest, run_id: str) -> HttpResponse:
    """Give the part of a run's page that says what else is wrong than its state and cause, which stand above."""
    run, _role = visible_run(request, run_id)
    now = timezone.now()
    matching = find_incidents(request.user, run.project, state="all", now=now, run=run.pk)
    opened = matching.exclude(state="resolved").exclude(kind__in=SAID_BY_THE_RUN)
    context = {
        "run": run,
        "rows": rows_of(request, list(opened[:_OF_RUN]), now=now),
        "count": opened.count(),
    }
    return render(request, "alerts/of_run.html", context)


@require_POST
def watch_run(request: HttpRequest, run_id: str) -> HttpResponse:
    """Watch a run, or no longer."""
    run, _role = visible_run(request, run_id)
    watch(run, user=person(request), is_on=request.POST.get("is_on") == "1")
    return redirect("run", run_id)


def rows_of(request: HttpRequest, matching: list[AlertIncident], *, now: datetime) -> list[AlertRow]:
    """Return incidents as lines."""
    mutes = incidents.current_mutes(now)
    projects = {incident.project_id: incident.project for incident in matching}
    may_act = {key: incidents.may_act(request.user, project) for key, project in projects.items()}
    may_silence = {key: incidents.may_silence(request.user, project) for key, project in projects.items()}
    return [
        AlertRow(
            incident=incident,
            title=words.title(incident),
            text=words.sentence(incident),
            muted_until=incidents.muted_until(incident, mutes),
            may_act=may_act[incident.project_id],
            may_silence=may_silence[incident.project_id],
        )
        for incident in matching
    ]


def tabs_of(request: HttpRequest, project: Project, *, now: datetime) -> list[dict[str, object]]:
    """Return the lists of alerts as tabs, with how many each holds; the resolved ones are not counted."""
    return [
        {"name": name, "label": label, "count": None if name == "resolved" else _count(request, project, name, now)}
        for name, label in STATES.items()
    ]


def _count(request: HttpRequest, project: Project, state: str, now: datetime) -> int:
    return find_incidents(request.user, project, state=state, now=now).count()


def bell_count(request: HttpRequest) -> int:
    """Return how many alerts of the project one is looking at wait for somebody."""
    project = current_project(request)
    return open_count(request.user, project, now=timezone.now()) if project is not None else 0


def _find(request: HttpRequest, alert_id: int) -> AlertIncident:
    rows = incidents.visible_incidents(request.user)
    incident = rows.filter(pk=alert_id).first() if alert_id < 1 << 63 else None
    if incident is None:
        raise Http404
    return incident


def _show(request: HttpRequest, incident: AlertIncident, *, refused: AlertRefused | None = None) -> HttpResponse:
    (row,) = rows_of(request, [incident], now=timezone.now())
    sent = [
        {"message": m, "name": m.channel.name if m.channel.owner_id in (None, request.user.pk) else "—"}
        for m in messages_of([incident])
    ]
    context = {
        "row": row,
        "notes": incident.notes.select_related("actor").order_by("-pk"),
        "sent": sent,
        "refused": refused,
        "given": request.POST,
        "mute_minutes": MUTE_MINUTES,
    }
    return render(request, "alerts/alert.html", context, status=422 if refused else 200)


def _mutes_of_project(project_id: int, now: datetime) -> list[AlertMute]:
    rows = AlertMute.objects.filter(project=project_id, until__gt=now, incident=None)
    return list(rows.select_related("rule", "run").order_by("until"))


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise AlertRefused("minutes", _("Say for how many minutes.")) from error


urlpatterns = [
    path("alerts", alerts, name="alerts"),
    path("alerts/<int:alert_id>", alert, name="alert"),
    path("alerts/<int:alert_id>/acknowledge", act, {"verb": "acknowledge"}, name="alert-acknowledge"),
    path("alerts/<int:alert_id>/resolve", act, {"verb": "resolve"}, name="alert-resolve"),
    path("alerts/<int:alert_id>/mute", act, {"verb": "mute"}, name="alert-mute"),
    path("alerts/<int:alert_id>/note", act, {"verb": "note"}, name="alert-note"),
    path("alerts/mutes/<int:mute_id>/end", unmute, name="alert-unmute"),
    path("runs/<slug:run_id>/alerts", run_alerts, name="run-alerts"),
    path("runs/<slug:run_id>/watch", watch_run, name="run-watch"),
]
