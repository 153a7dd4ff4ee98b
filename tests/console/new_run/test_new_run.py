"""The New run page through HTTP: what it shows, refuses and launches."""

import json
import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from django.core.cache import cache
from django.test import Client
from django.urls import reverse

from console.forms.new_run.form import default_spec, show, spec_to_form
from console.trainer_command import command_to_be
from console.views.new_run import page as new_run_page
from console.views.new_run.page import base_text, next_name
from jobs.catalog.knob import applicable, knobs
from jobs.catalog.spec.parse import parse_spec
from jobs.catalog.trainer import trainers
from jobs.cluster.ray_api import forget_state
from jobs.ingest.store import AttemptCache, store
from jobs.models import Project, Run
from profiling import events
from tests.batches import delivery
from tests.jobs.fake_ray import TOKEN, FakeRay, serve
from tests.rows import NOW, make_project, make_run, make_user

pytestmark = pytest.mark.django_db

JSON = {"HTTP_ACCEPT": "application/json"}


@pytest.fixture(autouse=True)
def _forget() -> None:
    cache.clear()


@pytest.fixture
def project() -> Project:
    return make_project("maths")


@pytest.fixture
def editor(client: Client, project: Project) -> Client:
    client.force_login(make_user(project=project), backend="django.contrib.auth.backends.ModelBackend")
    return client


@pytest.fixture
def ray(settings: Any) -> Iterator[FakeRay]:
    with serve() as running:
        settings.RAY_ADDRESS, settings.RAY_AUTH_TOKEN = running.address, TOKEN
        forget_state()
        yield running


OF_OTHERS = {"data.response_column", "data.messages_column", "data.chosen_column", "data.rejected_column"} | {
    "data.label_column",
    "data.eval_id",
}
"""Inputs that other algorithms and trainers have."""


def facts_of(page: str) -> Any:
    return json.loads(re.search(r'id="new-run-facts"[^>]*>(.*?)</script>', page, re.DOTALL)[1])  # type: ignore[index]


def filled(**changes: str) -> dict[str, str]:
    """The whole form as a browser sends it: the knobs of both algorithms, and what is changed."""
    form = spec_to_form(default_spec("sft")) | spec_to_form(default_spec("grpo"))
    return form | {name.replace("__", "."): text for name, text in changes.items()}


def launch(client: Client, form: dict[str, str], **headers: Any) -> Any:
    return client.post(reverse("new-run"), form, **headers)


def test_the_page_offers_every_field_and_knob_with_its_default(editor: Client) -> None:
    page = editor.get(reverse("new-run")).content.decode()

    for name in set(spec_to_form(default_spec("grpo"))) - OF_OTHERS:
        assert f'name="{name}"' in page, name
    assert facts_of(page)["fields"]["knobs.optimizer.learning_rate"]["start"] == {"value": "3e-4", "origin": "default"}


@pytest.mark.parametrize(
    ("trainer", "version", "algorithm"),
    [("native", "", "sft"), ("openrlhf", "0.8.6", "ppo"), ("openrlhf", "0.11.2", "dpo"), ("verl", "0.9.1", "grpo")],
)
def test_the_page_asks_anew_for_the_knobs_of_another_trainer(
    editor: Client, trainer: str, version: str, algorithm: str
) -> None:
    form = {"trainer.name": trainer, "trainer.version": version, "algorithm": algorithm}

    answer = editor.post(reverse("new-run-knobs"), form).json()

    offered = set(re.findall(r'name="knobs\.([^"]+)"', answer["html"]))
    assert offered == set(applicable(algorithm, trainer, version))
    facts = answer["facts"]
    assert (facts["trainer"], facts["version"], facts["algorithm"]) == (trainer, version, algorithm)
    spec = default_spec(algorithm, trainer, version)
    for knob_id in offered:
        assert facts["fields"][f"knobs.{knob_id}"]["start"]["value"] == show(spec.knobs[knob_id].value)


def test_a_combination_that_no_trainer_offers_becomes_the_nearest_one(editor: Client) -> None:
    form = {"trainer.name": "verl", "trainer.version": "3", "algorithm": "dpo"}

    facts = editor.post(reverse("new-run-knobs"), form).json()["facts"]

    assert (facts["trainer"], facts["version"]) == ("verl", trainers()["verl"].versions[0])
    assert facts["algorithm"] in trainers()["verl"].algorithms


def test_what_was_chosen_in_the_base_goes_along_to_another_trainer(editor: Client) -> None:
    base = {"knobs": {"rollout.temperature": {"value": 0.7, "origin": "recipe"}}}
    form = {"base": json.dumps(base), "trainer.name": "verl", "algorithm": "grpo"}

    fields = editor.post(reverse("new-run-knobs"), form).json()["facts"]["fields"]

    assert fields["knobs.rollout.temperature"]["start"] == {"value": "0.7", "origin": "recipe"}


def test_a_form_of_another_trainer_is_checked_and_shows_the_command_that_will_run(editor: Client) -> None:
    form = spec_to_form(default_spec("grpo", "verl")) | {"knobs.rollout.temperature": "0.7"}

    answer = editor.post(reverse("new-run-check"), form).json()

    assert answer["problems"] == []
    assert "python -m verl.trainer.main_ppo" in answer["commands"]["trainer"]
    assert "actor_rollout_ref.rollout.temperature=0.7" in answer["commands"]["trainer"]
    assert yaml.safe_load(answer["commands"]["yaml"]) == json.loads(answer["commands"]["spec"])
    assert json.loads(answer["commands"]["spec"])["trainer"] == {"name": "verl", "version": "0.9.1"}


def test_variables_of_the_chat_template_are_typed_launched_cloned_and_told_as_commands(editor: Client) -> None:
    variables = {"enable_thinking": False, "controls": {}, "documents": [{"text": "é: <b>\n"}], "tag": "no"}
    form = spec_to_form(default_spec()) | {"data.chat_template_kwargs": json.dumps(variables)}

    answer = editor.post(reverse("new-run-check"), form).json()
    launch(editor, form, **JSON)

    assert answer["problems"] == []
    assert json.loads(answer["commands"]["spec"])["data"] == {"chat_template_kwargs": variables}
    assert yaml.safe_load(answer["commands"]["yaml"]) == json.loads(answer["commands"]["spec"])
    run = Run.objects.get()
    assert run.spec["data"]["chat_template_kwargs"] == variables
    page = editor.get(reverse("new-run"), {"from": run.pk}).content.decode()
    assert "&quot;enable_thinking&quot;: false" in page


def test_variables_that_are_no_json_are_refused_beside_their_input(editor: Client) -> None:
    form = spec_to_form(default_spec()) | {"data.chat_template_kwargs": "enable_thinking: false"}

    (problem,) = editor.post(reverse("new-run-check"), form).json()["problems"]

    assert problem["field"] == "data.chat_template_kwargs"
    assert problem["message"].startswith("'enable_thinking: false' is not a JSON object. Use one such as {")


def test_a_trainer_s_command_as_shell_has_the_words_of_its_launch() -> None:
    spec = parse_spec(
        {"algorithm": "sft", "trainer": {"name": "openrlhf"}, "data": {"kind": "path", "id": "/a b.jsonl"}}
    )

    shown = command_to_be(spec, device="cpu")

    script = shown.shell.replace("\\\n", " ")
    assert tuple(shlex.split(script.splitlines()[-1])) == shown.argv


def test_with_an_automatic_device_findings_go_by_what_the_cluster_has(editor: Client, ray: FakeRay) -> None:
    form = spec_to_form(parse_spec({"trainer": {"name": "verl"}, "algorithm": "sft"}))

    def found() -> tuple[str, list[str]]:
        forget_state()
        answer = editor.post(reverse("new-run-check"), form).json()
        return answer["findings"], answer["blocking"]

    without_gpu, blocking = found()
    ray.set_gpus(8)
    with_gpus, _none = found()

    assert form["hardware.device"] == "auto"
    assert blocking == ["flash_attention_2 does not run on CPU."]
    row = without_gpu.split('data-finding="kernels.flash_attention_on_cpu"')[1].split("</li>")[0]
    assert "{&quot;knobs.kernels.attention&quot;: &quot;sdpa&quot;}" in row
    assert "kernels.flash_attention_on_cpu" not in with_gpus


def test_every_option_of_every_knob_is_in_the_index(editor: Client) -> None:
    index = editor.get(reverse("new-run-index")).json()["knobs"]

    assert set(index) == {f"knobs.{knob_id}" for knob_id in knobs()}
    for knob in knobs().values():
        known = index[f"knobs.{knob.id}"]
        assert {f["name"] for f in known["flags"]} >= {name for flag in knob.flags for name in flag.names}
        assert known["source"]
    engines = {f["name"]: f["whose"] for f in index["knobs.placement.rollout_engines"]["flags"]}
    assert engines["--vllm.num_engines"] == "OpenRLHF 0.11.2, 0.10.2"
    assert engines["--vllm_num_engines"] == "OpenRLHF 0.10.1, 0.8.6"


def test_the_page_keeps_the_strict_policy(editor: Client) -> None:
    page = editor.get(reverse("new-run")).content.decode()

    assert " style=" not in page
    assert not re.search(r"<script(?![^>]*(src=|application/json))", page)
    assert not re.search(r"\son\w+=", page)


def test_without_a_session_one_is_sent_to_sign_in(client: Client) -> None:
    for name in ("new-run", "new-run-check", "new-run-preview", "new-run-reward", "new-run-import"):
        answer = client.post(reverse(name), filled())
        assert answer.status_code == 302
        assert answer["Location"].startswith(reverse("signin"))
    assert Run.objects.count() == 0


def test_a_viewer_may_neither_launch_nor_try_and_a_stranger_sees_nothing(client: Client, project: Project) -> None:
    viewer, stranger = make_user(project=project, role="viewer"), make_user()

    client.force_login(viewer, backend="django.contrib.auth.backends.ModelBackend")
    assert {
        client.post(reverse(n), filled()).status_code for n in ("new-run", "new-run-preview", "new-run-reward")
    } == {403}
    client.force_login(stranger, backend="django.contrib.auth.backends.ModelBackend")
    assert client.get(reverse("new-run")).status_code == 404
    assert Run.objects.count() == 0


def test_a_filled_form_queues_the_run_it_describes(editor: Client, project: Project) -> None:
    form = filled(name="first", knobs__train__num_steps="7", hardware__policy_ranks="1", idempotency_key="k1")
    form["knobs.train.num_steps"] = "7"

    answer = launch(editor, form)

    run = Run.objects.get()
    assert answer.status_code == 302
    assert answer["Location"] == reverse("run", args=[run.pk])
    assert (run.project, run.name, run.state, run.num_steps) == (project, "first", "queued", 7)
    spec = parse_spec(run.spec)
    assert spec.knobs["train.num_steps"].origin == "you"
    assert spec.knobs["train.seed"].origin == "default"
    assert spec.hardware.policy_ranks == 1


def test_a_double_click_is_one_run(editor: Client) -> None:
    form = filled(idempotency_key="same")

    first, second = launch(editor, form, **JSON), launch(editor, form, **JSON)

    assert Run.objects.count() == 1
    assert first.json() == second.json()
    assert first.status_code == second.status_code == 201


def test_a_page_that_has_launched_does_not_quietly_launch_something_else(editor: Client) -> None:
    launch(editor, filled(idempotency_key="same"), **JSON)

    answer = launch(editor, filled(idempotency_key="same") | {"knobs.train.seed": "5"}, **JSON)

    assert answer.status_code == 422
    assert "already launched another run" in answer.json()["problems"][0]["message"]
    assert Run.objects.count() == 1


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"knobs.train.num_steps": "many"}, "knobs.train.num_steps"),
        ({"knobs.train.nmu_steps": "3"}, "knobs.train.nmu_steps"),
        ({"hardware.policy_ranks": "3"}, "knobs.rollout.prompts_per_step"),
        ({"data.kind": "path", "data.id.path": ""}, "data.id"),
        ({"data.kind": "path", "data.id.path": "/nowhere.jsonl"}, "data.id"),
        ({"data.kind": "upload", "data.id.upload": "upload:" + "0" * 64}, "data.id"),
        ({"data.answer_column": "solution"}, "data.answer_column"),
        ({"model.kind": "path", "model.id.path": "/nowhere"}, "model.id"),
        ({"reward.kind": "custom"}, "reward.source"),
        ({"reward.kind": "custom", "reward.source": "def reward(p, c, a):\r\n    raise KeyError(a)"}, "reward.source"),
    ],
)
def test_what_cannot_run_is_refused_beside_its_field_and_nothing_is_queued(
    editor: Client, changes: dict[str, str], field: str
) -> None:
    answer = launch(editor, filled() | changes, **JSON)

    assert answer.status_code == 422
    assert field in {p["field"] for p in answer.json()["problems"]}
    assert Run.objects.count() == 0


def test_a_refused_form_comes_back_with_everything_that_was_typed(editor: Client) -> None:
    typed = {
        "name": "my <run>",
        "knobs.train.num_steps": "many",
        "data.system_prompt": "Be brief.",
        "data.id.hub": "a/b",
    }

    answer = launch(editor, filled() | typed)

    page = answer.content.decode()
    assert answer.status_code == 422
    assert 'value="my &lt;run&gt;"' in page
    assert 'value="many"' in page
    assert "Be brief." in page
    assert 'value="a/b"' in page
    assert "is not allowed for Steps" in page


def test_a_custom_reward_that_was_never_tried_is_tried_before_it_is_queued(editor: Client) -> None:
    source = "def reward(prompt, completion, answer):\r\n    return float(answer in completion)"

    answer = launch(editor, filled() | {"reward.kind": "custom", "reward.source": source}, **JSON)

    assert answer.status_code == 201, answer.content
    assert "\r" not in Run.objects.get().spec["reward"]["source"]


def test_a_clone_starts_from_the_run_s_spec_and_counts_its_name_on(editor: Client, project: Project) -> None:
    run = make_run(project, spec={"name": "maths-t01", "knobs": {"train.num_steps": 12}})

    page = editor.get(reverse("new-run"), {"from": run.pk}).content.decode()

    assert f">{run.pk}</a>" in page
    assert 'value="maths-t02"' in page
    assert re.search(r'name="knobs.train.num_steps" value="12"', page)


def test_a_second_clone_has_a_name_of_its_own(editor: Client, project: Project) -> None:
    origin = make_run(project, name="warm up 2")
    for name in ("warm up 3", "warm up 4"):
        make_run(project, name=name)
    make_run(make_project(), name="warm up 5")

    page = editor.get(reverse("new-run"), {"from": origin.pk}).content.decode()

    assert 'value="warm up 5"' in page


def test_a_clone_keeps_the_origins_of_what_was_not_touched(editor: Client, project: Project) -> None:
    base = {"knobs": {"train.num_steps": {"value": 12, "origin": "recipe"}, "train.seed": 3}}
    run = make_run(project, spec=base)
    form = spec_to_form(parse_spec(run.spec)) | {"base": json.dumps(run.spec), "knobs.train.seed": "4"}

    launch(editor, form, **JSON)

    spec = parse_spec(Run.objects.exclude(pk=run.pk).get().spec)
    assert spec.knobs["train.num_steps"].origin == "recipe"
    assert (spec.knobs["train.seed"].value, spec.knobs["train.seed"].origin) == (4, "you")


def test_a_run_of_another_project_cannot_be_cloned(editor: Client) -> None:
    other = make_run(make_project())

    assert editor.get(reverse("new-run"), {"from": other.pk}).status_code == 404


def test_a_spec_that_no_longer_holds_is_said_and_the_form_is_fresh(editor: Client, project: Project) -> None:
    run = make_run(project)
    Run.objects.filter(pk=run.pk).update(spec={"knobs": {"gone.knob": 1}})

    page = editor.get(reverse("new-run"), {"from": run.pk}).content.decode()

    assert "from another version" in page
    assert "gone.knob" in page


@pytest.mark.parametrize(
    ("name", "wanted"), [("a", "a 2"), ("a 2", "a 3"), ("x-t09", "x-t10"), ("9" * 120, "1" + "0" * 119)]
)
def test_clones_are_named_on(name: str, wanted: str) -> None:
    assert next_name(name) == wanted if len(wanted) < 120 else len(next_name(name)) == 120


def test_the_check_says_what_the_run_asks_and_how_to_launch_it_elsewhere(editor: Client, ray: FakeRay) -> None:
    answer = editor.post(reverse("new-run-check"), filled() | {"knobs.train.num_steps": "7"}).json()

    assert answer["problems"] == []
    assert answer["launch"] == "Launch on 2 CPUs"
    assert answer["changed"] == ["knobs.train.num_steps"]
    assert json.loads(answer["commands"]["spec"]) == {"algorithm": "grpo", "knobs": {"train.num_steps": 7}}
    assert "manage.py launch" in answer["commands"]["cli"]
    assert "/api/runs" in answer["commands"]["curl"]
    assert parse_spec(json.loads(answer["full"])).num_steps == 7
    assert "free now" in answer["summary"]


def test_the_check_says_why_the_run_would_wait(editor: Client, project: Project, ray: FakeRay) -> None:
    split = {"hardware": {"layout": "split"}}
    holder = make_run(project, state="running", spec=split)
    make_run(project, state="running", spec=split)

    summary = editor.post(reverse("new-run-check"), filled()).json()["summary"]

    assert "would wait" in summary
    assert f"{holder.pk} holds 4" in summary


def test_the_check_does_not_pretend_to_know_a_cluster_that_is_away(editor: Client) -> None:
    answer = editor.post(reverse("new-run-check"), filled()).json()

    assert answer["launch"] == "Launch 2 workers"
    assert "not known" in answer["summary"]


def test_quotes_in_the_spec_do_not_break_the_commands(editor: Client) -> None:
    commands = editor.post(reverse("new-run-check"), filled(name="it's; rm -rf")).json()["commands"]

    carried = shlex.split(commands["curl"])
    assert json.loads(carried[carried.index("-d") + 1])["name"] == "it's; rm -rf"


def test_the_preview_shows_samples_lengths_columns_and_checks(editor: Client, ray: FakeRay) -> None:
    answer = editor.post(reverse("new-run-preview"), filled(algorithm="sft")).json()

    assert answer["problems"] == []
    assert {"prompt", "answer", "response"} <= set(answer["columns"])
    html = answer["html"]
    assert html.count('class="sample"') == 5
    assert 'class="trained"' in html
    assert 'class="special' in html
    assert 'class="limit"' in html
    assert "limit 128 tokens" in html
    assert html.count('data-check="passed"') == 4
    assert "parameters" in answer["captions"]["model.id"]


def test_the_preview_says_how_much_is_too_long(editor: Client) -> None:
    html = editor.post(reverse("new-run-preview"), filled() | {"knobs.rollout.max_prompt_tokens": "20"}).json()["html"]

    assert re.search(r"[\d,]+ rows \([\d.]+ %\) are left out: longer than the limit", html)
    assert "Measured on" not in html


def test_the_preview_of_unmapped_data_still_offers_its_columns(editor: Client) -> None:
    answer = editor.post(reverse("new-run-preview"), filled(data__prompt_column="question")).json()

    assert [p["field"] for p in answer["problems"]] == ["data.prompt_column"]
    assert "prompt" in answer["columns"]


def test_recognized_columns_are_for_the_form_to_fill_in(editor: Client, tmp_path: Any) -> None:
    file = tmp_path / "x.jsonl"
    file.write_text('{"question": "1 + 1?", "solution": "2"}\n' * 10)
    data = {"data.kind": "path", "data.id.path": str(file)}

    answer = editor.post(reverse("new-run-preview"), filled() | data).json()

    assert answer["problems"] == []
    assert answer["recognized"] == {"data.prompt_column": "question", "data.answer_column": "solution"}


def test_a_pair_shows_its_two_sides(editor: Client, tmp_path: Any) -> None:
    file = tmp_path / "x.jsonl"
    file.write_text('{"prompt": "1 + 1?", "chosen": "two", "rejected": "three"}\n' * 10)
    spec = parse_spec({"algorithm": "dpo", "trainer": {"name": "openrlhf"}})
    form = spec_to_form(spec) | {"base": base_text(spec), "data.kind": "path", "data.id.path": str(file)}

    html = editor.post(reverse("new-run-preview"), form).json()["html"]

    assert html.index("two</ins>") < html.index("three</ins>")


def test_markup_in_the_data_is_shown_as_text(editor: Client, tmp_path: Any) -> None:
    file = tmp_path / "x.jsonl"
    file.write_text('{"prompt": "<script>alert(1)</script>", "answer": "<b>"}\n' * 3)

    answer = editor.post(reverse("new-run-preview"), filled() | {"data.kind": "path", "data.id.path": str(file)}).json()

    assert "&lt;script&gt;" in answer["html"]
    assert "<script>" not in answer["html"]


def test_the_reward_trial_shows_each_sample_and_warns_of_a_flat_reward(editor: Client) -> None:
    form = filled(reward__kind="custom", reward__source="def reward(p, c, a):\n    return 0.5")

    answer = editor.post(reverse("new-run-reward"), form).json()

    assert answer["problems"] == []
    assert answer["html"].count("<tr>") == 9
    assert "nothing to learn from" in answer["html"]


def test_an_import_fills_the_form_or_names_what_is_unknown(editor: Client) -> None:
    url = reverse("new-run-import")

    good = editor.post(url, {"text": '{"algorithm": "sft", "knobs": {"train.num_steps": 9}}'}).json()
    bad = editor.post(url, {"text": '{"dtaa": {}, "knobs": {"train.nmu_steps": 1}}'})
    broken = editor.post(url, {"text": "{"})

    assert (good["values"]["algorithm"], good["values"]["knobs.train.num_steps"]) == ("sft", "9")
    assert bad.status_code == broken.status_code == 422
    assert [p["field"] for p in bad.json()["problems"]] == ["dtaa", "knobs.train.nmu_steps"]
    assert "That is not JSON" in broken.json()["problems"][0]["message"]


def test_a_clone_says_which_values_it_has_of_knobs_that_were_changed_while_the_run_trained(
    editor: Client, project: Project
) -> None:
    run = make_run(project, state="running")
    changes = [{"knob": "rollout.temperature", "old": 1.0, "new": 0.7}]
    event = events.note("changed", attempt=1, step=3, meta={"knobs": {"command": 0, "changes": changes}})
    store([delivery(run.pk, 1, [event])], memory=AttemptCache(), now=NOW)

    changed = editor.get(reverse("new-run"), {"from": run.pk}).content.decode()
    launched = editor.get(reverse("new-run"), {"from": run.pk, "values": "launch"}).content.decode()

    assert re.search(r'name="knobs.rollout.temperature" value="0.7"', changed)
    assert "has the values that were changed while it trained: Temperature 0.7 (1 at launch)." in changed
    assert "values=launch" in changed
    assert re.search(r'name="knobs.rollout.temperature" value="1(.0)?"', launched)
    assert "has the values of the launch" in launched


def test_a_clone_knows_the_run_that_it_came_from(
    editor: Client, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(new_run_page, "check_launchable", lambda *_, **__: [])
    origin, stranger = make_run(project), make_run(make_project("elsewhere"))

    page = editor.get(f"/runs/new?from={origin.pk}").content.decode()
    editor.post("/runs/new", {"name": "clone", "parent": origin.pk}, **JSON)
    editor.post("/runs/new", {"name": "no clone", "parent": stranger.pk, "idempotency_key": "k"}, **JSON)

    assert f'name="parent" value="{origin.pk}"' in page
    parents = dict(Run.objects.filter(name__endswith="clone").values_list("name", "parent"))
    assert parents == {"clone": origin.pk, "no clone": None}
    clone = Run.objects.get(name="clone")
    assert f"clone of {origin.pk}" in " ".join(editor.get(f"/runs/{clone.pk}").content.decode().split())


def test_a_command_of_ones_own_is_checked_and_not_planned(client: Client, project: Project) -> None:
    admin = make_user("own", project=project, role="admin")
    client.force_login(admin, backend="django.contrib.auth.backends.ModelBackend")
    form = {"trainer.name": "own_command", "algorithm": "sft", "knobs.own_command.working_dir": "/srv/mine"}

    answer = client.post("/runs/new/check", form).json()

    assert answer["problems"] == []
    assert answer["plan"]["state"] == "unknown"
    assert "pitwall_start" in answer["commands"]["trainer"]
    probe = client.post("/runs/new", {**form, "probe": "1", "knobs.own_command.git": "ext::sh"}, **JSON)
    assert probe.status_code == 422
