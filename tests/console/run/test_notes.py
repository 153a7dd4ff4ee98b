"""Notes of people on steps, and alerts, as the marks of a run's charts and lines of its history."""

from typing import Any

import pytest
from django.test import Client

from jobs.alerts.incidents import apply
from jobs.alerts.sighting import Sighting
from jobs.models import AlertRule, Project, Run
from jobs.runs.notes import MOST_NOTES, WRITTEN
from tests.rows import NOW, make_project, make_run, make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def project() -> Project:
    return make_project()


@pytest.fixture
def run(project: Project) -> Run:
    return make_run(project, state="running")


def signed_in(project: Project, name: str, role: str = "editor") -> Client:
    client = Client()
    client.force_login(make_user(name, project=project, role=role))
    return client


def send(client: Client, method: str, run: Run, path: str = "", **body: Any) -> Any:
    return getattr(client, method)(f"/api/runs/{run.pk}/notes{path}", body, content_type="application/json")


def test_a_note_is_written_changed_and_deleted_by_its_author(project: Project, run: Run) -> None:
    ann = signed_in(project, "ann")
    made = send(ann, "post", run, step=7, text=" the data changed here ")
    assert made.status_code == 201

    (note,) = ann.get(f"/api/runs/{run.pk}/notes").json()["notes"]
    assert (note["step"], note["text"], note["by"], note["is_own"]) == (7, "the data changed here", "ann", True)
    assert note["edited_at"] is None
    history = ann.get(f"/api/runs/{run.pk}/events").json()["events"]
    assert [(e["verb"], e["step"], e["actor"]) for e in history if e["verb"] == WRITTEN] == [(WRITTEN, 7, "ann")]

    changed = send(ann, "patch", run, f"/{note['id']}", text="the reward changed here").json()
    assert (changed["step"], changed["text"]) == (7, "the reward changed here")
    assert changed["edited_at"] is not None
    assert send(ann, "delete", run, f"/{note['id']}").status_code == 204
    assert ann.get(f"/api/runs/{run.pk}/notes").json()["notes"] == []
    assert send(ann, "delete", run, f"/{note['id']}").status_code == 204, "what is gone stays so"


def test_only_its_author_changes_a_note_and_admins_delete_any(project: Project, run: Run) -> None:
    number = send(signed_in(project, "ann"), "post", run, step=7, text="here").json()["id"]
    bob, admin = signed_in(project, "bob"), signed_in(project, "root", "admin")

    refused = send(bob, "patch", run, f"/{number}", text="there")

    assert refused.status_code == 409
    assert "This note is of ann." in refused.json()["problems"][0]["message"]
    assert send(bob, "delete", run, f"/{number}").status_code == 409
    assert send(admin, "patch", run, f"/{number}", text="there").status_code == 409
    assert bob.get(f"/api/runs/{run.pk}/notes").json()["notes"][0]["is_own"] is False
    assert send(admin, "delete", run, f"/{number}").status_code == 204


@pytest.mark.parametrize(
    ("body", "field", "says"),
    [
        ({"step": -1, "text": "x"}, "step", "The step is -1. Use 0 to"),
        ({"step": 2**40, "text": "x"}, "step", f"The step is {2**40}."),
        ({"step": 1, "text": "  "}, "text", "1 to 500 characters, this one has 0"),
        ({"step": 1, "text": "x" * 501}, "text", "this one has 501"),
    ],
)
def test_a_note_that_makes_no_sense_is_refused(
    body: dict[str, Any], field: str, says: str, project: Project, run: Run
) -> None:
    answer = send(signed_in(project, "ann"), "post", run, **body)

    (problem,) = answer.json()["problems"]
    assert (answer.status_code, problem["field"]) == (422, field)
    assert says in problem["message"]


def test_a_run_has_a_bounded_number_of_notes(project: Project, run: Run) -> None:
    ann = signed_in(project, "ann")
    run.events.bulk_create([run.events.model(run=run, at=NOW, verb=WRITTEN, text="x", step=1)] * MOST_NOTES)

    answer = send(ann, "post", run, step=1, text="one more")

    assert answer.status_code == 422
    assert "at most 500 notes" in answer.json()["problems"][0]["message"]


def test_an_alert_keeps_the_step_at_which_it_opened_and_pages_are_told(project: Project) -> None:
    run = make_run(project, state="running")
    Run.objects.filter(pk=run.pk).update(step=40)
    run.refresh_from_db()
    rule = AlertRule.objects.create(project=project, kind="no_progress", name="x", params={"minutes": 5})
    seen = Sighting(rule=rule, object_id=run.pk, run=run, is_on=True, data={"what": "no_progress", "name": run.name})

    apply([seen], rules=[rule], now=NOW)

    query = {"project": project.slug, "run": run.pk, "state": "all"}
    (alert,) = signed_in(project, "ann").get("/api/alerts", query).json()["alerts"]
    assert alert["step"] == 40
    assert Run.objects.get(pk=run.pk).capture_changes == run.capture_changes + 1
