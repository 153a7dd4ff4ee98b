"""Resuming through the API and the command line: checkpoints listed, refusals beside their fields, one attempt each."""

import json
from typing import Any

import pytest
from django.core.management import CommandError
from django.test import Client
from django.utils import timezone

from console.command_line import api_client
from console.sign_in.api_token import make_token
from jobs.models import Attempt, Project, Run
from jobs.runs.launch import ingest_token
from jobs.runs.retry import queue_retries
from tests.attempts import begin_training, end, lose_checkpoint, train
from tests.console.commands import run_command
from tests.rows import make_project, make_run, make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def project() -> Project:
    return make_project("pit")


@pytest.fixture
def api(project: Project) -> Client:
    _row, token = make_token(user=make_user("ada", project=project), name="test")
    return Client(headers={"Host": "localhost", "Authorization": f"Bearer {token}"})


def failed_run(project: Project) -> Run:
    run = make_run(project, state="running")
    train(run, range(1, 58))
    end(run)
    run.refresh_from_db()
    return run


def post(client: Client, run: Run, body: Any) -> Any:
    return client.post(f"/api/runs/{run.pk}/resume", json.dumps(body), content_type="application/json")


def problem(answer: Any) -> tuple[int, str, str]:
    (only,) = answer.json()["problems"]
    return answer.status_code, only["field"], only["message"]


def test_checkpoints_are_listed_with_what_the_run_would_train_with(api: Client, project: Project) -> None:
    run = failed_run(project)

    answer = api.get(f"/api/runs/{run.pk}/checkpoints").json()

    about = [(c["step"], c["attempt"], c["score_name"], c["score"], c["is_visible"]) for c in answer["checkpoints"]]
    assert about == [(40, 1, "reward/mean", 0.4, True), (20, 1, "reward/mean", 0.2, True)]
    assert (answer["hardware"]["policy_ranks"], answer["num_steps"]) == (2, 60)


def test_a_run_of_another_trainer_begins_at_the_start_again(api: Client, project: Project) -> None:
    run = make_run(project, state="running", spec={"trainer": {"name": "openrlhf"}, "algorithm": "sft"})
    end(run)

    assert api.get(f"/api/runs/{run.pk}/checkpoints").json()["checkpoints"] == []
    answer = post(api, run, {"step": None})

    assert (answer.status_code, answer.json()["attempt"]) == (201, 2)
    assert Attempt.objects.get(run=run, number=2).resume_attempt is None


def test_a_lost_checkpoint_is_told_and_may_be_tried_again(api: Client, project: Project) -> None:
    run = failed_run(project)
    post(api, run, {"step": 40})
    why = lose_checkpoint(run, 2)

    listed = api.get(f"/api/runs/{run.pk}/checkpoints").json()["checkpoints"]
    files = api.get(f"/api/runs/{run.pk}/artifacts").json()["artifacts"]

    assert [(c["step"], c["problem"]) for c in listed] == [(40, why), (20, "")]
    assert [(f["step"], f["problem"]) for f in files] == [(20, ""), (40, why)]
    assert post(api, run, {"step": 40}).status_code == 201


def test_a_resume_answers_with_the_new_attempt_and_its_runner_gets_what_it_needs(api: Client, project: Project) -> None:
    run = failed_run(project)

    answer = post(api, run, {"step": 40, "hardware": {"policy_ranks": 1}, "num_steps": 90})

    assert answer.status_code == 201
    body = answer.json()
    assert (body["attempt"], body["run"]["state"], body["run"]["step"], body["run"]["num_steps"]) == (
        2,
        "queued",
        40,
        90,
    )
    assert [(a["number"], a["by"], a["visible_through"]) for a in body["run"]["attempts"]] == [
        (1, "", 40),
        (2, "ada", None),
    ]
    endpoint = Client(headers={"Host": "localhost", "Authorization": f"Bearer {ingest_token(run.pk, 2)}"})
    launch = endpoint.get(f"/ingest/{run.pk}/2/launch").json()
    assert launch["resume"] == {"attempt": 1, "step": 40}
    assert launch["spec"]["hardware"]["policy_ranks"] == 1
    assert launch["spec"]["knobs"]["train.num_steps"]["value"] == 90
    assert launch["commands"] == []


def test_the_old_attempt_is_fenced(api: Client, project: Project) -> None:
    run = failed_run(project)
    post(api, run, {"step": 40})
    old = Client(headers={"Host": "localhost", "Authorization": f"Bearer {ingest_token(run.pk, 1)}"})

    answers = [
        old.get(f"/ingest/{run.pk}/1/launch"),
        old.post(f"/ingest/{run.pk}/1/events", {"batch": 0, "events": []}, content_type="application/json"),
        old.put(f"/ingest/{run.pk}/1/files/x?offset=0&size=1&sha256={'0' * 64}&type=model", b"x"),
    ]

    assert [answer.status_code for answer in answers] == [409, 409, 409]
    assert old.get(f"/ingest/{run.pk}/2/launch").status_code == 401


@pytest.mark.parametrize(
    ("body", "status", "field", "said"),
    [
        ({"step": 50}, 422, "step", "There is no checkpoint of step 50. Use one of 40, 20, or restart from the start."),
        ({"step": 40, "hardware": {"policy_ranks": 3}}, 422, "knobs.rollout.prompts_per_step", "do not divide by 3"),
        ({"step": 40, "hardware": {"policy_ranks": "x"}}, 422, "hardware.policy_ranks", "'x' is not allowed"),
        ({"step": 40, "model": {"id": "other"}}, 422, "model", "for model, clone the run"),
        ({"step": 40, "num_steps": 40}, 422, "num_steps", ""),
        ({"step": -1}, 422, "step", "-1 is not allowed. Use a number of at least 0."),
        ({}, 422, "step", "This field is missing"),
    ],
)
def test_refusals_name_their_field(
    api: Client, project: Project, body: Any, status: int, field: str, said: str
) -> None:
    run = failed_run(project)
    if said == "":
        Run.objects.filter(pk=run.pk).update(state="finished")

    found = problem(post(api, run, body))

    assert found[:2] == (status, field)
    assert said in found[2]
    assert Attempt.objects.filter(run=run).count() == 1


def test_the_second_click_is_told_of_the_first(api: Client, project: Project) -> None:
    run = failed_run(project)

    assert post(api, run, {"step": 40}).status_code == 201
    status, field, said = problem(post(api, run, {"step": 40}))

    assert (status, field) == (409, "state")
    assert "attempt 2 is under way" in said


def test_the_series_of_a_resumed_run_come_as_one_line_when_asked(api: Client, project: Project) -> None:
    run = failed_run(project)
    post(api, run, {"step": 40})
    begin_training(run, 2)
    train(run, [41, 42], attempt=2, reward=1)

    apart = api.get(f"/api/runs/{run.pk}/series?metrics=reward/mean").json()["series"]
    (clean,) = api.get(f"/api/runs/{run.pk}/series?metrics=reward/mean&history=clean").json()["series"]

    assert [(s["attempt"], s["n"]) for s in apart] == [(1, 57), (2, 2)]
    assert clean["x"] == list(range(1, 43))
    assert clean["y"][-3:] == [0.4, 1.41, 1.42]


def test_a_clone_of_a_resumed_run_begins_with_what_the_run_has_become(api: Client, project: Project) -> None:
    spec = {"policy": {"retries": 3, "retry_on": "any"}, "profile": {"tool": "torch", "first_step": 5, "num_steps": 2}}
    run = make_run(project, state="running", spec=spec)
    train(run, range(1, 41))
    end(run)
    post(api, run, {"step": 40, "hardware": {"policy_ranks": 1}, "num_steps": 80})
    page = Client(headers={"Host": "localhost"})
    page.force_login(make_user("bob", project=project))

    form = page.get(f"/runs/new?from={run.pk}").context["by"]
    exported = page.get(f"/runs/{run.pk}/spec.json").json()

    assert (form["hardware"]["policy_ranks"], form["knobs"]["train"]["num_steps"]) == ("1", "80")
    assert (form["policy"], form["profile"]["tool"]) == ({"retries": "3", "retry_on": "any"}, "torch")
    assert exported == api.get(f"/api/runs/{run.pk}/spec").json()
    assert (exported["hardware"]["policy_ranks"], exported["policy"]["retries"]) == (1, 3)


# -- the command line --


@pytest.fixture
def _shell(served_here: None, monkeypatch: pytest.MonkeyPatch, project: Project) -> None:
    monkeypatch.setenv("PITWALL_API_TOKEN", make_token(user=make_user("eve", project=project), name="cli")[1])


@pytest.mark.usefixtures("_shell")
def test_the_command_goes_on_from_the_newest_checkpoint(project: Project) -> None:
    run = failed_run(project)

    code, out, _err = run_command("resume", run.pk, "--ranks", "1", "--steps", "80")

    attempt = Attempt.objects.get(run=run, number=2)
    assert (code, out) == (0, f"{run.pk} queued again from checkpoint 40, attempt 2\n")
    assert (attempt.resume_step, attempt.overrides["hardware"]) == (40, {"policy_ranks": 1})
    assert Run.objects.get(pk=run.pk).num_steps == 80


@pytest.mark.usefixtures("_shell")
def test_the_command_passes_over_what_is_lost(project: Project) -> None:
    run = failed_run(project)
    for attempt, step in [(2, 40), (3, 20)]:
        assert run_command("resume", run.pk)[1].endswith(f"from checkpoint {step}, attempt {attempt}\n")
        why = lose_checkpoint(run, attempt)

    with pytest.raises(CommandError, match=r"no checkpoint to go on from\. .* name it: --step 40 \(.*") as refused:
        run_command("resume", run.pk)

    assert why.startswith("checkpoint 20")
    assert refused.value.returncode == 3
    assert run_command("resume", run.pk, "--step", "20")[1].endswith("from checkpoint 20, attempt 4\n")


@pytest.mark.usefixtures("_shell")
def test_the_command_starts_again_from_the_start(project: Project) -> None:
    run = failed_run(project)

    assert run_command("resume", run.pk, "--from-start")[1].endswith("from the start, attempt 2\n")
    with pytest.raises(CommandError, match="takes no checkpoint"):
        run_command("resume", run.pk, "--from-start", "--step", "20")


@pytest.mark.usefixtures("_shell")
def test_the_command_says_what_was_refused(project: Project) -> None:
    run = failed_run(project)

    code, _out, err = run_command("resume", run.pk, "--step", "21")

    assert code == 3
    assert "step: There is no checkpoint of step 21. Use one of 40, 20" in err


@pytest.mark.usefixtures("_shell")
def test_the_command_follows_to_the_end_over_a_retry(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    run = failed_run(project)
    Run.objects.filter(pk=run.pk).update(spec={**run.spec, "policy": {"retries": 1, "retry_on": "cluster"}})
    ends = iter(["failed", "finished"])

    def next_end(_seconds: float) -> None:
        number = Run.objects.get(pk=run.pk).latest_attempt
        state = next(ends)
        begin_training(run, number)
        end(run, state, attempt=number, side="cluster", now=timezone.now())
        if state == "failed":
            queue_retries(now=timezone.now())

    monkeypatch.setattr(api_client.time, "sleep", next_end)

    code, out, _err = run_command("resume", run.pk, "--step", "40", "--wait")

    assert code == 0
    assert "Retries at" in out
    assert "attempt 3 of 3" in out


def test_a_checkpoint_is_pinned_and_released_by_its_step(api: Client, project: Project) -> None:
    run = make_run(project, state="running")
    train(run, range(1, 45))

    def put(step: int, body: Any) -> Any:
        return api.put(
            f"/api/runs/{run.pk}/checkpoints/1/{step}/pin", json.dumps(body), content_type="application/json"
        )

    answers = [put(20, {"is_pinned": is_pinned}) for is_pinned in (True, True, False)]

    assert [(answer.status_code, answer.json()["is_changed"]) for answer in answers] == [
        (200, True),
        (200, False),
        (200, True),
    ]
    told = [command.payload for command in Attempt.objects.get(run=run).commands.filter(verb="pin").order_by("pk")]
    assert told == [{"step": 20, "is_pinned": True}, {"step": 20, "is_pinned": False}]
    assert problem(put(30, {"is_pinned": True})) == (
        422,
        "step",
        "Attempt 1 has no checkpoint of step 30 (any more).",
    )
    assert put(20, {"is_pinned": True, "forever": True}).status_code == 422


def test_a_trainer_that_takes_no_pins_while_it_trains_refuses_them(api: Client, project: Project) -> None:
    run = make_run(project, state="running", spec={"trainer": {"name": "openrlhf"}})
    train(run, range(1, 25))
    place = f"/api/runs/{run.pk}/checkpoints/1/20/pin"

    status, field, message = problem(api.put(place, '{"is_pinned": true}', content_type="application/json"))

    assert (status, field) == (409, "state")
    assert message.endswith("Pin when it has ended.")
