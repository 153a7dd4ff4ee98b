"""Alerts as the API gives and takes them."""

from datetime import datetime
from typing import Any

from ninja import Schema

from jobs.alerts import words
from jobs.alerts.incidents import muted_until
from jobs.alerts.kinds import KINDS
from jobs.models import AlertChannel, AlertIncident, AlertMessage, AlertMute, AlertNote, AlertRule, AlertSubscription


class AlertOut(Schema):
    """One incident. `state` is open, acknowledged or resolved; `muted_until` is null where it is not muted.

    `step`: that its run had completed when it opened.
    """

    id: int
    rule: int
    rule_name: str
    kind: str
    severity: str
    state: str
    title: str
    text: str
    project: str | None
    run: str | None
    step: int | None
    object: str
    value: float | None
    events: int
    is_flapping: bool
    opened_at: datetime
    updated_at: datetime
    resolved_at: datetime | None
    acknowledged_at: datetime | None
    acknowledged_by: str | None
    muted_until: datetime | None


class AlertNoteOut(Schema):
    """A line of an incident's history."""

    at: datetime
    verb: str
    text: str
    by: str | None


class AlertMessageOut(Schema):
    """One message of an incident to one channel; `answer` is what the receiver said last."""

    channel: str
    kind: str
    event: str
    state: str
    tries: int
    is_repeat: bool
    answer: str
    sent_at: datetime | None
    next_at: datetime


class AlertDetailOut(AlertOut):
    """One incident with its history and messages."""

    notes: list[AlertNoteOut]
    messages: list[AlertMessageOut]


class AlertsOut(Schema):
    """One page of incidents, the newest first; `total` counts all pages."""

    alerts: list[AlertOut]
    total: int
    open: int


class AlertParamOut(Schema):
    """A parameter of a kind of rule."""

    name: str
    label: str
    type: str
    default: Any
    choices: list[str]


class AlertKindOut(Schema):
    """A kind of rule."""

    id: str
    label: str
    severity: str
    is_console: bool
    params: list[AlertParamOut]


class AlertRuleOut(Schema):
    """A rule. `preset` names one that comes with the console; those of the console have no project."""

    id: int
    project: str | None
    kind: str
    name: str
    params: dict[str, Any]
    severity: str
    tags: list[str]
    algorithms: list[str]
    channels: list[int]
    is_enabled: bool
    preset: str | None


class AlertRulesOut(Schema):
    """The rules of a project and those of the console, and what kinds there are."""

    rules: list[AlertRuleOut]
    kinds: list[AlertKindOut]


class AlertRuleIn(Schema):
    """A new rule; what is left out has its default."""

    model_config = {"extra": "forbid"}

    kind: str
    name: str | None = None
    params: dict[str, Any] | None = None
    severity: str | None = None
    tags: list[str] | None = None
    algorithms: list[str] | None = None
    channels: list[int] | None = None
    is_enabled: bool | None = None


class AlertRuleChange(Schema):
    """What to change of a rule; what is left out stays."""

    model_config = {"extra": "forbid"}

    name: str | None = None
    params: dict[str, Any] | None = None
    severity: str | None = None
    tags: list[str] | None = None
    algorithms: list[str] | None = None
    channels: list[int] | None = None
    is_enabled: bool | None = None


class AlertChannelOut(Schema):
    """A channel. `address` holds no secret: of a webhook it is only the host."""

    id: int
    kind: str
    name: str
    address: str
    tested_at: datetime | None


class AlertChannelsOut(Schema):
    """Channels, and what kinds there are."""

    channels: list[AlertChannelOut]
    kinds: list[str]


class AlertChannelIn(Schema):
    """A new channel: `address` is one of e-mail, or of a webhook; the latter is never shown again."""

    model_config = {"extra": "forbid"}

    kind: str
    name: str
    address: str


class NewAlertChannelOut(AlertChannelOut):
    """The new channel; `signing_secret` is shown this once, "" where messages are not signed."""

    signing_secret: str


class AlertTestOut(Schema):
    """What the receiver said to a test."""

    is_delivered: bool
    answer: str


class AlertSubscriptionOut(Schema):
    """What you are sent of a project: `runs` is mine, watched or all; `severity` the least; channels by number."""

    runs: str
    severity: str
    is_console: bool
    channels: list[int]


class AlertSubscriptionIn(Schema):
    """What to send you of a project over channels of your own; without a channel, nothing."""

    model_config = {"extra": "forbid"}

    runs: str = "mine"
    severity: str = "warning"
    is_console: bool = False
    channels: list[int] = []


class AlertMuteIn(Schema):
    """`of` is alert, run, rule or project: nobody is told of it for so many minutes; 0 ends that."""

    model_config = {"extra": "forbid"}

    minutes: float = 60
    of: str = "alert"


class AlertNoteIn(Schema):
    """A note of 1 to 1000 characters."""

    model_config = {"extra": "forbid"}

    text: str


class RunWatchOut(Schema):
    """Whether you watch the run."""

    is_watched: bool


def alert_out(incident: AlertIncident, mutes: list[AlertMute]) -> dict[str, Any]:
    """Return an incident for the API."""
    by = incident.acknowledged_by
    return {
        "id": incident.pk,
        "rule": incident.rule_id,
        "rule_name": incident.rule.name,
        "kind": incident.kind,
        "severity": incident.severity,
        "state": incident.state,
        "title": words.title(incident),
        "text": words.sentence(incident),
        "project": incident.project.slug if incident.project else None,
        "run": incident.run_id,
        "step": incident.step,
        "object": incident.object_id,
        "value": incident.value,
        "events": incident.event_count,
        "is_flapping": incident.is_flapping,
        "opened_at": incident.opened_at,
        "updated_at": incident.updated_at,
        "resolved_at": incident.resolved_at,
        "acknowledged_at": incident.acknowledged_at,
        "acknowledged_by": by.get_username() if by else None,
        "muted_until": muted_until(incident, mutes),
    }


def note_out(note: AlertNote) -> AlertNoteOut:
    """Return a line of the history."""
    by = note.actor.get_username() if note.actor else None
    return AlertNoteOut(at=note.at, verb=note.verb, text=note.text, by=by)


def message_out(message: AlertMessage) -> AlertMessageOut:
    """Return a message; a channel of a person is theirs alone, so only its kind is told."""
    name = message.channel.name if message.channel.owner_id is None else ""
    return AlertMessageOut(
        channel=name,
        kind=message.channel.kind,
        event=message.event,
        state=message.state,
        tries=message.tries,
        is_repeat=message.is_repeat,
        answer=message.answer if message.channel.owner_id is None else "",
        sent_at=message.sent_at,
        next_at=message.next_at,
    )


def rule_out(rule: AlertRule) -> AlertRuleOut:
    """Return a rule."""
    return AlertRuleOut(
        id=rule.pk,
        project=rule.project.slug if rule.project else None,
        kind=rule.kind,
        name=rule.name,
        params=rule.params,
        severity=rule.severity,
        tags=rule.tags,
        algorithms=rule.algorithms,
        channels=[channel.pk for channel in rule.channels.all()],
        is_enabled=rule.is_enabled,
        preset=rule.preset,
    )


def kinds_out() -> list[AlertKindOut]:
    """Return all kinds of rules."""
    return [
        AlertKindOut(
            id=kind.id,
            label=str(kind.label),
            severity=kind.severity,
            is_console=kind.is_console,
            params=[
                AlertParamOut(name=p.name, label=str(p.label), type=p.type, default=p.default, choices=list(p.choices))
                for p in kind.params
            ],
        )
        for kind in KINDS.values()
    ]


def channel_out(channel: AlertChannel) -> AlertChannelOut:
    """Return what may be shown of a channel."""
    return AlertChannelOut(
        id=channel.pk, kind=channel.kind, name=channel.name, address=channel.address, tested_at=channel.tested_at
    )


def subscription_out(subscription: AlertSubscription) -> AlertSubscriptionOut:
    """Return a subscription; one that is not kept yet has no channels."""
    channels = [channel.pk for channel in subscription.channels.all()] if subscription.pk else []
    return AlertSubscriptionOut(
        runs=subscription.runs,
        severity=subscription.severity,
        is_console=subscription.is_console,
        channels=channels,
    )
