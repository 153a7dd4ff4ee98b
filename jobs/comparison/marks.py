"""What happened to compared runs, by step: checkpoints, restarts, changes, captures, symptoms, alerts and notes."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from jobs.models import AlertIncident, Artifact, Attempt, Capture, HealthMark, RunEvent
from jobs.runs.live_changes import LiveChange, changes_in
from jobs.runs.notes import WRITTEN
from jobs.telemetry.attempt_spec import CHANGED
from jobs.telemetry.history import is_visible, limits, origins

MOST = 100
"""Of each kind for a run, the newest: more could not be told apart on a chart."""


@dataclass(slots=True)
class RunMarks:
    """Of one run: (step, attempt) of restarts, changes in its history, alerts that know their step, and notes.

    `checkpoints` are their steps, `captures` those that recorded something, `symptoms` what its health showed.
    """

    checkpoints: list[int] = field(default_factory=list)
    captures: list[Capture] = field(default_factory=list)
    symptoms: list[HealthMark] = field(default_factory=list)
    restarts: list[tuple[int, int]] = field(default_factory=list)
    changes: list[LiveChange] = field(default_factory=list)
    alerts: list[AlertIncident] = field(default_factory=list)
    notes: list[RunEvent] = field(default_factory=list)


def marks_of(run_ids: Collection[str]) -> Mapping[str, RunMarks]:
    """Return run id -> its marks, with six statements for all runs. What a run left behind (history.py) has none."""
    by_run = {run_id: RunMarks() for run_id in run_ids}
    attempts: dict[str, list[Attempt]] = defaultdict(list)
    for attempt in Attempt.objects.filter(run_id__in=run_ids).order_by("number"):
        attempts[attempt.run_id].append(attempt)
    through = {run_id: limits(origins(own)) for run_id, own in attempts.items()}
    for run_id, own in attempts.items():
        for one in own:
            end = through[run_id][one.number]
            if one.resume_attempt is not None and (end is None or end > one.resume_step):
                by_run[run_id].restarts.append((one.resume_step, one.number))
    events_of: dict[str, list[RunEvent]] = defaultdict(list)
    events = RunEvent.objects.filter(run_id__in=run_ids, verb__in=(CHANGED, WRITTEN)).select_related("actor")
    for event in events.order_by("pk"):
        events_of[event.run_id].append(event)
    for run_id, own_events in events_of.items():
        changed = [event for event in own_events if event.verb == CHANGED]
        changes = changes_in(changed, through.get(run_id, {}))
        by_run[run_id].changes = [change for change in changes if change.is_visible][-MOST:]
        by_run[run_id].notes = [event for event in own_events if event.verb == WRITTEN][-MOST:]
    alerts = AlertIncident.objects.filter(run_id__in=run_ids, step__isnull=False).order_by("pk")
    for incident in alerts:
        by_run[incident.run_id or ""].alerts.append(incident)
    for artifact in Artifact.objects.filter(run_id__in=run_ids, type="checkpoint", step__gt=0).order_by("step", "pk"):
        if is_visible(artifact.step, through.get(artifact.run_id, {}).get(artifact.attempt)):
            by_run[artifact.run_id].checkpoints.append(artifact.step)
    for capture in Capture.objects.filter(run_id__in=run_ids).order_by("created_at", "pk"):
        steps, limit = capture.recorded_steps, through.get(capture.run_id, {}).get(capture.attempt)
        if _has_begun(capture) and steps is not None and is_visible(steps[1], limit):
            by_run[capture.run_id].captures.append(capture)
    for symptom in HealthMark.objects.filter(run_id__in=run_ids).order_by("begin_step", "pk"):
        by_run[symptom.run_id].symptoms.append(symptom)
    for marks in by_run.values():
        marks.alerts = marks.alerts[-MOST:]
        marks.checkpoints = sorted(set(marks.checkpoints))[-MOST:]
        marks.captures = marks.captures[-MOST:]
        marks.symptoms = marks.symptoms[-MOST:]
    return by_run


def _has_begun(capture: Capture) -> bool:
    """Return True if steps were recorded: not of one that still waits for its steps, or never came to them."""
    return bool(capture.state_times.get("recording")) or capture.state not in ("armed", "failed", "withdrawn")
