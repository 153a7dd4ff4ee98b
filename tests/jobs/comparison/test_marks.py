"""What happened to compared runs: only what belongs to their history, newest last, with few statements."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from jobs.comparison.marks import MOST, marks_of
from jobs.models import AlertIncident, AlertRule, Artifact, Attempt, Capture, HealthMark, Run, RunEvent
from tests.rows import NOW, make_run

pytestmark = pytest.mark.django_db
RATE = "optimizer.learning_rate"


def tell(run: Run, verb: str, step: int, *, text: str = "", new: float | None = None) -> None:
    changes = [{"knob": RATE, "old": 1e-4, "new": new}] if new is not None else []
    RunEvent.objects.create(run=run, attempt=1, at=NOW, verb=verb, step=step, text=text, data={"changes": changes})


def resumed() -> Run:
    """Return a run whose second attempt goes on from step 6 of the first, which had come to step 9."""
    run = make_run(state="running")
    Attempt.objects.update_or_create(run=run, number=1, defaults={"state": "failed"})
    Attempt.objects.create(run=run, number=2, state="running", resume_attempt=1, resume_step=6, created_at=NOW)
    return run


def test_restarts_changes_alerts_and_notes_stand_at_their_steps() -> None:
    run, other = resumed(), make_run()
    tell(run, "knobs", 4, new=2e-4)
    tell(run, "knobs", 8, new=3e-4)  # left behind by the restart
    tell(run, "person_note", 5, text="looks odd")
    rule = AlertRule.objects.create(project=run.project, kind="waiting", params={"minutes": 5})
    about = {"rule": rule, "project": run.project, "kind": "failed", "severity": "warning", "object_id": run.pk}
    data = {"what": "failed", "name": run.name}
    AlertIncident.objects.create(run=run, step=7, data=data, opened_at=NOW, updated_at=NOW, **about)

    found = marks_of([run.pk, other.pk])

    marks = found[run.pk]
    assert marks.restarts == [(6, 2)]
    assert [(change.step, change.new) for change in marks.changes] == [(4, 2e-4)]
    assert [(incident.step, incident.kind) for incident in marks.alerts] == [(7, "failed")]
    assert [(note.step, note.text) for note in marks.notes] == [(5, "looks odd")]
    nothing = found[other.pk]
    assert (nothing.restarts, nothing.changes, nothing.alerts, nothing.notes) == ([], [], [], [])


def test_checkpoints_captures_and_symptoms_of_the_history_are_marks() -> None:
    run = resumed()
    for attempt, step in ((1, 3), (1, 6), (1, 9), (2, 8)):
        names = {"name": f"step-{step}", "path": f"step-{step}"}
        Artifact.objects.create(run=run, attempt=attempt, type="checkpoint", step=step, **names)
    for attempt, step, state in ((1, 2, "ready"), (1, 8, "ready"), (2, 7, "armed"), (2, 8, "recording")):
        Capture.objects.create(run=run, attempt=attempt, tool="torch", first_step=step, num_steps=1, state=state)
    HealthMark.objects.create(
        run=run, finding="flat_reward", tone="alarm", begin_step=2, last_step=5, end_step=5, text="x", began_at=NOW
    )

    marks = marks_of([run.pk])[run.pk]

    assert marks.checkpoints == [3, 6, 8]  # step 9 was left behind by the restart
    assert [one.recorded_steps for one in marks.captures] == [(2, 2), (8, 8)]  # nor what has recorded nothing yet
    assert [(one.begin_step, one.end_step) for one in marks.symptoms] == [(2, 5)]


def test_many_are_cut_to_the_newest_and_many_runs_take_no_more_statements() -> None:
    runs = [make_run() for _ in range(6)]
    for step in range(MOST + 5):
        tell(runs[0], "person_note", step, text="again")
    counts = []
    for some in (runs[:1], runs):
        with CaptureQueriesContext(connection) as queries:
            found = marks_of([run.pk for run in some])
        counts.append(len(queries))
        assert [note.step for note in found[runs[0].pk].notes] == list(range(5, MOST + 5))

    assert counts == [6, 6]
