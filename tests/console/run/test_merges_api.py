"""Models of checkpoints through the API: asked for, listed, called off."""

from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from console.command_line import api_client
from console.sign_in.api_token import make_token
from jobs.models import Answer, Artifact, AuditEvent, Merge, Project, Run, RunEvent
from jobs.runs.merges import settle_merge
from tests.console.commands import run_command
from tests.rows import NOW, make_artifact, make_merge, make_project, make_run, make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def project() -> Project:
    return make_project("pit")


@pytest.fixture
def api(project: Project) -> Client:
    _row, token = make_token(user=make_user("ada", project=project), name="test")
    return Client(headers={"Host": "localhost", "Authorization": f"Bearer {token}"})


@pytest.fixture
def run(project: Project) -> Run:
    run = make_run(project, state="finished")
    make_artifact(run, "checkpoint-3", type="checkpoint", step=3, is_ready=False)
    return run


def token_of(project: Project, *, role: str) -> str:
    return make_token(user=make_user(project=project, role=role), name="test")[1]


def ask(api: Client, run: Run, step: int = 3) -> Any:
    return api.post(f"/api/runs/{run.pk}/checkpoints/1/{step}/merge")


def test_a_model_is_asked_for_followed_and_called_off(api: Client, run: Run) -> None:
    made = ask(api, run)
    assert made.status_code == 201
    merge = made.json()
    about = {name: merge[name] for name in ("attempt", "step", "state", "problem", "artifact_id", "author")}
    own = {"attempt": 1, "step": 3, "state": "queued", "problem": "", "artifact_id": None, "author": "ada"}
    assert about == own
    assert api.get(f"/api/runs/{run.pk}/merges").json()["merges"] == [merge]

    again = ask(api, run)
    assert again.status_code == 409
    assert "Wait for it" in again.json()["problems"][0]["message"]

    canceled = api.delete(f"/api/runs/{run.pk}/merges/{merge['id']}")
    assert canceled.json()["state"] == "canceled"
    assert api.delete(f"/api/runs/{run.pk}/merges/{merge['id']}").status_code == 409
    assert ask(api, run).status_code == 201


def test_a_model_that_was_made_is_deleted_and_may_be_made_again(
    api: Client, project: Project, run: Run, settings: Any, tmp_path: Path, django_capture_on_commit_callbacks: Any
) -> None:
    settings.FILES_DIR = tmp_path
    merge = Merge.objects.get(pk=ask(api, run).json()["id"])
    made = make_artifact(run, merge.file_name, step=3)
    made.stored_path.parent.mkdir(parents=True)
    made.stored_path.write_bytes(b"bin")
    settle_merge(merge, problem="", now=NOW)
    address = f"/api/runs/{run.pk}/merges/{merge.pk}"
    reader = Client(headers={"Host": "localhost", "Authorization": f"Bearer {token_of(project, role='viewer')}"})

    assert reader.delete(address).status_code == 403
    answer = Answer.objects.create(run=run, artifact=made, submission_id="x", created_at=NOW)
    busy = api.delete(address)
    assert busy.status_code == 409
    assert "is being asked a prompt" in busy.json()["problems"][0]["message"]
    Answer.objects.filter(pk=answer.pk).update(state="finished")
    with django_capture_on_commit_callbacks(execute=True):
        gone = api.delete(address).json()

    assert (gone["state"], gone["artifact_id"]) == ("finished", None)
    assert not made.stored_path.exists()
    assert not Artifact.objects.filter(pk=made.pk).exists()
    assert RunEvent.objects.filter(run=run, verb="merge").latest("pk").text == "model-step-3.zip deleted"
    assert AuditEvent.objects.latest("pk").verb == "run.delete_model"
    assert api.delete(address).status_code == 409
    assert ask(api, run).status_code == 201


def test_what_cannot_be_made_is_said_beside_its_field(api: Client, project: Project, run: Run) -> None:
    answer = ask(api, run, step=4)

    (problem,) = answer.json()["problems"]
    assert (answer.status_code, problem["field"]) == (422, "step")
    assert "has no checkpoint of step 4" in problem["message"]
    assert ask(api, make_run(make_project(), state="finished")).status_code == 404


def test_a_merge_of_another_run_is_not_there(api: Client, project: Project, run: Run) -> None:
    other = make_merge(make_run(make_project(), state="finished"))

    for merge_id in (other.pk, 10**30):
        assert api.delete(f"/api/runs/{run.pk}/merges/{merge_id}").status_code == 404
    assert Merge.objects.get(pk=other.pk).state == "queued"


@pytest.mark.usefixtures("served_here")
def test_a_model_is_asked_for_from_the_command_line(
    project: Project, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = make_token(user=make_user("bob", project=project), name="test")[1]
    monkeypatch.setenv("PITWALL_API_TOKEN", token)
    monkeypatch.setattr(
        api_client.time, "sleep", lambda _: settle_merge(Merge.objects.get(run=run), problem="No room.", now=NOW)
    )

    code, said, _ = run_command("make_model", run.pk, "3", "--wait")
    refused, _, why = run_command("make_model", run.pk, "4", "--attempt", "1")

    assert (code, refused) == (1, 3)
    assert said.splitlines()[-1] == "No room."
    assert "has no checkpoint of step 4" in why


@pytest.mark.usefixtures("served_here")
def test_a_merge_that_is_gone_while_it_is_waited_for_is_a_refusal(
    project: Project, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PITWALL_API_TOKEN", make_token(user=make_user("bob", project=project), name="test")[1])
    monkeypatch.setattr(api_client.time, "sleep", lambda _: Merge.objects.all().delete())

    code, _, why = run_command("make_model", run.pk, "3", "--wait")

    assert code == 3
    assert "has no merge" in why
