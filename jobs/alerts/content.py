"""What goes out: one event of an incident as plain facts; each channel makes its own form of them."""

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from django.conf import settings

from jobs.alerts import words
from jobs.models import AlertMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertContent:
    """One message. `key` stays the same however often it is tried; `is_repeat`: the receiver may have it already."""

    key: str
    event: str  # opened | resolved | test
    title: str
    text: str
    severity: str
    project: str
    rule: str
    run: str
    url: str
    at: str
    incident: int
    is_flapping: bool = False
    is_repeat: bool = False

    @property
    def headline(self) -> str:
        """The title with what became of it: "Resolved: demo failed"."""
        prefix = {"resolved": "Resolved: ", "test": ""}.get(self.event, "")
        return f"{prefix}{self.title}"

    @property
    def lines(self) -> list[str]:
        """What there is to say below the headline, a sentence a line."""
        sentences = [self.text]
        if self.is_flapping:
            sentences.append("It comes and goes; the next message comes when it was quiet for 15 minutes.")
        if self.is_repeat:
            sentences.append("Possibly a repeat: the console was interrupted while it handed this over before.")
        return [line for line in sentences if line]

    def as_json(self) -> dict[str, Any]:
        """Return the facts as the generic webhook sends them."""
        return {
            "id": self.key,
            "event": self.event,
            "is_repeat": self.is_repeat,
            "title": self.title,
            "text": self.text,
            "severity": self.severity,
            "project": self.project,
            "rule": self.rule,
            "run": self.run or None,
            "incident": self.incident or None,
            "is_flapping": self.is_flapping,
            "at": self.at,
            "url": self.url,
        }


def content_of(message: AlertMessage) -> AlertContent:
    """Return the content of a message of the outbox."""
    incident = message.incident
    base = settings.PUBLIC_URL.rstrip("/")
    return AlertContent(
        key=message.key,
        event=message.event,
        title=words.title(incident),
        text=words.sentence(incident),
        severity=incident.severity,
        project=incident.project.slug if incident.project else "",
        rule=incident.rule.name,
        run=incident.run_id or "",
        url=f"{base}/runs/{quote(incident.run_id)}" if incident.run_id else f"{base}/alerts/{incident.pk}",
        at=message.created_at.isoformat(),
        incident=incident.pk,
        is_flapping=incident.is_flapping,
        is_repeat=message.is_repeat,
    )


def content_of_test(key: str, at: str, project: str) -> AlertContent:
    """Return what *Send a test* sends."""
    return AlertContent(
        key=key,
        event="test",
        title="Test from Pitwall",
        text="This channel works. Alerts will look like this.",
        severity="info",
        project=project,
        rule="",
        run="",
        url=f"{settings.PUBLIC_URL.rstrip('/')}/alerts",
        at=at,
        incident=0,
    )
