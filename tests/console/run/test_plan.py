"""A run's plan beside what it measured, by page and API: each line in words, what is missing with its reason."""

import re
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from console.views.run.plan_labels import summary
from jobs.cluster.ray_api import ClusterState, Node
from jobs.ingest.store import AttemptCache, store
from jobs.models import Attempt, Project, Run
from jobs.planner.memory.cpu import host_fleet
from jobs.planner.result import Interval
from jobs.planning.plan_vs_measured import PlannedRow, RunMeasurements
from jobs.planning.run_plan import RunPlan
from profiling import events
from tests.batches import T0, delivery
from tests.rows import NOW, make_project, make_run, make_user

pytestmark = pytest.mark.django_db

NS = 1_000_000_000
MIB = 1 << 20
ON_CPU = {"algorithm": "grpo", "hardware": {"device": "cpu"}}
ON_GPUS = {
    "algorithm": "grpo",
    "trainer": {"name": "verl", "version": "0.9.1"},
    "model": {"kind": "hub", "id": "Qwen/Qwen2.5-7B"},
    "knobs": {"placement.policy_gpus_per_node": 8},
}
H200: dict[str, Any] = {"accelerator": "h200", "nodes": 1, "devices_per_node": 8}


@pytest.fixture
def project() -> Project:
    return make_project()


@pytest.fixture
def editor(project: Project, client: Client) -> Client:
    client.force_login(make_user(project=project))
    return client


def state_of(monkeypatch: pytest.MonkeyPatch, **fields: Any) -> None:
    """Let the cluster have one node like that."""
    node = {"cpus": 8.0, "gpus": 0.0, "memory_bytes": 64.0 * (1 << 30), "accelerator": "", **fields}
    state = ClusterState(
        is_reachable=True,
        problem="",
        away_since=None,
        nodes=(Node(id="n1", address="10.0.0.1", is_head=True, **node),),
        cpus_total=node["cpus"],
        gpus_total=node["gpus"],
    )
    monkeypatch.setattr("console.views.run.plan.cluster_state", lambda: state)
    monkeypatch.setattr("console.api.planner.run_plan.cluster_state", lambda: state)


def told(run: Run, *some: Any) -> None:
    store([delivery(run.pk, 1, list(some))], memory=AttemptCache(), now=NOW)


def step_of(number: int, **seconds: float) -> Any:
    values = {f"time/{phase}_seconds": value for phase, value in seconds.items()}
    return events.metric(values, attempt=1, step=number, t=T0 + number * NS)


def card(client: Client, run: Run, **asked: Any) -> str:
    answer = client.get(reverse("run-plan", args=[run.pk]), asked)
    assert answer.status_code == 200
    return answer.content.decode()


def lines(text: str, key: str) -> dict[str, list[str]]:
    """Return the cells of a table's rows by their label."""
    (body,) = re.findall(rf'data-plan-lines="{key}".*?<tbody>(.*?)</tbody>', text, flags=re.DOTALL)
    found = {}
    for row in re.findall(r"<tr>(.*?)</tr>", body, flags=re.DOTALL):
        cells = re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, flags=re.DOTALL)
        label, *rest = (re.sub(r"<[^>]*>", "", cell).strip() for cell in cells)
        found[label] = rest
    return found


def by_key(answer: dict[str, Any]) -> dict[tuple[str, str, str, str], dict[str, Any]]:
    return {(r["quantity"], r["phase"], r["role"], r["term"]): r for r in answer["rows"]}


def test_the_page_asks_for_the_card_when_it_comes_into_sight(editor: Client, project: Project) -> None:
    run = make_run(project)

    page = editor.get(reverse("run", args=[run.pk])).content.decode()

    assert f'hx-get="{reverse("run-plan", args=[run.pk])}" hx-trigger="intersect once, pitwall:ended"' in page
    assert "data-plan-says" not in page


def test_a_run_on_gpus_stands_beside_the_plan_for_other_hardware(editor: Client, project: Project) -> None:
    run = make_run(project, state="running", spec=ON_GPUS)
    planned = by_key(editor.get(f"/api/runs/{run.pk}/plan", H200).json())
    update, step = (planned["seconds", phase, "", ""]["predicted"] for phase in ("update", "step"))
    told(run, *(step_of(n, update=update["middle"] * 1.12, step=step["high"] * 2) for n in (1, 2, 3)))

    text = card(editor, run, **H200)

    assert "Update took 12 % longer than planned. No peak of memory was measured." in text
    rows = lines(text, "seconds")
    assert rows["Update"][2:] == ["+12 % longer", "inside"]
    assert rows["Step"][3] == "outside"
    assert rows["Rollout"][1:] == ["—", "—", "The run does not report the time of this phase."]
    assert "planned for 8 × H200" in text
    assert "median of 2 steps" in text
    assert f"/runs/new?from={run.pk}&amp;accelerator=h200" in text

    answer = by_key(editor.get(f"/api/runs/{run.pk}/plan", H200).json())
    assert answer["seconds", "update", "", ""]["difference"] == pytest.approx(0.12)
    assert answer["seconds", "update", "", ""]["is_inside"] is True
    assert answer["seconds", "rollout", "", ""]["not_measured"] == "phase_not_told"
    assert answer["bytes", "update", "policy", ""]["not_measured"] == "no_peaks"


def test_a_run_on_the_cpu_has_its_memory_beside_the_plan(
    editor: Client, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    state_of(monkeypatch)
    run = make_run(project, state="finished", spec=ON_CPU)
    told(
        run,
        step_of(1, update=0.5, step=1.0),
        events.system(
            {"memory_baseline_bytes": 500.0 * MIB, "resident_peak/update_bytes": 1500.0 * MIB},
            attempt=1,
            role="policy",
            rank=0,
            t=T0,
        ),
    )

    text = card(editor, run)

    assert "Seconds are planned on the CPU once an earlier run on it has finished. Memory in policy: Update was" in text
    planned, measured, difference, inside = lines(text, "peaks")["policy: Update"]
    assert "MiB" in planned
    assert measured == "1,000.0 MiB"
    assert re.fullmatch(r"\+\d+ % more", difference)
    assert inside == "outside"
    why = "Planned on the CPU once an earlier run has measured this phase."
    assert lines(text, "seconds")["Update"] == ["—", "500 ms", "—", why]


def test_a_run_that_went_on_the_cpu_is_planned_there_when_the_cluster_has_gpus_by_now(
    editor: Client, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    state_of(monkeypatch, gpus=8.0, accelerator="H200")
    run = make_run(project, state="finished", spec={**ON_CPU, "hardware": {}})
    Attempt.objects.filter(run=run).update(num_gpus=0, num_cpus=3)

    assert editor.get(f"/api/runs/{run.pk}/plan").json()["accelerator"] == "cpu"


def ran_on(run: Run, *nodes: tuple[str, int], memory: float = 512e9) -> None:
    """Let the run's attempt have found nodes of so many devices of a kind, and have ended with eight of them."""
    rows = [
        {
            "accelerator": name,
            "gpus": gpus,
            "cpus": 64,
            "memory_bytes": memory,
            "count": 2,
            "ids": [f"{name}1", f"{name}2"],
        }
        for name, gpus in nodes
    ]
    Attempt.objects.filter(run=run).update(num_gpus=8, ran_on={"nodes": rows})


def test_a_finished_run_is_planned_on_what_it_ran_on_whatever_the_cluster_has_now(
    editor: Client, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    state_of(monkeypatch, gpus=4.0, accelerator="L4")
    run = make_run(project, state="finished", spec=ON_GPUS)
    ran_on(run, ("H200", 8), ("", 0))

    found = editor.get(f"/api/runs/{run.pk}/plan").json()

    assert (found["accelerator"], found["num_devices"], found["is_as_it_ran"]) == ("h200-sxm", 8, True)
    assert "planned for 8 × H200 SXM 141 GB, on which it ran" in card(editor, run)
    assert "on which it ran" not in card(editor, run, **H200)  # hypothetical
    assert editor.get(f"/api/runs/{run.pk}/plan", {"accelerator": "l4"}).json()["is_as_it_ran"] is False


@pytest.mark.parametrize(("gib", "kind"), [(40, "a100-40-sxm"), (80, "a100-80-sxm")])
def test_of_two_kinds_with_one_name_it_is_the_one_whose_memory_the_runner_read(
    editor: Client, project: Project, gib: int, kind: str
) -> None:
    run = make_run(project, state="finished", spec=ON_GPUS)
    ran_on(run, ("A100", 8))
    told(run, events.system({"gpu0_memory_total_bytes": gib * 2.0**30}, attempt=1, role="runner", rank=0, t=T0))

    assert editor.get(f"/api/runs/{run.pk}/plan").json()["accelerator"] == kind


def test_an_older_run_is_not_planned_on_what_the_cluster_has_by_now(
    editor: Client, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    state_of(monkeypatch, gpus=8.0, accelerator="H200")
    run = make_run(project, state="finished", spec=ON_GPUS)
    Attempt.objects.filter(run=run).update(num_gpus=8)

    text = card(editor, run)

    assert "The devices of this run were not stored. Choose the hardware that it ran on." in text
    assert 'name="accelerator"' in text
    Attempt.objects.filter(run=run).update(state="queued")  # it will take what there is
    assert editor.get(f"/api/runs/{run.pk}/plan").json()["accelerator"] == "h200-sxm"


def test_where_the_cluster_was_mixed_the_run_says_which_kind_it_took(editor: Client, project: Project) -> None:
    run = make_run(project, state="finished", spec=ON_GPUS)
    ran_on(run, ("H200", 8), ("L4", 4))

    assert "had H200 and L4, and the run does not report which of them it used" in card(editor, run)

    told(run, events.note("Workers", attempt=1, meta={"nodes": [{"node": "L42", "index": 0}]}))
    assert editor.get(f"/api/runs/{run.pk}/plan").json()["accelerator"] == "l4"


@pytest.mark.parametrize(
    ("model", "asked", "says"),
    [
        ("Qwen/Qwen2.5-7B", {}, "The cluster has no GPUs."),
        ("Qwen/Qwen2.5-7B", {"accelerator": "h2000"}, "h2000"),
        ("/nowhere/some-model", H200, "some-model"),
    ],
)
def test_why_there_is_no_plan_is_said(
    editor: Client, project: Project, monkeypatch: pytest.MonkeyPatch, model: str, asked: dict[str, Any], says: str
) -> None:
    state_of(monkeypatch)
    kind = "path" if model.startswith("/") else "hub"
    run = make_run(project, spec={**ON_GPUS, "model": {"kind": kind, "id": model}})

    text = card(editor, run, **asked)

    assert "There is no plan of this run." in text
    assert says in text
    assert ('name="accelerator"' in text) == (model == "Qwen/Qwen2.5-7B")
    refused = editor.get(f"/api/runs/{run.pk}/plan", asked)
    assert refused.status_code == 422
    assert says in refused.json()["problems"][0]["message"]


def test_a_viewer_sees_the_plan_and_no_way_to_new_run(client: Client, project: Project) -> None:
    client.force_login(make_user(project=project, role="viewer"))

    text = card(client, make_run(project, spec=ON_GPUS), **H200)

    assert "No step was measured yet." in text
    assert "/runs/new" not in text


def row(quantity: Any, phase: str, planned: float, measured: float | None, role: str = "") -> PlannedRow:
    around = Interval(low=planned * 0.5, middle=planned, high=planned * 2)
    return PlannedRow(quantity=quantity, phase=phase, role=role, predicted=around, measured=measured)


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        # a tenth of a second more than twice as long weighs less than 3 s of 10
        (
            (row("seconds", "reward", 0.1, 0.25), row("seconds", "rollout", 10, 7), row("seconds", "step", 10.1, 100)),
            "Rollout took 30 % less time than planned. No peak of memory was measured.",
        ),
        (
            (row("seconds", "update", 4, 4.001), row("bytes", "update", 100, 97, "policy")),
            "Every phase took as long as planned. Memory was within 3 % of the plan.",
        ),
        (
            (row("bytes", "update", 100, 150, "policy"), row("bytes", "update", 100, 55, "critic")),
            "No step was measured yet. Memory in policy: Update was 50 % more than planned.",
        ),
        (
            (row("bytes", "update", 100, 70, "policy"),),
            "No step was measured yet. Memory in policy: Update was 30 % less than planned.",
        ),
        (
            (
                row("seconds", "update", 4, None),
                row("bytes", "update", 100, 104, "policy"),
                row("bytes", "critic", 9, None, "critic"),
            ),
            "No step was measured yet. Memory was within 4 % of the plan.",
        ),
    ],
)
def test_the_sentence_names_what_differs_most(rows: tuple[PlannedRow, ...], says: str) -> None:
    found = RunPlan(
        rows=rows,
        measured=RunMeasurements(),
        has_seconds=True,
        fleet=host_fleet(1, 1 << 30),
        is_as_it_ran=True,
        notes=(),
    )

    assert summary(found) == says


def test_what_was_generated_is_said_where_the_plan_assumed_something_else(editor: Client, project: Project) -> None:
    run = make_run(project, state="running", spec=ON_GPUS)
    told(run, events.metric({"response/length_mean": 40.0}, attempt=1, step=1, t=T0))

    said = r"Responses had 40 tokens on average; the plan assumes \d+\."
    assert re.search(said, card(editor, run, **H200))
