"""Incidents: opened, updated and resolved by what was seen; acknowledged, muted, resolved and noted by people.

One open incident per rule and object, whoever is killed meanwhile: the database holds it to that. What comes and goes
three times in an hour stays open until it was quiet for a quarter of an hour, and says that it flaps.
"""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from functools import partial

from django.contrib.auth.models import AbstractBaseUser
from django.db import IntegrityError, transaction
from django.db.models import F, Q, QuerySet
from django.utils.translation import gettext as _

from jobs.accounts.access import NotAllowed, User, allows, projects_of, require_superuser, role
from jobs.accounts.audit import record
from jobs.alerts.kinds import KINDS, MAX_MINUTES, AlertRefused
from jobs.alerts.outbox import tell
from jobs.alerts.sighting import Sighting
from jobs.catalog.value import is_storable
from jobs.models import AlertIncident, AlertMute, AlertNote, AlertRule, Project, Run
from jobs.telemetry.notify import run_changed

FLAPS = 3  # openings of one rule and object within FLAP_WINDOW that make the next one flap
FLAP_WINDOW = timedelta(hours=1)
FLAP_QUIET = timedelta(minutes=15)
UPDATE_EVERY = timedelta(seconds=10)  # a value that changes all the time is not written each second
CHANGED = "alerts"  # on the live stream, in place of a run's id: pages look again
MAX_NOTE_CHARS = 1000


def apply(sightings: Iterable[Sighting], *, rules: Collection[AlertRule], now: datetime) -> None:
    """Bring the incidents of these rules up to what was seen in a pass over all of their objects.

    An open incident whose object was not seen at all has no condition any more.
    """
    ids = [rule.pk for rule in rules]
    is_held = Q(resolved_at=None) | Q(is_by_hand=True, clear_since=None)
    rows = AlertIncident.objects.filter(is_held, rule__in=ids).select_related("rule", "run", "project")
    held = {(row.rule_id, row.object_id): row for row in rows.order_by("pk")}
    seen = {(sighting.rule.pk, sighting.object_id): sighting for sighting in sightings}
    _open([s for key, s in seen.items() if s.is_on and key not in held], now)
    for key, incident in held.items():
        sighting = seen.get(key)
        if sighting is None or sighting.is_on is False:
            _clear(incident, now)
        elif sighting.is_on:
            _update(incident, sighting, now)
    _tell_what_waits(ids, now)


def _open(sightings: Sequence[Sighting], now: datetime) -> None:
    if not sightings:
        return
    rules = {s.rule.pk for s in sightings}
    objects = {s.object_id for s in sightings}
    rows = AlertIncident.objects.filter(rule__in=rules, object_id__in=objects)
    before: dict[tuple[int, str], list[datetime]] = {}
    for rule_id, object_id, opened_at in rows.values_list("rule_id", "object_id", "opened_at"):
        before.setdefault((rule_id, object_id), []).append(opened_at)
    for s in sightings:
        earlier = before.get((s.rule.pk, s.object_id), [])
        if s.is_once and earlier:
            continue
        is_flapping = sum(at > now - FLAP_WINDOW for at in earlier) >= FLAPS
        try:
            with transaction.atomic():
                incident = AlertIncident.objects.create(
                    rule=s.rule,
                    project_id=s.rule.project_id,
                    run=s.run,
                    step=s.run.step if s.run else None,
                    object_id=s.object_id,
                    kind=s.rule.kind,
                    severity=s.rule.severity,
                    data=dict(s.data),
                    value=s.value,
                    is_flapping=is_flapping,
                    opened_at=now,
                    updated_at=now,
                )
                AlertNote.objects.create(incident=incident, at=now, verb="opened")
                if s.is_moment:
                    tell(incident, "opened", now=now, mutes=current_mutes(now))
                    _resolve(incident, now, verb="")
                transaction.on_commit(partial(run_changed, CHANGED))
                if s.run is not None:
                    Run.objects.filter(pk=s.run.pk).update(capture_changes=F("capture_changes") + 1)
                    transaction.on_commit(partial(run_changed, s.run.pk))
        except IntegrityError:
            continue  # another reconciler was first, or the run was deleted meanwhile


def _update(incident: AlertIncident, sighting: Sighting, now: datetime) -> None:
    changes: dict[str, object] = {}
    if incident.is_by_hand:
        return  # a person resolved it, and its condition has not cleared since
    if incident.clear_since is not None:
        changes |= {"clear_since": None, "event_count": F("event_count") + 1}
    is_new = incident.data != dict(sighting.data) or incident.value != sighting.value
    if is_new and (changes or now - incident.updated_at >= UPDATE_EVERY):
        changes |= {"data": dict(sighting.data), "value": sighting.value}
    if changes and AlertIncident.objects.filter(pk=incident.pk, resolved_at=None).update(updated_at=now, **changes):
        run_changed(CHANGED)


def _clear(incident: AlertIncident, now: datetime) -> None:
    """Note that the condition no longer holds; resolve when that has lasted."""
    if incident.clear_since is None:
        AlertIncident.objects.filter(pk=incident.pk, clear_since=None).update(clear_since=now)
        incident.clear_since = now
    if incident.is_by_hand:
        return
    patience = timedelta(seconds=KINDS[incident.kind].clear_seconds)
    if incident.is_flapping:
        patience = max(patience, FLAP_QUIET)
    if now - incident.clear_since >= patience:
        with transaction.atomic():
            if _resolve(incident, now, verb="resolved"):
                tell(incident, "resolved", now=now, mutes=current_mutes(now))


def _resolve(incident: AlertIncident, now: datetime, *, verb: str, **more: object) -> bool:
    unresolved = AlertIncident.objects.filter(pk=incident.pk, resolved_at=None)
    if not unresolved.update(state="resolved", resolved_at=now, updated_at=now, **more):
        return False
    if verb:
        AlertNote.objects.create(incident=incident, at=now, verb=verb)
    transaction.on_commit(partial(run_changed, CHANGED))
    return True


def _tell_what_waits(rule_ids: Collection[int], now: datetime) -> None:
    """Put what was muted, or opened by whoever died right then, into the outbox; what is acknowledged needs nobody."""
    waiting = AlertIncident.objects.filter(rule__in=rule_ids, state="open", told_at=None)
    mutes: list[AlertMute] | None = None
    for incident in waiting.select_related("rule", "run", "project"):
        mutes = current_mutes(now) if mutes is None else mutes
        with transaction.atomic():
            tell(incident, "opened", now=now, mutes=mutes)


def current_mutes(now: datetime) -> list[AlertMute]:
    """Return the mutes that hold now."""
    return list(AlertMute.objects.filter(until__gt=now))


def muted_until(incident: AlertIncident, mutes: Iterable[AlertMute]) -> datetime | None:
    """Return until when nobody is told of the incident, None if it is not muted."""
    return max((mute.until for mute in mutes if mute.is_about(incident)), default=None)


def visible_incidents(user: User) -> QuerySet[AlertIncident]:
    """Return the incidents that a person may see: those of their projects, and as a member of any the console's."""
    own_projects = list(projects_of(user))
    about = Q(project__in=own_projects)
    if own_projects:
        about |= Q(project=None)
    return AlertIncident.objects.filter(about).select_related("rule", "run", "project", "acknowledged_by")


def may_silence(user: User, project: Project | None) -> bool:
    """Return whether a person may mute and resolve: as `may_act`, but of the console superusers alone.

    Whoever runs it counts on being told that its disk fills, whatever an editor of some project thinks of that.
    """
    if project is None:
        try:
            require_superuser(user)
        except NotAllowed:
            return False
    return may_act(user, project)


def may_act(user: User, project: Project | None) -> bool:
    """Return whether a person may acknowledge and write notes: as an editor of it, or of any for the console."""
    among = [project] if project is not None else list(projects_of(user))
    return any(allows(role(user, one), "editor") for one in among)


def require_act(user: User, project: Project | None, *, silences: bool) -> None:
    """Let through who may act on incidents of the project, with `silences` mute and resolve. Raises: NotAllowed."""
    if not may_act(user, project):
        raise NotAllowed("This needs the role editor. Ask an admin of the project.", is_member=True)
    if silences and not may_silence(user, project):
        raise NotAllowed("Alerts of the console itself are muted and resolved by superusers.", is_member=True)


def acknowledge(incident: AlertIncident, *, user: AbstractBaseUser, now: datetime) -> bool:
    """Say that somebody is on it; False if it is acknowledged or resolved already."""
    with transaction.atomic():
        opened = AlertIncident.objects.filter(pk=incident.pk, state="open")
        if not opened.update(state="acknowledged", acknowledged_at=now, acknowledged_by=user, updated_at=now):
            return False
        _by_person(incident, "acknowledge", "acknowledged", user, now)
    return True


def resolve_by_hand(incident: AlertIncident, *, user: AbstractBaseUser, now: datetime) -> bool:
    """Close an incident. While its condition lasts it opens no new one; False if it is resolved already."""
    with transaction.atomic():
        if not _resolve(incident, now, verb="", is_by_hand=True, clear_since=None):
            return False
        _by_person(incident, "resolve", "resolved", user, now)
        tell(incident, "resolved", now=now, mutes=current_mutes(now))
    return True


def add_note(incident: AlertIncident, text: str, *, user: AbstractBaseUser, now: datetime) -> AlertNote:
    """Keep what a person writes about an incident. Raises: AlertRefused."""
    text = text.strip()
    if not 1 <= len(text) <= MAX_NOTE_CHARS or not is_storable(text):
        raise AlertRefused("text", _("A note has 1 to %(most)s characters.") % {"most": MAX_NOTE_CHARS})
    with transaction.atomic():
        return _by_person(incident, "note", "note", user, now, text=text)


def mute(
    *,
    project: Project | None,
    minutes: float,
    user: AbstractBaseUser,
    now: datetime,
    incident: AlertIncident | None = None,
    rule: AlertRule | None = None,
    is_run: bool = False,
) -> AlertMute | None:
    """Tell nobody for a time, of an incident, of its run (`is_run`), of a rule, or without any of them of a project.

    0 minutes end such a mute; then None is returned. Raises: AlertRefused.
    """
    if not 0 <= minutes <= MAX_MINUTES:
        text = _("Mute for 0 to %(most)s minutes; 0 ends it. %(given)s is not among them.")
        raise AlertRefused("minutes", text % {"most": MAX_MINUTES, "given": f"{minutes:g}"})
    run = incident.run if incident is not None and is_run else None
    if is_run and run is None:
        raise AlertRefused("of", _("This alert is about no run. Mute the alert or its rule."))
    scope = {"project": project, "rule": rule, "run": run, "incident": None if is_run else incident}
    with transaction.atomic():
        same = {f"{key}__isnull" if one is None else key: one is None or one for key, one in scope.items()}
        AlertMute.objects.filter(until__gt=now, **same).delete()
        until = now + timedelta(minutes=minutes)
        made = AlertMute.objects.create(**scope, until=until, created_by_id=user.pk) if minutes else None
        _keep_mute(project, rule or run or incident, minutes=minutes, user=user)
        if incident is not None:
            AlertNote.objects.create(
                incident=incident, at=now, verb="muted" if minutes else "unmuted", actor_id=user.pk, text=f"{minutes:g}"
            )
        transaction.on_commit(partial(run_changed, CHANGED))
    return made


def end_mute(row: AlertMute, *, user: AbstractBaseUser) -> None:
    """End a mute before its time."""
    with transaction.atomic():
        if AlertMute.objects.filter(pk=row.pk).delete()[0]:
            _keep_mute(row.project, row.rule or row.run or row.incident, minutes=0, user=user)
            transaction.on_commit(partial(run_changed, CHANGED))


def mute_of(
    incident: AlertIncident, *, of: str, minutes: float, user: AbstractBaseUser, now: datetime
) -> AlertMute | None:
    """Mute an incident, or all of its run, rule or project (`of`). Raises: AlertRefused."""
    if of not in ("alert", "run", "rule", "project") or (of == "project" and incident.project is None):
        text = _("%(given)r cannot be muted here. Use alert, run, rule or project.")
        raise AlertRefused("of", text % {"given": of[:60]})
    return mute(
        project=incident.project,
        minutes=minutes,
        user=user,
        now=now,
        incident=incident if of in ("alert", "run") else None,
        rule=incident.rule if of == "rule" else None,
        is_run=of == "run",
    )


def _by_person(
    incident: AlertIncident, deed: str, said: str, user: AbstractBaseUser, now: datetime, *, text: str = ""
) -> AlertNote:
    """Keep what a person did: the audit as the `deed`, the history of the incident as what was `said`."""
    record(
        actor=user,
        verb=f"alert.{deed}",
        object_type="alert",
        object_id=str(incident.pk),
        label=_called(incident),
        project=incident.project,
        after={"text": text} if text else None,
    )
    transaction.on_commit(partial(run_changed, CHANGED))
    return AlertNote.objects.create(incident=incident, at=now, verb=said, text=text, actor_id=user.pk)


def _keep_mute(
    project: Project | None, of: AlertRule | Run | AlertIncident | None, *, minutes: float, user: AbstractBaseUser
) -> None:
    """Keep a mute of something in a project, or of all of it; 0 minutes: that it ended."""
    if isinstance(of, AlertRule):
        kind, number, label = "alert_rule", str(of.pk), of.name
    elif isinstance(of, AlertIncident):
        kind, number, label = "alert", str(of.pk), _called(of)
    elif of is not None:
        kind, number, label = "run", of.pk, of.name
    else:
        kind, number, label = "project", project.slug if project else "", project.name if project else ""
    record(
        actor=user,
        verb="alert.mute" if minutes else "alert.unmute",
        object_type=kind,
        object_id=number,
        label=label,
        project=project,
        after={"minutes": minutes} if minutes else None,
    )


def _called(incident: AlertIncident) -> str:
    """Return how the audit names an incident: by its rule and what it is about."""
    return f"{incident.rule.name}: {incident.run.name if incident.run else incident.object_id}"
