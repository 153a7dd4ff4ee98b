"""The API of runs: launch once, find, change, stop, and refuse with a sentence beside the field."""

import csv
import io
import json
from typing import Any

import pytest
from django.test import Client

from console.api.runs import runs as runs_api
from console.sign_in.api_token import make_token
from jobs.models import AuditEvent, Command, Project, Run
from jobs.runs.checks import check_launchable
from tests.console.fake_runner import content
from tests.rows import make_artifact, make_project, make_run, make_user

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Launch without trying data, model and reward in a process of their own; one test here does."""
    monkeypatch.setattr(runs_api, "check_launchable", lambda *_, **__: [])


@pytest.fixture
def project() -> Project:
    return make_project("pit")


def client_of(project: Project, role: str = "editor", name: str = "") -> Client:
    user = make_user(name, project=project, role=role)
    _row, token = make_token(user=user, name="test")
    return Client(headers={"Host": "localhost", "Authorization": f"Bearer {token}"})


@pytest.fixture
def api(project: Project) -> Client:
    return client_of(project, name="ada")


def post(client: Client, path: str, body: Any = None, **headers: str) -> Any:
    return client.post(path, json.dumps(body), content_type="application/json", headers=headers)


def fields(answer: Any) -> set[str]:
    return {problem["field"] for problem in answer.json()["problems"]}


def test_launching_queues_a_run_and_says_where_to_watch_it(api: Client, project: Project) -> None:
    answer = post(api, "/api/runs", {"name": "first", "knobs": {"train.num_steps": 5}})

    run = Run.objects.get()
    assert answer.status_code == 201
    assert answer.json()["run"]["id"] == run.pk
    assert answer.json()["run"]["state"] == "queued"
    assert answer.json()["url"].endswith(f"/runs/{run.pk}")
    assert (run.project, run.num_steps, run.created_by and run.created_by.get_username()) == (project, 5, "ada")


def test_a_retried_request_gives_the_same_run(api: Client) -> None:
    first = post(api, "/api/runs", {}, **{"Idempotency-Key": "k"})
    second = post(api, "/api/runs", {}, **{"Idempotency-Key": "k"})

    assert (first.status_code, second.status_code) == (201, 200)
    assert first.json()["run"]["id"] == second.json()["run"]["id"]
    assert Run.objects.count() == 1


def test_a_spec_that_says_nothing_is_launched_and_said_to_be_the_default(api: Client) -> None:
    note = "The spec says nothing: this is the default run, GRPO tiny-word-problems on word-problems, of 60 steps."

    assert post(api, "/api/runs", {}).json()["note"] == note
    assert post(api, "/api/runs", {"algorithm": "grpo"}).json()["note"] == ""


def test_a_key_used_for_another_spec_is_a_conflict(api: Client) -> None:
    post(api, "/api/runs", {}, **{"Idempotency-Key": "k"})

    answer = post(api, "/api/runs", {"algorithm": "sft"}, **{"Idempotency-Key": "k"})

    assert answer.status_code == 409
    assert fields(answer) == {"Idempotency-Key"}


@pytest.mark.parametrize(
    ("spec", "field", "words"),
    [
        ({"algorithm": "ppo", "trainer": {"name": "trl"}}, "algorithm", "Use Built-in trainer"),
        (
            {"knobs": {"optimizer.learning_rat": 1}},
            "knobs.optimizer.learning_rat",
            "Did you mean optimizer.learning_rate",
        ),
        ({"knobs": {"optimizer.learning_rate": "fast"}}, "knobs.optimizer.learning_rate", "'fast' is not allowed"),
        ({"knobs": {"optimizer.learning_rate": None}}, "knobs.optimizer.learning_rate", "null is not allowed"),
        ({"name": "x" * 5000}, "name", f"'{'x' * 199}… is not a name. Use up to 120 characters on one line."),
        ({"hardwear": {}}, "hardwear", "Did you mean hardware"),
        ({"reward": {"kind": "custom"}}, "reward.source", "needs its Python file"),
        ([], "spec", "A run spec is a JSON object, not list"),
        ("text", "spec", "A run spec is a JSON object, not str"),
        (None, "spec", "A run spec is a JSON object"),
    ],
)
def test_a_wrong_spec_is_refused_beside_its_field(api: Client, spec: Any, field: str, words: str) -> None:
    answer = post(api, "/api/runs", spec)

    assert answer.status_code == 422
    assert any(p["field"] == field and words in p["message"] for p in answer.json()["problems"]), answer.json()
    assert not Run.objects.exists()


def test_a_body_that_is_no_json_is_refused(api: Client) -> None:
    answer = api.post("/api/runs", "{not json", content_type="application/json")

    assert answer.status_code == 400
    assert answer.json()["problems"][0]["message"]
    assert not Run.objects.exists()


def test_data_that_is_not_there_is_refused_before_anything_is_queued(
    api: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs_api, "check_launchable", check_launchable)

    answer = post(api, "/api/runs", {"data": {"kind": "path", "id": "/nowhere/rows.jsonl"}})

    assert answer.status_code == 422
    assert fields(answer) == {"data.id"}
    assert "/nowhere/rows.jsonl" in answer.json()["problems"][0]["message"]
    assert not Run.objects.exists()


def test_viewers_read_but_do_not_launch_or_stop(project: Project) -> None:
    viewer = client_of(project, "viewer")
    run = make_run(project)

    assert viewer.get(f"/api/runs/{run.pk}").status_code == 200
    for answer in (
        post(viewer, "/api/runs", {}),
        post(viewer, f"/api/runs/{run.pk}/stop"),
        viewer.patch(f"/api/runs/{run.pk}", json.dumps({"name": "x"}), content_type="application/json"),
    ):
        assert answer.status_code == 403
        assert "This needs the role editor; yours is viewer" in answer.json()["problems"][0]["message"]


def test_a_run_of_another_project_does_not_exist(api: Client) -> None:
    run = make_run(make_project("other"))

    assert api.get(f"/api/runs/{run.pk}").status_code == 404
    assert api.get(f"/api/runs/{run.pk}").json() == api.get("/api/runs/r-nothing").json()
    assert api.get("/api/runs?project=other").status_code == 404


def test_lists_filter_sort_and_page(api: Client, project: Project) -> None:
    for rate, reward in ((1e-4, 0.2), (2e-4, 0.9), (5e-4, None)):
        values = {"reward/mean": reward} if reward is not None else {}
        make_run(project, state="finished", spec={"knobs": {"optimizer.learning_rate": rate}}, latest_values=values)
    make_run(project, spec={"algorithm": "sft", "name": "warm-up"})

    def listed(query: str) -> list[Any]:
        found = api.get(f"/api/runs?column=optimizer.learning_rate&{query}").json()
        return [row["knobs"]["optimizer.learning_rate"] for row in found["runs"]]

    assert listed("q=optimizer.learning_rate>1e-4&algorithm=grpo&sort=optimizer.learning_rate") == [2e-4, 5e-4]
    assert listed("q=reward/mean>=0.2&sort=-reward/mean") == [2e-4, 1e-4]
    assert listed("state=finished&sort=-reward/mean") == [2e-4, 1e-4, 5e-4]
    assert len(listed("q=warm-up")) == 1
    page = api.get("/api/runs?page_size=3&page=2").json()
    assert (page["total"], page["num_pages"], len(page["runs"])) == (4, 2, 1)
    assert page["states"] == {"finished": 3, "queued": 1}


@pytest.mark.parametrize(
    ("query", "field", "words"),
    [
        ("q=optimizer.learning_rat>1", "q", "Did you mean optimizer.learning_rate?"),
        ("q=reward/mean>high", "q", "'high' is not a number"),
        ("state=done", "state", "There is no state 'done'"),
        ("sort=rewrd", "sort", "There is no column 'rewrd'. Use created, name, state, "),
        ("page=0", "page", "a number of at least 1"),
    ],
)
def test_a_filter_that_names_nothing_is_refused(api: Client, query: str, field: str, words: str) -> None:
    answer = api.get(f"/api/runs?{query}")

    assert answer.status_code == 422
    assert fields(answer) == {field}
    assert words in answer.json()["problems"][0]["message"]


def test_a_query_of_too_many_fields_is_refused_in_a_sentence(api: Client) -> None:
    answer = api.get("/api/runs?" + "&".join(["tag=x"] * 1001))

    assert answer.status_code == 400
    assert answer.json()["problems"] == [
        {"field": "", "message": "The query has too many fields; at most 1,000 are allowed."}
    ]


def test_runs_come_as_csv_that_no_spreadsheet_executes(api: Client, project: Project) -> None:
    make_run(project, spec={"name": "=cmd()"}, state="finished", latest_values={"reward/mean": 0.5})

    answer = api.get("/api/runs/export.csv")

    assert answer["Content-Type"].startswith("text/csv")
    (row,) = csv.DictReader(io.StringIO(content(answer).decode()))
    assert row["name"] == "'=cmd()"
    assert (row["state"], row["reward/mean"], row["train.num_steps"]) == ("finished", "0.5", "60")


def patch(client: Client, run: Run, body: Any) -> Any:
    return client.patch(f"/api/runs/{run.pk}", json.dumps(body), content_type="application/json")


def test_name_tags_note_and_archive_change_and_are_audited(api: Client, project: Project) -> None:
    run = make_run(project, state="finished")

    answer = patch(api, run, {"name": " best ", "tags": ["a", "b", "a"], "note": "why", "is_archived": True})

    header = answer.json()
    assert answer.status_code == 200
    assert (header["name"], header["tags"], header["note"]) == ("best", ["a", "b"], "why")
    assert header["archived_at"]
    assert AuditEvent.objects.get(verb="run.change").after["name"] == "best"
    assert patch(api, run, {"is_archived": False}).json()["archived_at"] is None


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"name": "  "}, "name"),
        ({"name": "a\nb"}, "name"),
        ({"tags": ["two words"]}, "tags"),
        ({"tags": [str(i) for i in range(21)]}, "tags"),
        ({"note": "x" * 20_001}, "note"),
        ({"nmae": "typo"}, "nmae"),
        ({"name": 7}, "name"),
    ],
)
def test_a_wrong_change_changes_nothing(api: Client, project: Project, body: Any, field: str) -> None:
    run = make_run(project, spec={"name": "kept"})

    answer = patch(api, run, {"note": "new", **body})

    run.refresh_from_db()
    assert answer.status_code == 422
    assert fields(answer) == {field}
    assert (run.name, run.note) == ("kept", "")


def test_a_live_run_is_not_archived(api: Client, project: Project) -> None:
    answer = patch(api, make_run(project, state="running"), {"is_archived": True})

    assert answer.status_code == 409
    assert "Stop it before you archive it" in answer.json()["problems"][0]["message"]


def test_stopping_twice_stops_once(api: Client, project: Project) -> None:
    run = make_run(project, state="running")

    first, second = post(api, f"/api/runs/{run.pk}/stop"), post(api, f"/api/runs/{run.pk}/stop")

    assert (first.json()["is_changed"], second.json()["is_changed"]) == (True, False)
    assert first.json()["run"]["state"] == "stopping"
    assert Command.objects.filter(verb="stop").count() == 1


def test_only_a_running_run_saves_a_checkpoint(api: Client, project: Project) -> None:
    assert post(api, f"/api/runs/{make_run(project, state='running').pk}/checkpoint").status_code == 200
    assert post(api, f"/api/runs/{make_run(project).pk}/checkpoint").status_code == 409


def test_a_spec_read_back_launches_the_same_run(api: Client, project: Project) -> None:
    run = make_run(project, spec={"knobs": {"train.num_steps": 7}})

    spec = api.get(f"/api/runs/{run.pk}/spec").json()
    again = post(api, "/api/runs", spec).json()["run"]["id"]

    assert Run.objects.get(pk=again).spec == run.spec


def test_history_and_artifacts_are_listed(api: Client, project: Project) -> None:
    run = make_run(project, state="finished")
    make_artifact(run)
    make_artifact(run, "tb", type="tensorboard", is_ready=False)

    events = api.get(f"/api/runs/{run.pk}/events").json()
    artifacts = api.get(f"/api/runs/{run.pk}/artifacts").json()["artifacts"]

    assert [e["verb"] for e in events["events"]] == ["queued"]
    assert [(a["name"], a["download_url"] is not None) for a in artifacts] == [("model/final", True), ("tb", False)]


def test_a_prompt_is_asked_of_a_ready_model_only(api: Client, project: Project) -> None:
    run = make_run(project, state="finished")
    model, folder = make_artifact(run), make_artifact(run, "tb", type="tensorboard")
    path = f"/api/runs/{run.pk}/answers"

    answer = post(api, path, {"artifact_id": model.pk, "prompt": "1+1?"})

    assert (answer.status_code, answer.json()["state"]) == (201, "queued")
    assert api.get(f"{path}/{answer.json()['id']}").json()["prompt"] == "1+1?"
    assert post(api, path, {"artifact_id": model.pk, "prompt": "2+2?"}).status_code == 409
    assert post(api, path, {"artifact_id": folder.pk, "prompt": "hi"}).status_code == 422
    assert post(api, path, {"artifact_id": 10**6, "prompt": "hi"}).status_code == 404
    assert len(api.get(path).json()["answers"]) == 1
