"""Creating runs: once per request, whatever is repeated; and what is refused before anything is queued."""

from typing import Any

import pytest
from django.db import IntegrityError

from jobs.catalog.spec.parse import SpecInvalid, parse_spec
from jobs.cluster import ray_api as cluster
from jobs.models import Attempt, AuditEvent, Project, Run
from jobs.runs import launch
from jobs.runs.hub_token import hub_environment
from tests.rows import NOW, make_project, make_run, make_user

pytestmark = pytest.mark.django_db

AWAY = cluster.ClusterState(
    is_reachable=False, problem="away", away_since=None, nodes=(), cpus_total=0.0, gpus_total=0.0
)


def create(project: Project, spec: Any = None, key: str | None = None) -> tuple[Run, bool]:
    return launch.create_run(project=project, spec=spec or {}, user=None, idempotency_key=key, now=NOW)


def test_a_run_is_queued_with_a_complete_spec_and_its_demand() -> None:
    user = make_user("ada")
    project = make_project()

    run, is_new = launch.create_run(project=project, spec={"name": "first"}, user=user, idempotency_key=None, now=NOW)

    attempt = Attempt.objects.get(run=run)
    assert is_new
    assert (run.name, run.state, run.num_steps, run.created_at) == ("first", "queued", 60, NOW)
    assert parse_spec(run.spec).knob("train.num_steps") == 60
    assert attempt.submission_id == f"run-{run.pk}-a1"
    assert (attempt.num_cpus, attempt.num_gpus) == (float(parse_spec(run.spec).num_workers), 0.0)
    assert list(run.events.values_list("verb", "actor")) == [("queued", user.pk)]
    assert AuditEvent.objects.get(verb="run.create").object_id == run.pk


def test_a_run_without_a_name_is_called_after_what_it_does() -> None:
    run, _ = create(make_project(), {"algorithm": "sft"})

    assert run.name == "SFT tiny-word-problems on word-problems"


def test_runs_of_a_project_get_colors_in_turn() -> None:
    project = make_project()

    assert [create(project)[0].color for _ in range(3)] == [0, 1, 2]


def test_a_repeated_request_gives_the_first_run() -> None:
    project = make_project()

    first, was_new = create(project, key="k")
    second, is_new = create(project, key="k")

    assert (was_new, is_new) == (True, False)
    assert first == second
    assert Run.objects.count() == 1


def test_a_key_belongs_to_its_project() -> None:
    assert create(make_project(), key="k")[1]
    assert create(make_project(), key="k")[1]


def test_a_key_is_not_reused_for_another_spec() -> None:
    project = make_project()
    create(project, key="k")

    with pytest.raises(launch.KeyReused, match="Use a new key"):
        create(project, {"algorithm": "sft"}, key="k")


def test_a_request_that_loses_the_race_gets_the_winner(monkeypatch: pytest.MonkeyPatch) -> None:
    project = make_project()
    real = launch._insert
    winner: list[Run] = []

    def overtaken(*arguments: Any) -> Run:
        if not winner:
            winner.append(real(*arguments))
            raise IntegrityError("UNIQUE constraint failed: one_run_per_request")
        return real(*arguments)

    monkeypatch.setattr(launch, "_insert", overtaken)
    monkeypatch.setattr(launch.transaction, "atomic", _no_rollback)

    run, is_new = create(project, key="k")

    assert not is_new
    assert run == winner[0]


class _no_rollback:  # noqa: N801 - stands in for transaction.atomic, so that the winner's row stays
    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...


def test_a_spec_with_problems_leaves_nothing_behind() -> None:
    wrong = {"algorithm": "ppo", "trainer": {"name": "trl"}, "hardwear": {}, "knobs": {"optimizer.learning_rat": 1}}

    with pytest.raises(SpecInvalid) as caught:
        create(make_project(), wrong)

    assert {p.field for p in caught.value.problems} == {"algorithm", "hardwear", "knobs.optimizer.learning_rat"}
    assert "Did you mean optimizer.learning_rate?" in str(caught.value)
    assert not Run.objects.exists()
    assert not AuditEvent.objects.exists()


def test_a_policy_that_says_two_things_is_refused() -> None:
    with pytest.raises(SpecInvalid, match=r"2 retries are asked for, and after no failure\. Use cluster or any"):
        create(make_project(), {"policy": {"retries": 2}})

    assert not Run.objects.exists()
    assert create(make_project(), {"policy": {"retries": 2, "retry_on": "any"}})[0].spec["policy"]["retries"] == 2


def test_an_ingest_token_opens_its_own_attempt_only() -> None:
    token = launch.ingest_token("r-1", 1)

    assert launch.check_ingest_token("r-1", 1, token)
    assert not launch.check_ingest_token("r-1", 2, token)
    assert not launch.check_ingest_token("r-2", 1, token)
    assert not launch.check_ingest_token("r-1", 1, "")
    assert not launch.check_ingest_token("r-1", 1, token + "x")
    assert not launch.check_ingest_token("r-1", 1, "tökén")


def test_a_token_depends_on_the_secret_key(settings: Any) -> None:
    before = launch.ingest_token("r-1", 1)
    settings.SECRET_KEY = "another"

    assert launch.ingest_token("r-1", 1) != before


def test_a_job_is_told_where_to_report_and_on_which_device_to_run(settings: Any) -> None:
    settings.RUNNER_URL = "https://pitwall.example"
    attempt = Attempt.objects.get(run=make_run())

    environment = launch.environment(attempt)
    attempt.num_gpus = 4

    assert environment["PITWALL_URL"] == "https://pitwall.example"
    assert environment["PITWALL_DEVICE"] == "cpu"
    assert launch.environment(attempt)["PITWALL_DEVICE"] == "cuda"
    assert launch.check_ingest_token(attempt.run_id, 1, environment["PITWALL_TOKEN"])


@pytest.mark.parametrize(
    ("algorithm", "declared", "runtime"),
    [
        ("sft", "", {}),
        ("sft", "openrlhf=/srv/o/bin/python", {}),
        ("grpo", "openrlhf=/srv/o/bin/python", {"py_executable": "/srv/o/bin/python"}),
        ("grpo", "openrlhf=installed", {}),
        ("grpo", "verl=/srv/v/bin/python", {}),
        ("sft", "openrlhf-0.11.2=image:some/openrlhf:1", {"image_uri": "some/openrlhf:1"}),
    ],
)
def test_ray_is_told_of_the_place_where_another_trainer_is(
    settings: Any, monkeypatch: pytest.MonkeyPatch, algorithm: str, declared: str, runtime: dict[str, str]
) -> None:
    settings.TRAINERS = declared
    asked: dict[str, Any] = {}
    monkeypatch.setattr(cluster, "submit_job", lambda **given: asked.update(given))
    attempt = Attempt.objects.get(run=make_run(spec={"algorithm": algorithm, "trainer": {"name": "openrlhf"}}))
    attempt.num_gpus = 8

    launch.hand_over(attempt, state=AWAY, now=NOW)

    assert asked["runtime"] == runtime
    assert asked["entrypoint_gpus"] == (8 if algorithm == "sft" else 0), "a child of the runner asks Ray for nothing"
    assert asked["environment"].get("PITWALL_TRAINERS", "") == declared


@pytest.mark.parametrize(
    ("spec", "is_given"),
    [
        ({}, False),
        ({"model": {"kind": "path", "id": "/models/q"}}, False),
        ({"model": {"kind": "hub", "id": "Qwen/Qwen2.5-0.5B"}}, True),
        ({"data": {"kind": "hub", "id": "openai/gsm8k"}}, True),
        ({"data": {"mixture": {"more": {"kind": "hub", "id": "openai/gsm8k"}}}}, True),
        ({"reward": {"kind": "model", "location": "org/scorer"}}, True),
        ({"reward": {"kind": "model", "location": "/models/scorer"}}, False),
        ({"reward": {"kind": "math", "more": [{"kind": "model", "location": "org/scorer"}]}}, True),
        ({"knobs": {"models.teacher_path": {"value": "Qwen/Qwen2.5-7B"}}}, True),
        ({"knobs": {"models.teacher_path": {"value": "/models/q"}, "models.critic_path": {"value": "policy"}}}, False),
    ],
)
def test_the_hub_s_token_goes_with_runs_that_fetch_from_there_alone(
    settings: Any, spec: dict[str, Any], is_given: bool
) -> None:
    settings.HF_TOKEN = "hf_x"

    assert hub_environment(spec) == ({"HF_TOKEN": "hf_x"} if is_given else {})
    settings.HF_TOKEN = ""
    assert hub_environment(spec) == {}


def test_the_hub_s_token_travels_in_the_environment_of_the_job(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.HF_TOKEN = "hf_x"
    asked: dict[str, Any] = {}
    monkeypatch.setattr(cluster, "submit_job", lambda **given: asked.update(given))
    run = make_run(spec={"model": {"kind": "hub", "id": "Qwen/Qwen2.5-0.5B"}})

    launch.hand_over(Attempt.objects.get(run=run), state=AWAY, now=NOW)

    assert asked["environment"]["HF_TOKEN"] == "hf_x"


def test_submitting_while_ray_is_away_changes_nothing() -> None:
    run = make_run()

    launch.submit(run_id=run.pk, now=NOW)

    run.refresh_from_db()
    assert (run.state, Attempt.objects.get(run=run).submitted_at) == ("queued", None)
