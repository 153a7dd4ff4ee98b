"""The plan of New run without a browser: the CPU's case, what a probe changes, the marks on its run."""

import json
import re
from dataclasses import replace
from html import unescape
from types import SimpleNamespace
from typing import Any

import pytest
from django.test import Client

from console.api.planner.schema import PlanOut
from console.command_line.plan_text import plan_text
from console.forms.new_run.form import default_spec, minimal, spec_to_form
from console.forms.new_run.probe import PROBE_STEPS, probe_of
from console.views.new_run import page as new_run
from console.views.plan.panel import estimate_panel
from jobs.catalog.accelerator import find_accelerator
from jobs.catalog.knob import knobs
from jobs.catalog.recipe import recipes
from jobs.catalog.spec.parse import parse_spec
from jobs.cluster.ray_api import ClusterState, Node
from jobs.models import Project, Run
from jobs.planner.estimate import estimate
from jobs.planner.job import Fleet, Job, Layout, Training
from jobs.planner.shapes.known import shape_of
from jobs.planner.time.steps import PACES
from jobs.planning.earlier_lengths import lengths_told
from jobs.planning.plan_vs_measured import RunMeasurements
from tests.rows import make_project, make_user

pytestmark = pytest.mark.django_db

GIB = 1 << 30


@pytest.fixture
def editor(client: Client) -> Client:
    client.force_login(
        make_user("planner", project=make_project()), backend="django.contrib.auth.backends.ModelBackend"
    )
    return client


def cluster(monkeypatch: pytest.MonkeyPatch, *, memory: int, gpus: float = 0, kind: str = "") -> None:
    node = Node(id="n", address="", is_head=True, cpus=8, gpus=gpus, memory_bytes=memory, accelerator=kind)
    state = ClusterState(is_reachable=True, problem="", away_since=None, nodes=(node,), cpus_total=8, gpus_total=gpus)
    monkeypatch.setattr(new_run, "cluster_state", lambda: state)


def planned(client: Client, **texts: str) -> dict[str, Any]:
    spec = default_spec()
    form = {**spec_to_form(spec), "base": json.dumps(minimal(spec)), **texts}
    plan: dict[str, Any] = client.post("/runs/new/check", form).json()["plan"]
    return plan


def test_a_run_on_the_cpu_is_planned_by_what_its_processes_take_together(
    editor: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster(monkeypatch, memory=16 * GIB)
    fits = planned(editor)
    cluster(monkeypatch, memory=GIB // 4)
    short = planned(editor)

    assert fits["state"] == "fits"
    assert "of the node&#x27;s 16.0 GiB" in fits["verdict"]
    assert not fits["has_layouts"]  # seconds are not planned there, so nothing is ranked by them
    assert "Time per step" not in fits["bars"]
    assert "rollout: 1" not in fits["bars"]  # nor what vLLM takes
    assert short["state"] == "no"

    pace = {"value": 10.0, "num_runs": 1, "before": None, "after": None, "spread": 2.5}
    paces = dict.fromkeys(PACES.values(), pace)
    lengths = lengths_told(default_spec(), RunMeasurements(mean_prompt=20.0, mean_response=17.6))
    Project.objects.update(
        calibrations={"cpu": {"on": "2026-11-20", "num_runs": 1, "constants": paces}},
        joined_runs={"joined": [{"run": "r-1234abcd", "lengths": lengths}]},
    )
    with_pace = planned(editor)
    assert "at the pace of finished runs on the CPU" in with_pace["verdict"]
    assert "Responses of 18 tokens on average, as r-1234abcd measured" in with_pace["bars"]
    assert "at the pace of finished runs on the CPU" not in fits["verdict"]


def test_the_clusters_own_devices_are_planned_for(editor: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster(monkeypatch, memory=100 * GIB, gpus=8, kind="H100")

    found = planned(editor)

    assert found["state"] == "fits"
    assert not found["is_what_if"]
    assert found["milliseconds"] >= 1


def test_a_recipe_supposes_its_own_hardware_where_the_cluster_has_none(
    editor: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is planned is as many of the GPUs that the recipe names as it takes, marked as the recipe's."""
    chosen = recipes()["openrlhf-ppo-70b-48gpu"]
    form = {**spec_to_form(chosen.spec), "base": json.dumps(minimal(chosen.spec))}
    cluster(monkeypatch, memory=16 * GIB)
    found = planned(editor, **form)
    other = planned(editor, **form, **{"plan.accelerator": "h200", "plan.nodes": "6", "plan.devices_per_node": "8"})

    assert found["state"] in ("fits", "tight")
    assert found["is_what_if"]  # which refuses no launch
    verdict = unescape(found["verdict"])
    assert "Planned on 48 × A100 SXM 80 GB, the recipe's hardware" in verdict
    assert "the recipe's hardware" not in unescape(other["verdict"])


@pytest.mark.parametrize("recipe", ["openrlhf-ppo-70b-48gpu", "verl-grpo-qwen3-8b"])
def test_what_needs_gpus_is_not_offered_on_cpus(editor: Client, monkeypatch: pytest.MonkeyPatch, recipe: str) -> None:
    chosen = recipes()[recipe]
    cluster(monkeypatch, memory=16 * GIB)
    form = {**spec_to_form(chosen.spec), "base": json.dumps(minimal(chosen.spec))}
    answer = editor.post("/runs/new/check", form).json()
    later = editor.post("/runs/new/check", {**form, "hardware.device": "auto"}).json()

    said = f"Needs {chosen.spec.num_workers} GPUs; the cluster has none"
    assert chosen.spec.hardware.device == "cuda"
    assert answer["launch"] == said
    assert f"{said}." in unescape(answer["summary"])
    assert "Planned on" in unescape(answer["plan"]["verdict"])
    assert later["launch"] == said  # the trainer trains this on GPUs only


@pytest.mark.parametrize(
    ("version", "algorithm", "knobs"),
    [("1.16.0", "grpo", {"rollout.backend": "vllm"}), ("1.15.0", "sft", {})],
)
def test_what_a_rule_refuses_on_cpus_is_not_offered_there_either(
    editor: Client, monkeypatch: pytest.MonkeyPatch, version: str, algorithm: str, knobs: dict[str, str]
) -> None:
    trainer = {"name": "trl", "version": version}
    spec = parse_spec({"trainer": trainer, "algorithm": algorithm, "knobs": {"kernels.attention": "eager", **knobs}})
    cluster(monkeypatch, memory=16 * GIB)

    answer = editor.post("/runs/new/check", {**spec_to_form(spec), "base": json.dumps(minimal(spec))}).json()

    assert spec.hardware.device == "auto"
    assert answer["launch"] == "Needs 1 GPU; the cluster has none"
    assert [text.startswith("TRL") for text in answer["blocking"]] == [True]


def advised(client: Client, **texts: str) -> dict[str, Any]:
    spec = recipes()["verl-grpo-qwen3-8b"].spec
    hardware = {"plan.accelerator": "h200", "plan.nodes": "1", "plan.devices_per_node": "8"}
    form = {**spec_to_form(spec), "base": json.dumps(minimal(spec)), **hardware, **texts}
    answer: dict[str, Any] = client.post("/runs/new/plan/advice", form).json()
    return answer


def test_the_largest_parts_come_with_the_change_that_lowers_each_and_the_constants_with_their_settings(
    editor: Client,
) -> None:
    html = unescape(advised(editor)["html"])
    largest_terms = html.split('aria-labelledby="terms-title"')[1]
    rows = dict(re.findall(r'<li data-term="(\w+)">(.*?)</li>', largest_terms, re.DOTALL))
    constants = re.findall(r'<li data-constant="([\w.]+)">(.*?)</li>', largest_terms, re.DOTALL)

    assert len(rows) == 6  # three terms of memory, three phases
    assert any("data-fix" in row for row in rows.values())
    for row in rows.values():
        assert ("data-fix" in row) != ("no change of layout or memory settings lowers it" in row)
    assert len(constants) == 3
    settings = unescape(editor.get("/settings").content.decode())
    for name, row in constants:
        assert f'href="/settings#constant-{name}"' in row
        assert f'id="constant-{name}"' in settings
        assert "step" in row or "peak" in row
        assert "e-0" not in row
    for row in rows.values():
        assert not re.search(r"<b[^>]*>([^<]+)</b>.*→ \1:", row, re.DOTALL)  # 48 s → 48 s


def test_how_sure_the_memory_is_stands_beside_it(editor: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster(monkeypatch, memory=100 * GIB, gpus=8, kind="H100")

    assert re.search(r"GiB at peak.*?± \d+ %", planned(editor)["bars"], re.DOTALL)


def test_knobs_that_the_plan_ignores_are_named_among_its_notes(editor: Client) -> None:
    def notes(**texts: str) -> str:
        spec = recipes()["openrlhf-grpo-qwen2.5-7b"].spec
        form = {**spec_to_form(spec), "base": json.dumps(minimal(spec)), "plan.accelerator": "h100", **texts}
        return unescape(editor.post("/runs/new/check", form).json()["plan"]["bars"])

    assert "ignores" not in notes()
    assert f"The plan ignores: {knobs()['train.ema'].label}." in notes(**{"knobs.train.ema": "true"})


def test_fewer_devices_than_the_run_asks_for_are_no_fit(editor: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster(monkeypatch, memory=100 * GIB, gpus=2, kind="H100")

    found = planned(editor, **{"hardware.layout": "split"})

    assert found["state"] == "no"
    assert "The run asks for 4 devices; there are 2 ×" in found["verdict"]


@pytest.mark.parametrize("name", sorted(recipes()))
def test_a_probe_of_any_recipe_is_short_and_saves_nothing_on_the_way(name: str) -> None:
    spec = recipes()[name].spec

    probe = probe_of(spec, "x" * 120)

    assert len(probe.name) <= 120
    assert probe.name.endswith(" probe")
    changed = {k for k in spec.knobs if probe.knobs[k].value != spec.knobs[k].value}
    assert changed <= {
        "train.num_steps",
        "train.num_epochs",
        "data.max_samples",
        "checkpoint.every_steps",
        "checkpoint.save_hf",
        "eval.every_steps",
        "eval.num_prompts",
        "eval.before_training",
        "rollout.ignore_eos",
        "algorithm.dynamic_sampling",
    }
    assert probe.policy.retries == 0
    if "train.num_steps" in probe.knobs:
        assert 1 <= probe.num_steps <= PROBE_STEPS
    else:
        batch = "rollout.prompts_per_step" if "rollout.prompts_per_step" in probe.knobs else "train.batch_size"
        assert probe.int_knob("data.max_samples") <= PROBE_STEPS * probe.int_knob(batch)
    assert "rollout.ignore_eos" not in probe.knobs or probe.knob("rollout.ignore_eos") is True


def test_a_run_and_its_probe_may_be_launched_from_one_page(editor: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(new_run, "check_launchable", lambda *_given, **_secrets: [])
    spec = default_spec()
    form = {**spec_to_form(spec), "base": json.dumps(minimal(spec)), "name": "mine", "idempotency_key": "k"}
    headers = {"Accept": "application/json"}

    probe = editor.post("/runs/new", form | {"probe": "1", "idempotency_key": "k-probe"}, headers=headers)
    run = editor.post("/runs/new", form, headers=headers)

    assert (probe.status_code, run.status_code) == (201, 201)
    assert sorted(Run.objects.values_list("name", "num_steps")) == [("mine", 60), ("mine probe", 4)]
    assert Run.objects.get(name="mine probe").tags == ["probe"]
    assert Run.objects.get(name="mine").tags == []


@pytest.mark.parametrize(("spare", "word"), [(0, "Fits, but tight"), (-1, "May not fit")])
def test_the_word_of_a_verdict_and_its_bar_agree(spare: int, word: str) -> None:
    """A device has exactly the bytes that the run takes, or one less, which is within what is known."""
    fleet = Fleet(accelerator=find_accelerator("h100-sxm"), num_devices=8)
    model = shape_of("qwen2.5-7b")
    policy = Training(model=model, layout=Layout(num_devices=8, shards=3), family="fsdp", sequence=4096)
    roomy = Job(algorithm="sft", fleet=fleet, policy=policy)
    total = estimate(roomy).binding.memory.total
    card = replace(fleet.accelerator, usable_bytes=total + spare)
    job = replace(roomy, fleet=replace(fleet, accelerator=card))

    asked: Any = SimpleNamespace(job=job, fleet=job.fleet, models=SimpleNamespace(policy=model), notes=())
    panel = estimate_panel(estimate(job), asked)

    assert panel.state == "tight"
    assert panel.word == word
    assert panel.time is not None
    assert panel.time.step == panel.numbers[0].value  # both ends in one unit
    assert any(row.is_over for pool in panel.pools for row in pool.rows) == (spare < 0)
    assert plan_text(PlanOut.of(asked, estimate(job)).model_dump()).startswith(f"{word}: 8 x ")
