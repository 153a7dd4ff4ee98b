"""Who may start a run that executes code or overwrites files: admins of its project, on every way in."""

import json
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from console.forms.new_run.form import spec_to_form
from console.sign_in.api_token import make_token
from jobs.accounts.access import TokenLimits, User, limit
from jobs.accounts.privilege import check_privileged, privileged
from jobs.catalog.knob import knobs
from jobs.catalog.recipe import recipes
from jobs.catalog.spec.parse import SpecInvalid, parse_spec
from jobs.models import Attempt, Membership, Project, Run, RunEvent, Study
from jobs.runs import launch
from jobs.runs.resume import ResumeRefused, resume_run
from jobs.runs.retry import queue_retries
from jobs.runs.retry_policy import TOO_LATE
from tests.attempts import end
from tests.jobs.sweeps.test_sweeps import made
from tests.rows import NOW, make_project, make_run, make_user

pytestmark = pytest.mark.django_db

HOOK = "profiling.finish_command"
SPEC: dict[str, Any] = {"trainer": {"name": "verl"}, "algorithm": "grpo", "knobs": {HOOK: "cat /etc/shadow"}}
SAID = "Command after profiling makes a run execute code or overwrite files on the cluster, so only an admin"


@pytest.fixture
def project() -> Project:
    return make_project("pit")


@pytest.fixture
def admin(project: Project) -> Any:
    return make_user("ada", project=project, role="admin")


@pytest.fixture
def editor(project: Project) -> Any:
    return make_user("eve", project=project, role="editor")


@pytest.fixture
def ended(project: Project, admin: Any) -> Run:
    """A run of the admin that has failed, with the hook."""
    run = make_run(project, state="running", spec={**SPEC, "policy": {"retries": 2, "retry_on": "any"}}, user=admin)
    end(run, side="cluster")
    run.refresh_from_db()
    return run


def api(user: Any, **limits: Any) -> Client:
    token = make_token(user=user, name="test", **limits)[1]
    return Client(headers={"Host": "localhost", "Authorization": f"Bearer {token}"})


def ask(client: Client, path: str, body: Any) -> tuple[int, dict[str, str]]:
    answer = client.post(path, json.dumps(body), content_type="application/json")
    return answer.status_code, {p["field"]: p["message"] for p in answer.json().get("problems", [])}


def again(run: Run, user: Any) -> Attempt:
    return resume_run(run_id=run.pk, step=None, hardware={}, user=user, now=NOW)


def limited(user: Any) -> User:
    limit(user, TokenLimits(role="editor"))
    return user  # type: ignore[no-any-return]


@pytest.mark.parametrize("who", ["nobody", "editor", "admin elsewhere", "admin by an editor's token"])
def test_no_way_in_takes_from_others_what_is_an_admin_s(project: Project, admin: Any, ended: Run, who: str) -> None:
    elsewhere = make_user("cy", project=make_project("other"), role="admin")
    person = {
        "nobody": None,
        "editor": make_user("eve", project=project),
        "admin elsewhere": elsewhere,
        "admin by an editor's token": limited(admin),
    }[who]

    with pytest.raises(SpecInvalid, match="only an admin"):
        launch.create_run(project=project, spec=SPEC, user=person, idempotency_key=None, now=NOW)  # type: ignore[arg-type]
    with pytest.raises(SpecInvalid, match="only an admin"):
        made(project, spec=SPEC, user=person)
    with pytest.raises(ResumeRefused, match="only an admin") as refused:
        again(ended, person)

    assert (refused.value.field, refused.value.needs_admin) == (f"knobs.{HOOK}", True)
    assert (Run.objects.count(), Attempt.objects.count(), Study.objects.count()) == (1, 1, 0)


def test_an_admin_comes_in_on_every_way(project: Project, admin: Any, ended: Run) -> None:
    assert again(ended, admin).number == 2
    assert launch.create_run(project=project, spec=SPEC, user=admin, idempotency_key=None, now=NOW)[1]
    assert made(project, spec=SPEC, user=admin)[1]


def test_a_sweep_over_what_is_an_admin_s_is_refused_whole(project: Project, editor: Any) -> None:
    over = [{"id": "models.trust_remote_code", "values": [False, True]}]

    with pytest.raises(SpecInvalid, match="Run the model's own code"):
        made(project, spec={**SPEC, "knobs": {}}, knobs=over, user=editor)

    assert (Run.objects.count(), Study.objects.count()) == (0, 0)


def test_an_editor_is_told_by_page_and_api_which_field_it_is(project: Project, ended: Run, editor: Any) -> None:
    client, browser = api(editor), Client(headers={"Host": "localhost"})
    browser.force_login(editor, backend="django.contrib.auth.backends.ModelBackend")
    sweep = {"knobs": [{"id": "algorithm.kl_coefficient", "values": [0.1, 0.2]}], "method": "grid"}
    form = spec_to_form(parse_spec(SPEC)) | {"idempotency_key": "k"}
    header = {"headers": {"Accept": "application/json"}}

    checked = client.post("/api/specs/check", json.dumps(SPEC), content_type="application/json").json()
    cloned = browser.post(reverse("new-run"), form, **header)  # what Clone and Import fill the form with
    typed = browser.post(reverse("new-run-check"), form)

    status, problems = ask(client, f"/api/runs/{ended.pk}/resume", {"step": None})
    assert (status, problems[f"knobs.{HOOK}"].startswith(SAID)) == (403, True)
    status, problems = ask(client, "/api/runs", SPEC)
    assert (status, problems[f"knobs.{HOOK}"].startswith(SAID)) == (422, True)
    status, problems = ask(client, "/api/studies", {"spec": SPEC, "sweep": sweep})
    assert (status, any(SAID in text for text in problems.values())) == (422, True)
    assert not checked["is_launchable"]
    for answer in (cloned, typed):
        assert [p["field"] for p in answer.json()["problems"]] == [f"knobs.{HOOK}"]
    assert Run.objects.count() == 1


def test_a_token_below_admin_resumes_no_run_with_code(ended: Run, admin: Any) -> None:
    body = {"step": None}

    assert ask(api(admin, role="editor"), f"/api/runs/{ended.pk}/resume", body)[0] == 403
    assert ask(api(admin), f"/api/runs/{ended.pk}/resume", body)[0] == 201


def test_a_retry_goes_on_in_the_name_of_who_started_the_run(ended: Run) -> None:
    (attempt,) = queue_retries(now=NOW)

    assert (attempt.run_id, attempt.is_automatic, attempt.created_by) == (ended.pk, True, None)


def test_a_run_is_not_retried_for_one_who_is_no_admin_any_more(ended: Run, admin: Any) -> None:
    Membership.objects.filter(user=admin).update(role="editor")

    assert queue_retries(now=NOW) == []
    assert queue_retries(now=NOW + TOO_LATE / 2) == []  # said once, and for good

    event = RunEvent.objects.get(run=ended, verb="retry_canceled")
    assert SAID in event.text


@pytest.mark.parametrize(
    ("trainer", "reward", "data", "field"),
    [
        ("openrlhf", {"kind": "url", "location": "/srv/reward.py"}, {}, "reward.location"),
        ("openrlhf", {"kind": "url", "location": "/srv/reward.py,http://10.0.0.5/get_reward"}, {}, "reward.location"),
        ("openrlhf", {"kind": "file", "location": "pkg://verl.x/../../srv/reward.py"}, {}, "reward.location"),
        ("verl", {"kind": "file", "location": "pkg://verl.x/../../srv/reward.py"}, {}, "reward.location"),
        ("openrlhf", {}, {"kind": "path", "id": "/srv/a.jsonl, /srv/rows.py@train"}, "data.id"),
        ("openrlhf", {}, {"kind": "path", "id": "/srv/a.jsonl", "eval_id": "/srv/rows.py"}, "data.eval_id"),
    ],
)
def test_code_by_any_name_is_an_admin_s(
    project: Project, trainer: str, reward: dict[str, str], data: dict[str, str], field: str
) -> None:
    spec = parse_spec({"trainer": {"name": trainer}, "algorithm": "grpo", "reward": reward, "data": data})

    (found,) = check_privileged(spec, project, None)

    assert found.field == field


@pytest.mark.parametrize(
    "reward",
    [
        {"kind": "url", "location": "http://10.0.0.5/get_reward"},
        {"kind": "model", "location": "/srv/reward-model"},
    ],
)
def test_a_reward_that_is_no_code_is_anybody_s(project: Project, reward: dict[str, str]) -> None:
    assert check_privileged(parse_spec({"trainer": {"name": "openrlhf"}, "reward": reward}), project, None) == []


ANYBODY_S = {
    "numbers or words of a fixed set": [
        "algorithm.correction_cap",
        "algorithm.rejection",
        "algorithm.rejection_threshold",
        "agent.tool_format",
        "checkpoint.load_contents",
        "checkpoint.save_contents",
        "data.mixing_probabilities",
        "profiling.finish_ranks",
        "profiling.npu_contents",
        "profiling.precision_stages",
        "profiling.ranks",
        "profiling.steps",
        "profiling.torch_contents",
        "rollout.cuda_graph_sizes",
        "skip.steps",
    ],
    "nsys' own words only, see jobs.catalog.spec.contradictions": ["profiling.nsys_trace"],
    "words that are sent to a language model": ["reward.judge_model", "reward.judge_prompt"],
    "a name that the trainer looks up among what it has": [
        "agent.loop",
        "algorithm.dynamic_sampling_metric",
        "checkpoint.best_metric",
        "logging.project",
        "logging.services",
        "trace.prometheus_model_name",
        "wandb.entity",
        "wandb.project",
        "wandb.run_group",
    ],
    "names of columns": ["data.image_column", "data.source_column", "data.tools_column"],
    "names of layers": [
        "lora.exclude_modules",
        "lora.megatron_target_modules",
        "lora.target_modules",
        "models.value_head_prefix",
        "quantization.qat_ignore",
    ],
    "text around prompts; Jinja is rendered in the sandbox of transformers": [
        "data.input_template",
        "models.chat_template",
    ],
    "safetensors, JSON or a tokenizer; code in it needs models.trust_remote_code, as in the run's own model": [
        "lora.adapter_path",
        "models.critic_path",
        "models.reference_path",
        "models.teacher_path",
        "models.tokenizer_path",
        "quantization.qat_config_path",
        "quantization.rollout_config_file",
        "rope.config_folder",
    ],
    "an address that answers are sent to, like a reward's": ["reward.sandbox_url"],
    "expressions held against printed lines, without repeats in repeats": ["own_command.patterns"],
}
"""Why a knob that takes text needs no admin, and which."""


def test_of_each_knob_that_takes_text_it_was_decided_whether_it_is_an_admin_s() -> None:
    texts = {knob.id for knob in knobs().values() if knob.type == "text"}

    assert {knob_id for knob_id in texts if not knobs()[knob_id].is_privileged} == {
        knob_id for those in ANYBODY_S.values() for knob_id in those
    }


def test_what_we_ship_needs_no_admin() -> None:
    assert {recipe.id: privileged(recipe.spec) for recipe in recipes().values() if privileged(recipe.spec)} == {}


def test_a_knob_at_its_default_needs_no_admin() -> None:
    for algorithm, trainer in (("grpo", "verl"), ("sft", "verl"), ("ppo", "openrlhf"), ("sft", "openrlhf")):
        spec = parse_spec({"trainer": {"name": trainer}, "algorithm": algorithm})
        assert any(knobs()[name].is_privileged for name in spec.knobs) or (trainer, algorithm) == ("openrlhf", "sft")
        assert privileged(spec) == []
