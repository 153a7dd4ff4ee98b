"""The New run page with other trainers through HTTP: who may launch what, what rules refuse, what is pasted."""

import json
from typing import Any

import pytest
from django.conf import settings
from django.core.cache import cache
from django.test import Client
from django.urls import reverse

from console.forms.new_run.form import combination_of, default_spec, minimal, nearest, spec_to_form
from console.forms.new_run.recipes import recipe_of, recipe_rows
from jobs.catalog.recipe import recipes
from jobs.catalog.spec.parse import parse_spec
from jobs.catalog.spec.runspec import to_json
from jobs.catalog.trainer import trainers
from jobs.models import Project, Run
from tests.rows import make_artifact, make_project, make_run, make_user

pytestmark = pytest.mark.django_db

SHORT = {"kernels.attention": "eager", "train.max_sequence_tokens": 256}  # what a CPU and the bundled model take
OPENRLHF_SFT = {"algorithm": "sft", "trainer": {"name": "openrlhf"}, "hardware": {"device": "cpu"}, "knobs": SHORT}


@pytest.fixture(autouse=True)
def _forget() -> None:
    cache.clear()


@pytest.fixture
def project() -> Project:
    return make_project("maths")


def signed_in(client: Client, project: Project, role: str) -> Client:
    client.force_login(make_user(project=project, role=role), backend="django.contrib.auth.backends.ModelBackend")
    return client


@pytest.fixture
def editor(client: Client, project: Project) -> Client:
    return signed_in(client, project, "editor")


def launched(client: Client, raw: dict[str, Any], **changes: str) -> Any:
    form = spec_to_form(parse_spec(raw)) | changes
    return client.post(reverse("new-run"), form, HTTP_ACCEPT="application/json")


def test_a_run_of_another_trainer_is_queued_with_its_version(editor: Client) -> None:
    answer = launched(editor, OPENRLHF_SFT)

    assert answer.status_code == 201, answer.content
    assert Run.objects.get().spec["trainer"] == {"name": "openrlhf", "version": trainers()["openrlhf"].versions[0]}


@pytest.mark.parametrize(("role", "status"), [("editor", 422), ("admin", 201)])
def test_only_an_admin_launches_with_a_knob_that_names_code(
    client: Client, project: Project, role: str, status: int
) -> None:
    raw = {
        **OPENRLHF_SFT,
        "algorithm": "sft",
        "trainer": {"name": "verl"},
        "knobs": {**SHORT, "models.trust_remote_code": True},
    }

    answer = launched(signed_in(client, project, role), raw)

    assert answer.status_code == status, answer.content
    if status == 422:
        (problem,) = answer.json()["problems"]
        assert problem["field"] == "knobs.models.trust_remote_code"
        assert "only an admin of the project may start a run with it" in problem["message"]
        assert Run.objects.count() == 0


def test_an_editor_may_not_name_a_reward_file_of_the_cluster_but_the_trainer_s_own(editor: Client) -> None:
    raw = {"algorithm": "grpo", "trainer": {"name": "verl"}, "reward": {"kind": "file", "location": "/srv/reward.py"}}
    own = {**raw, "reward": {"kind": "file", "location": "pkg://verl.utils.reward_score"}}

    fields = [{p["field"] for p in launched(editor, given).json()["problems"]} for given in (raw, own)]

    assert "reward.location" in fields[0]
    assert "reward.location" not in fields[1]


def test_an_error_blocks_the_launch_until_it_is_put_aside_by_name(editor: Client) -> None:
    raw = {**OPENRLHF_SFT, "knobs": {**SHORT, "train.batch_size": 100, "train.micro_batch_size": 32}}
    rule = "batch.batch_does_not_divide"

    shown = editor.post(reverse("new-run-check"), spec_to_form(parse_spec(raw))).json()
    refused = launched(editor, raw)
    put_aside = launched(editor, raw, overridden=rule)

    assert len(shown["blocking"]) == 1
    assert f'data-override="{rule}"' in shown["findings"]
    assert refused.status_code == 422
    assert refused.json()["problems"][0]["message"] == shown["blocking"][0]
    assert put_aside.status_code == 201, put_aside.content
    assert Run.objects.get().spec["overridden"] == [rule]


def test_a_fix_on_offer_names_inputs_and_texts_that_mend_it(editor: Client) -> None:
    form = spec_to_form(
        parse_spec({**OPENRLHF_SFT, "knobs": {**SHORT, "train.batch_size": 100, "train.micro_batch_size": 32}})
    )

    before = editor.post(reverse("new-run-check"), form)
    button = before.json()["findings"].split('data-fix="')[1].split('"')[0].replace("&quot;", '"')
    after = editor.post(reverse("new-run-check"), form | json.loads(button)).json()

    assert set(json.loads(button)) <= set(form)
    assert after["blocking"] == []


def test_every_recipe_fills_a_form_that_reads_as_that_recipe(editor: Client) -> None:
    for row in recipe_rows():
        spec = recipes()[row.id].spec
        values = editor.get(reverse("new-run-recipe"), {"id": row.id}).json()["values"]

        assert parse_spec(json.loads(values["base"])) == spec
        assert recipe_of(spec) == recipes()[row.id]
        answer = editor.post(reverse("new-run-check"), values).json()
        assert answer["problems"] == [], row.id
        assert answer["changed"] == []
        assert answer["commands"]["trainer"]


def test_a_page_opened_with_a_recipe_starts_from_it_and_one_that_is_not_there_is_said(editor: Client) -> None:
    page = editor.get(reverse("new-run"), {"recipe": "verl-grpo-qwen3-8b"}).content.decode()
    unknown = editor.get(reverse("new-run"), {"recipe": "none"}).content.decode()

    assert "Qwen/Qwen3-8B" in page
    assert "There is no recipe &#x27;none&#x27;" in unknown


PASTED = {
    "openrlhf": "deepspeed --module openrlhf.cli.train_sft --pretrain Qwen/Qwen3-0.6B --dataset a/b --input_key q "
    "--output_key r --max_len 2048 --learning_rate 1e-5 --learning_rates 3",
    "verl": "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.train_files=/d/train.parquet "
    "data.val_files=/d/test.parquet actor_rollout_ref.model.path=Qwen/Qwen3-8B actor_rollout_ref.rollout.n=5 "
    "actor_rollout_ref.actor.nonsense=1",
    "verl yaml": "actor_rollout_ref:\n  model:\n    path: Qwen/Qwen3-8B\n  rollout:\n    n: 5\n    nonsense: 1\n",
}


@pytest.mark.parametrize(
    ("name", "unread", "open_fields"),
    [("openrlhf", "learning_rates", []), ("verl", "nonsense", []), ("verl yaml", "nonsense", ["data.id"])],
)
def test_a_pasted_command_fills_the_form_and_says_what_was_not_understood(
    editor: Client, name: str, unread: str, open_fields: list[str]
) -> None:
    answer = editor.post(reverse("new-run-import"), {"text": PASTED[name]}).json()

    values = answer["values"]
    assert values["trainer.name"] == name.partition(" ")[0]
    assert values["model.id.hub"].startswith("Qwen/")
    assert unread in answer["report"].split('data-pasted="unread"')[1].split("</details>")[0]
    problems = editor.post(reverse("new-run-check"), values).json()["problems"]
    assert [problem["field"] for problem in problems] == open_fields


def test_what_is_left_out_on_purpose_stands_apart_from_what_was_not_understood(editor: Client) -> None:
    text = f"{PASTED['verl']} trainer.logger=['console','wandb'] trainer.project_name=mine data.truncation=error"

    report = editor.post(reverse("new-run-import"), {"text": text}).json()["report"]

    groups = {part.partition('"')[0]: part.partition("</details>")[0] for part in report.split('data-pasted="')[1:]}
    assert list(groups) == ["unread", "left-out", "understood"]
    assert '<span class="count num">1</span>' in groups["unread"]
    assert '<span class="count num">1</span>' in groups["left-out"]
    assert "It is the trainer&#x27;s default, which holds anyway." in groups["left-out"]
    assert "<code>data.train_files</code>" in groups["understood"]
    assert "trainer.logger" not in groups["left-out"] + groups["unread"]


@pytest.mark.parametrize("name", ["WANDB_API_KEY", "HF_TOKEN", "CLIENT_SECRET", "DB_PASSWORD"])
@pytest.mark.parametrize("trainer", ["openrlhf", "verl"])
def test_a_secret_of_the_environment_is_left_out_and_shown_to_nobody(editor: Client, trainer: str, name: str) -> None:
    answer = editor.post(reverse("new-run-import"), {"text": f"export {name}=s3cr3t-value\n{PASTED[trainer]}"})

    assert name in answer.json()["report"].split('data-pasted="left-out"')[1]
    assert "s3cr3t-value" not in answer.content.decode()


def test_why_something_stays_behind_is_said_in_the_reader_s_language(editor: Client) -> None:
    text = f"{PASTED['verl']} data.truncation=error trainer.default_local_dir=/ckpt"

    report = editor.post(reverse("new-run-import"), {"text": text}, HTTP_ACCEPT_LANGUAGE="zh-hans").json()["report"]
    index = editor.get(reverse("new-run-index"), HTTP_ACCEPT_LANGUAGE="zh-hans").json()

    assert "这是训练器的默认值，本来就有效。" in report
    assert {told["why"] for told in index["told"] if told["name"] == "trainer.default_local_dir"} == {
        "检查点位于运行目录之下。"
    }


def test_what_is_no_command_at_all_is_said_in_a_sentence(editor: Client) -> None:
    answer = editor.post(reverse("new-run-import"), {"text": "ls -l"})

    assert answer.status_code == 422
    assert "This is not a command of" in answer.json()["problems"][0]["message"]


@pytest.mark.parametrize(
    "asked",
    [
        ("nothing", "", ""),
        ("dpo", "", ""),
        ("grpo", "verl", "x"),
        ("rm", "verl", "0.9.1"),
        ("gspo", "openrlhf", "0.8.6"),
    ],
)
def test_the_nearest_combination_is_always_one_that_there_is(asked: tuple[str, str, str]) -> None:
    algorithm, trainer, version = asked

    found = nearest(algorithm=algorithm, trainer=trainer, version=version)

    spec = default_spec(found.algorithm, found.trainer, found.version)
    assert combination_of(spec) == found
    assert parse_spec(minimal(spec)) == spec == parse_spec(to_json(spec))


def test_the_config_tab_and_the_api_show_the_command_of_a_run(editor: Client, project: Project) -> None:
    run = make_run(project, spec=OPENRLHF_SFT)

    page = editor.get(f"/runs/{run.pk}/config").content.decode()
    command = editor.get(f"/api/runs/{run.pk}/trainer-command").json()

    assert "-m openrlhf.cli.train_sft" in page
    assert command["argv"][1:3] == ["-m", "openrlhf.cli.train_sft"]
    assert run.pk in command["shell"]


def test_the_command_of_an_attempt_that_goes_on_names_its_checkpoint(editor: Client, project: Project) -> None:
    run = make_run(project, spec=OPENRLHF_SFT)
    make_artifact(run, "checkpoint-4", type="checkpoint", step=4, path="checkpoints/global_step4")
    run.attempts.create(number=2, submission_id="a2", resume_attempt=1, resume_step=4)
    Run.objects.filter(pk=run.pk).update(latest_attempt=2)

    command = editor.get(f"/api/runs/{run.pk}/trainer-command").json()

    assert command["argv"][-1] == "--ckpt.load_enable"
    folder = f"{settings.RUN_ROOT}/{run.pk}/a1/checkpoints/global_step4"
    assert f"mkdir -p checkpoints\ncp -al {folder} checkpoints/global_step4\n" in command["shell"]
