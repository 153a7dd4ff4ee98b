"""Rules: those that come with the console, and what admins make, change and delete."""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.db import IntegrityError, transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from jobs.accounts.audit import record
from jobs.alerts.channel_list import channels_among
from jobs.alerts.kinds import KINDS, PRESETS, SEVERITIES, AlertRefused, checked_name
from jobs.catalog.algorithm import algorithms
from jobs.catalog.value import is_storable
from jobs.models import AlertChannel, AlertRule, Project

MAX_RULES = 100  # of a project


def add_presets(now: datetime) -> None:
    """Give every project, and the console, the rules that come with the console; those they have stay as they are."""
    of_console = {preset.id for preset in PRESETS.values() if KINDS[preset.kind].is_console}
    held: dict[int | None, set[str]] = {
        None: set(),
        **{pk: set() for pk in Project.objects.values_list("pk", flat=True)},
    }
    for of, preset in AlertRule.objects.exclude(preset=None).values_list("project", "preset"):
        held.setdefault(of, set()).add(str(preset))
    for project_id, presets in held.items():
        ours = of_console if project_id is None else set(PRESETS) - of_console
        _add(project_id, ours - presets, now)


def _add(project_id: int | None, presets: Collection[str], now: datetime) -> None:
    for preset in (PRESETS[one] for one in PRESETS if one in presets):
        kind = KINDS[preset.kind]
        try:
            with transaction.atomic():
                AlertRule.objects.create(
                    project_id=project_id,
                    preset=preset.id,
                    kind=kind.id,
                    name=str(preset.name),
                    params=kind.check(preset.params),
                    severity=preset.severity or kind.severity,
                    is_enabled=preset.is_on,
                    since=now,
                )
        except IntegrityError:
            continue  # another process was first, or the project has gone


def make_rule(
    *,
    project: Project | None,
    kind: str,
    fields: Mapping[str, Any],
    actor: AbstractBaseUser,
) -> AlertRule:
    """Return a new rule; `fields` are those of `change_rule`. Raises: AlertRefused. The caller has checked the role."""
    if kind not in KINDS or KINDS[kind].is_console != (project is None):
        kinds = ", ".join(one.id for one in KINDS.values() if one.is_console == (project is None))
        raise AlertRefused(
            "kind", _("%(kind)r is no kind of rule here. Use one of %(known)s.") % {"kind": kind[:60], "known": kinds}
        )
    if AlertRule.objects.filter(project=project).count() >= MAX_RULES:
        raise AlertRefused(
            "kind", _("There are %(most)s rules already. Delete one that nobody needs.") % {"most": MAX_RULES}
        )
    rule = AlertRule(project=project, kind=kind, severity=KINDS[kind].severity, created_by_id=actor.pk)
    with transaction.atomic():
        _fill(rule, {"name": str(KINDS[kind].label), "params": {}, **fields})
        record(
            actor=actor,
            verb="alert_rule.create",
            object_type="alert_rule",
            object_id=str(rule.pk),
            label=rule.name,
            project=rule.project,
            after=_audited(rule),
        )
    return rule


def change_rule(rule: AlertRule, *, fields: Mapping[str, Any], actor: AbstractBaseUser) -> AlertRule:
    """Change `name`, `params`, `severity`, `tags`, `algorithms`, `channels` (numbers), `is_enabled`.

    Raises: AlertRefused. A rule that is switched on says nothing of what ended before.
    """
    before = _audited(rule)
    with transaction.atomic():
        if fields.get("is_enabled") and not rule.is_enabled:
            rule.since = timezone.now()
        _fill(rule, fields)
        record(
            actor=actor,
            verb="alert_rule.change",
            object_type="alert_rule",
            object_id=str(rule.pk),
            label=rule.name,
            project=rule.project,
            before=before,
            after=_audited(rule),
        )
    return rule


def delete_rule(rule: AlertRule, *, actor: AbstractBaseUser) -> None:
    """Delete a rule with its incidents. Raises: AlertRefused for one that comes with the console."""
    if rule.preset is not None:
        raise AlertRefused("", _("This rule comes with the console. Switch it off instead."))
    with transaction.atomic():
        record(
            actor=actor,
            verb="alert_rule.delete",
            object_type="alert_rule",
            object_id=str(rule.pk),
            label=rule.name,
            project=rule.project,
            before=_audited(rule),
        )
        rule.delete()


def _fill(rule: AlertRule, fields: Mapping[str, Any]) -> None:
    """Set and save the fields. Raises: AlertRefused."""
    if "name" in fields:
        rule.name = checked_name(str(fields["name"]))
    if "params" in fields:
        rule.params = KINDS[rule.kind].check({**rule.params, **fields["params"]})
    if "severity" in fields:
        if fields["severity"] not in SEVERITIES:
            text = _("%(given)r is no severity. Use info, warning or critical.") % {
                "given": str(fields["severity"])[:60]
            }
            raise AlertRefused("severity", text)
        rule.severity = fields["severity"]
    if "tags" in fields:
        tags = [str(tag).strip() for tag in fields["tags"]]
        if len(tags) > 20 or any(not tag or len(tag) > 60 or not is_storable(tag) for tag in tags):
            raise AlertRefused("tags", _("Use at most 20 tags of up to 60 characters."))
        rule.tags = tags
    if "algorithms" in fields:
        unknown = [one for one in fields["algorithms"] if one not in algorithms()]
        if unknown:
            text = _("%(given)r is no algorithm. Use some of %(known)s.")
            raise AlertRefused("algorithms", text % {"given": str(unknown[0])[:60], "known": ", ".join(algorithms())})
        rule.algorithms = list(fields["algorithms"])
    if "is_enabled" in fields:
        rule.is_enabled = bool(fields["is_enabled"])
    rule.save()
    if "channels" in fields:
        channels = channels_among(AlertChannel.objects.filter(project=rule.project, owner=None), fields["channels"])
        if channels is None:
            raise AlertRefused("channels", _("A rule sends to channels of its own project only."))
        rule.channels.set(channels)


def _audited(rule: AlertRule) -> dict[str, Any]:
    """Return the rule as the audit keeps it; names of channels, never their addresses."""
    values = {
        name: getattr(rule, name) for name in ("kind", "name", "params", "severity", "tags", "algorithms", "is_enabled")
    }
    values["channels"] = sorted(rule.channels.values_list("name", flat=True)) if rule.pk else []
    return values | {"project": rule.project.slug if rule.project else None}
