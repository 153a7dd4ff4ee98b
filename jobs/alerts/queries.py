"""What pages and API ask about alerts: lists, counts and the rules of a project."""

from datetime import datetime

from django.db.models import F, Q, QuerySet

from jobs.accounts.access import User
from jobs.alerts.incidents import current_mutes, visible_incidents
from jobs.models import AlertIncident, AlertMute, AlertRule, Project


def find_incidents(
    user: User, project: Project, *, state: str, now: datetime, run: str = ""
) -> QuerySet[AlertIncident]:
    """Return the incidents of a project and of the console, the newest first.

    `state` is open, acknowledged, muted (open ones of which nobody is told), resolved or all.
    """
    rows = visible_incidents(user).filter(Q(project=project) | Q(project=None)).order_by("-opened_at", "-pk")
    if run:
        rows = rows.filter(run=run)
    if state in ("acknowledged", "resolved"):
        rows = rows.filter(state=state)
    elif state in ("open", "muted"):
        silenced = _silenced(current_mutes(now))
        rows = rows.filter(state="open")
        rows = rows.exclude(silenced) if state == "open" else rows.filter(silenced)
    return rows


def _silenced(mutes: list[AlertMute]) -> Q:
    """Return the condition for incidents that one of the mutes is about."""
    condition = Q(pk__in=[mute.incident_id for mute in mutes if mute.incident_id])
    condition |= Q(rule__in=[mute.rule_id for mute in mutes if mute.rule_id])
    condition |= Q(run__in=[mute.run_id for mute in mutes if mute.run_id], run__isnull=False)
    whole = [m.project_id for m in mutes if m.project_id and not (m.incident_id or m.rule_id or m.run_id)]
    return condition | Q(project__in=whole, project__isnull=False)


def open_count(user: User, project: Project, *, now: datetime) -> int:
    """Return how many incidents nobody has acknowledged or muted: the number on the bell."""
    return find_incidents(user, project, state="open", now=now).count()


def rules_for(project: Project) -> QuerySet[AlertRule]:
    """Return the rules of a project, then those of the console."""
    rows = AlertRule.objects.filter(Q(project=project) | Q(project=None)).select_related("project")
    return rows.prefetch_related("channels").order_by(F("project").asc(nulls_last=True), "pk")
