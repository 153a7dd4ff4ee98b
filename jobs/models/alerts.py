"""Alerts: what people are told about, what is wrong by now, and what goes out to whom.

A rule fires for an object (a run, a node, a disk); that is one incident until its condition clears. Each event of an
incident is one message a channel, in the outbox.
"""

import secrets

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils import timezone

from jobs.models.projects import Project
from jobs.models.runs import Run


def new_message_key() -> str:
    """Return the name by which a receiver knows a message again, however often it comes."""
    return secrets.token_hex(16)


class AlertChannel(models.Model):
    """Where messages go: of a project, of one person, or with neither of the console.

    `address` is shown and holds no secret; `sealed` never is.

    `sealed` is the channel's secrets, encrypted with a key made of the console's secret key (jobs.accounts.sealing).
    """

    project = models.ForeignKey(Project, null=True, on_delete=models.CASCADE)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.CASCADE, related_name="+")
    kind = models.CharField(max_length=20)  # a file of jobs.alerts.channels
    name = models.CharField(max_length=80)
    address = models.CharField(max_length=254)  # of a mailbox; of a webhook only its host
    sealed = models.TextField(default="")
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(default=timezone.now)
    tested_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(project=None) | Q(owner=None),
                name="channel_of_one",
            )
        ]


class AlertRule(models.Model):
    """What opens an incident. Without a project it watches the console and its cluster as a whole.

    `params` are those of its kind (jobs.alerts.kinds). `preset` names a rule that comes with the console: it can be
    switched off, not deleted. A rule says nothing of what ended before `since`.
    """

    project = models.ForeignKey(Project, null=True, on_delete=models.CASCADE)
    kind = models.CharField(max_length=20)
    name = models.CharField(max_length=120)
    params = models.JSONField(default=dict)
    severity = models.CharField(max_length=10, default="warning")  # info | warning | critical
    tags = models.JSONField(default=list)  # of runs that it looks at; [] for all
    algorithms = models.JSONField(default=list)
    channels = models.ManyToManyField(AlertChannel, related_name="rules")
    is_enabled = models.BooleanField(default=True)
    preset = models.CharField(max_length=40, null=True)
    since = models.DateTimeField(default=timezone.now)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["project", "preset"], name="one_preset"),
            models.UniqueConstraint(fields=["preset"], condition=Q(project=None), name="one_console_preset"),
        ]


class AlertIncident(models.Model):
    """One thing that is wrong: a rule and an object, from when it opened until it cleared.

    `object_id` names what the incident is about ("r-1a2b3c4d", "r-1a2b3c4d/2" for the attempt, a node's address).
    `data` is what its sentence is made of, in the reader's language (jobs.alerts.words). `event_count` counts how often
    the condition was seen anew. `clear_since`: since when the condition no longer holds; it resolves when that lasted.
    """

    rule = models.ForeignKey(AlertRule, on_delete=models.CASCADE, related_name="incidents")
    project = models.ForeignKey(Project, null=True, on_delete=models.CASCADE)
    run = models.ForeignKey(Run, null=True, on_delete=models.CASCADE)
    step = models.IntegerField(null=True)  # that its run had completed when it opened
    object_id = models.CharField(max_length=160)
    kind = models.CharField(max_length=20)
    severity = models.CharField(max_length=10)
    state = models.CharField(max_length=12, default="open", db_index=True)  # open | acknowledged | resolved
    data = models.JSONField(default=dict)
    value = models.FloatField(null=True)
    event_count = models.PositiveIntegerField(default=1)
    is_flapping = models.BooleanField(default=False)
    opened_at = models.DateTimeField(db_index=True)
    updated_at = models.DateTimeField()
    clear_since = models.DateTimeField(null=True)
    resolved_at = models.DateTimeField(null=True)
    acknowledged_at = models.DateTimeField(null=True)
    acknowledged_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    told_at = models.DateTimeField(null=True)  # its messages are in the outbox; None while it is muted
    is_by_hand = models.BooleanField(default=False)  # a person resolved it; it stays so until its condition clears

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["rule", "object_id"], condition=Q(resolved_at=None), name="one_incident")
        ]


class AlertMute(models.Model):
    """No messages until then: of an incident, a rule or a run, or without any of them of a whole project."""

    project = models.ForeignKey(Project, null=True, on_delete=models.CASCADE)
    incident = models.ForeignKey(AlertIncident, null=True, on_delete=models.CASCADE, related_name="mutes")
    rule = models.ForeignKey(AlertRule, null=True, on_delete=models.CASCADE, related_name="mutes")
    run = models.ForeignKey(Run, null=True, on_delete=models.CASCADE)
    until = models.DateTimeField(db_index=True)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    created_at = models.DateTimeField(default=timezone.now)

    def is_about(self, incident: AlertIncident) -> bool:
        """Return whether it silences the incident."""
        if self.incident_id or self.rule_id or self.run_id:
            ours = (self.incident_id, self.rule_id, self.run_id)
            return any(
                a and a == b for a, b in zip(ours, (incident.pk, incident.rule_id, incident.run_id), strict=True)
            )
        return self.project_id is not None and self.project_id == incident.project_id


class AlertNote(models.Model):
    """A line of an incident's history: opened, acknowledged, muted, resolved, or what a person wrote."""

    incident = models.ForeignKey(AlertIncident, on_delete=models.CASCADE, related_name="notes")
    at = models.DateTimeField()
    verb = models.CharField(max_length=20)
    text = models.CharField(max_length=1000, default="")
    actor = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)


class AlertSubscription(models.Model):
    """What one person is sent of a project's incidents over channels of their own."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE)
    project = models.ForeignKey(Project, on_delete=models.CASCADE)
    runs = models.CharField(max_length=10, default="mine")  # mine | watched | all
    severity = models.CharField(max_length=10, default="warning")  # this and what is worse
    is_console = models.BooleanField(default=False)  # also of the console and its cluster
    channels = models.ManyToManyField(AlertChannel, related_name="subscriptions")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "project"], name="one_subscription")]


class RunWatch(models.Model):
    """A run that a person watches."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE)
    run = models.ForeignKey(Run, on_delete=models.CASCADE)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "run"], name="one_watch")]


class AlertMessage(models.Model):
    """The outbox: one row an event of an incident and a channel, written in the transaction of the event.

    `state`: pending -> sending -> sent, failed, or pending again. A worker holds a row in `sending` until
    `lease_until`; `handed_at` is set right before the first byte of it leaves, so that a row whose worker was killed
    tells whether the receiver may have it. `key` is what the receiver knows it by.
    """

    incident = models.ForeignKey(AlertIncident, on_delete=models.CASCADE, related_name="messages")
    channel = models.ForeignKey(AlertChannel, on_delete=models.CASCADE, related_name="messages")
    event = models.CharField(max_length=12)  # opened | resolved
    key = models.CharField(max_length=32, unique=True, default=new_message_key)
    state = models.CharField(max_length=8, default="pending", db_index=True)
    tries = models.PositiveIntegerField(default=0)
    created_at = models.DateTimeField(default=timezone.now)
    next_at = models.DateTimeField(db_index=True)
    lease_until = models.DateTimeField(null=True)
    handed_at = models.DateTimeField(null=True)
    is_repeat = models.BooleanField(default=False)  # the receiver may have it already
    answer = models.CharField(max_length=500, default="")  # what the receiver said last
    sent_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["incident", "event", "channel"], name="one_message")]
