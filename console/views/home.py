"""Home: what needs one now, what runs, what waits, and how full the cluster is."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import path
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.http import require_GET, require_POST

from console.labels.catalog import phase_label
from console.labels.health import alarms_text
from console.views.alerts.page import SAID_BY_THE_RUN, rows_of
from console.views.frame import current_project, person
from console.views.run.labels import cause_text, hint
from jobs.accounts.access import require, role
from jobs.alerts.queries import find_incidents
from jobs.diagnosis.health import alarms_of
from jobs.processes.tasks import enqueue, submit
from jobs.runs.cluster_use import cluster_in_use
from jobs.runs.filter import main_metric
from jobs.runs.header import RunHeader
from jobs.runs.launch import create_run, demo_spec
from jobs.runs.queries import Home
from jobs.runs.queries import home as read_home
from jobs.runs.sparklines import sparklines
from profiling.phases import BY_KEY

_WIDTH, _HEIGHT = 240, 44
_RECENT = 8
_ALERTS = 20
_LATELY = timedelta(days=3)  # so long a run that ended with a symptom is counted above


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveCard:
    """A run that is going on: its main metric with its newest value and its line; `alarm`: what it shows, ""."""

    header: RunHeader
    metric: str
    value: object
    spark: str
    hint: str
    alarm: str


@require_GET
def home(request: HttpRequest) -> HttpResponse:
    """Show the page; a person without a project is told so."""
    project = current_project(request)
    if project is None:
        return render(request, "home/no_project.html")
    require(request.user, project, "viewer")
    now = timezone.now()
    overview = read_home(project, now=now)
    drawn = sparklines(overview.live, width=_WIDTH, height=_HEIGHT)
    shown_runs = {header.id for header in overview.attention}
    opened = find_incidents(request.user, project, state="open", now=now)[:_ALERTS]
    alerts = [
        row
        for row in rows_of(request, list(opened), now=now)
        if row.incident.severity != "info"
        and not (row.incident.kind in SAID_BY_THE_RUN and row.incident.run_id in shown_runs)
    ]
    recent = overview.recent[:_RECENT]
    alarms = {run: alarms_text(marks) for run, marks in alarms_of(h.id for h in (*overview.live, *recent)).items()}
    context = {
        "home": overview,
        "headline": _headline(
            overview,
            num_alerts=len(alerts),
            num_alarmed=sum(h.id in alarms for h in overview.live),
            num_ended=sum(h.id in alarms and h.id not in shown_runs and _is_late(h, now) for h in recent),
        ),
        "alerts": alerts,
        "attention": [{"header": h, "text": cause_text(h) or hint(h, now=now)} for h in overview.attention],
        "live": [
            _card(header, drawn.get(header.id, ""), _doing(header, now), alarms.get(header.id, ""))
            for header in overview.live
        ],
        "queued": [
            {"header": h, "reason": hint(h, now=now)}
            for h in sorted(overview.queued, key=lambda h: h.queue_position or 0)
        ],
        "recent": [
            {
                "header": h,
                "metric": main_metric(h.algorithm),
                "value": _value(h),
                "alarm": alarms.get(h.id, ""),
            }
            for h in recent
        ],
        "cluster": cluster_in_use(),
        "can_edit": role(request.user, project) in ("editor", "admin"),
    }
    return render(request, "home/home.html", context)


@require_POST
def start_demo(request: HttpRequest) -> HttpResponse:
    """Queue the demo run and show it."""
    project = current_project(request)
    if project is None:
        return redirect("home")
    require(request.user, project, "editor")
    key = request.POST.get("key") or None
    run, _is_new = create_run(
        project=project, spec=demo_spec(), user=person(request), idempotency_key=key, now=timezone.now()
    )
    enqueue(submit, run_id=run.pk)
    return redirect("run", run.pk)


def _is_late(header: RunHeader, now: datetime) -> bool:
    """Return True if a run has ended so lately that what it shows may not have been seen."""
    return (header.ended_at or "") >= (now - _LATELY).isoformat()


def _headline(overview: Home, *, num_alerts: int, num_alarmed: int, num_ended: int) -> str:
    """Say in one sentence what needs the person, else what goes on.

    `num_alarmed` runs that go on show a symptom, and `num_ended` that have ended.
    """
    lost = sum(h.is_lost_contact for h in overview.attention)
    failed = len(overview.attention) - lost
    parts = []
    if failed:
        parts.append(ngettext("%(n)s run failed", "%(n)s runs failed", failed) % {"n": failed})
    if lost:
        parts.append(ngettext("%(n)s run lost contact", "%(n)s runs lost contact", lost) % {"n": lost})
    if num_alarmed:
        text = ngettext("%(n)s run shows a symptom", "%(n)s runs show a symptom", num_alarmed)
        parts.append(text % {"n": num_alarmed})
    if num_ended:
        text = ngettext("%(n)s run ended with a symptom", "%(n)s runs ended with a symptom", num_ended)
        parts.append(text % {"n": num_ended})
    if num_alerts:
        parts.append(ngettext("%(n)s alert is open", "%(n)s alerts are open", num_alerts) % {"n": num_alerts})
    if parts:
        return ", ".join(parts)
    if overview.live:
        n = len(overview.live)
        return ngettext("%(n)s run is active, nothing needs you", "%(n)s runs are active, nothing needs you", n) % {
            "n": n
        }
    return _("Nothing needs you now")


def _doing(header: RunHeader, now: datetime) -> str:
    """Return the phase of a running run; its time left stands on the card anyway."""
    if header.state == "running" and not header.is_lost_contact and header.phase in BY_KEY:
        return phase_label(header.phase)
    return hint(header, now=now)


def _value(header: RunHeader) -> object:
    return header.latest_values.get(main_metric(header.algorithm))


def _card(header: RunHeader, spark: str, words: str, alarm: str) -> LiveCard:
    metric, value = main_metric(header.algorithm), _value(header)
    return LiveCard(header=header, metric=metric, value=value, spark=spark, hint=words, alarm=alarm)


urlpatterns = [path("", home, name="home"), path("demo", start_demo, name="start-demo")]
