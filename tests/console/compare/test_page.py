"""The page Compare and its API as the server sends them: access, address, tabs, verdict, CSV, hostile input."""

import html
import json
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from console.views.compare.address import TABS
from jobs.ingest.compaction import append_points
from jobs.models import Artifact, Attempt, Capture, Metric, Project, Run, RunEvent, Sample, Study
from jobs.telemetry.chunks import points
from tests.console.fake_runner import content
from tests.rows import make_project, make_run, make_user

pytestmark = pytest.mark.django_db

STEPS = np.arange(1, 61)
NOISE = np.random.default_rng(5).normal(size=60)


@pytest.fixture
def project() -> Project:
    return make_project()


@pytest.fixture
def member(project: Project, client: Client) -> Client:
    client.force_login(make_user(project=project), backend="django.contrib.auth.backends.ModelBackend")
    return client


def measured(project: Project, name: str, *, pace: float = 1.0, reward: float = 0.5, **fields: Any) -> Run:
    """Return a run of sixty steps."""
    spec = {"name": name, "knobs": fields.pop("knobs", {})}
    run = make_run(project, state=fields.pop("state", "finished"), spec=spec, step=60, num_steps=60, **fields)
    columns: Mapping[str, Any] = {
        "time/step_seconds": pace * (1 + 0.02 * NOISE),
        "time/rollout_seconds": pace * 0.6 * np.ones(60),
        "time/update_seconds": pace * 0.3 * np.ones(60),
        "reward/mean": reward + 0.01 * np.roll(NOISE, ord(name[-1])),
    }
    for metric, y in columns.items():
        row = Metric.objects.create(run=run, name=metric)
        append_points({row.pk: points(STEPS, STEPS, y)}, attempt=1, through=0)
    return run


def page(client: Client, query: str) -> str:
    answer = client.get(f"/compare?{query}")
    assert answer.status_code == 200, answer.status_code
    return html.unescape(answer.content.decode())


def data(markup: str) -> dict[str, Any]:
    """Return what the page gives its modules."""
    found = re.search(r'id="compare-page"[^>]*>(.*?)</script>', markup, re.DOTALL)
    assert found
    read: dict[str, Any] = json.loads(found[1])
    return read


def body(answer: Any) -> list[str]:
    """Return the lines of a streamed answer."""
    return content(answer).decode().splitlines()


def text(markup: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", markup).split())


def test_a_faster_run_that_learns_the_same_is_better(member: Client, project: Project) -> None:
    base, run = measured(project, "grpo-t05", pace=15.0), measured(project, "grpo-t06", pace=10.0)

    said = text(page(member, f"runs={base.pk},{run.pk}"))

    assert (
        "Better t06 is 1.50× faster than t05 per step, because rollout is 33 % shorter; "
        "no difference shown in reward so far."
    ) in said
    assert re.search(
        r"Median step time [\d.]+ s → [\d.]+ s \(95 % interval of the ratio at the same steps 1\.33–1\.69, 57 steps",
        said,
    )
    assert re.search(r"Reward differs by [+−±]0[.\d]* ± 0\.0\d+ \(mean of the last 20 common steps\): no differ", said)
    assert "One run each: step times of one configuration may differ by 12.6 %, as seeds of the demo did on CPU" in said
    assert "Clone t06" in said
    assert "t06 − t05 Rollout −3.00 s Update −1.50 s" in said


def test_charts_have_room_for_the_planned_steps_of_runs_that_go_on_alone(member: Client, project: Project) -> None:
    over, live = measured(project, "over"), measured(project, "live", state="running")
    Run.objects.filter(pk__in=[over.pk, live.pk]).update(num_steps=600)

    assert data(page(member, f"runs={over.pk},{live.pk}"))["numSteps"] == 600
    assert data(page(member, f"runs={over.pk},{live.pk}&hide={live.pk}"))["numSteps"] == 0


def test_a_faster_run_that_learns_worse_is_worse_and_another_base_turns_it_round(
    member: Client, project: Project
) -> None:
    base, run = measured(project, "a", pace=15.0), measured(project, "b", pace=10.0, reward=0.4)

    assert "Worse b is 1.50× faster than a per step, because rollout is 33 % shorter; reward is lower by 0.1" in text(
        page(member, f"runs={base.pk},{run.pk}")
    )
    turned = text(page(member, f"runs={base.pk},{run.pk}&base={run.pk}"))
    assert "Better a is 1.50× slower than b per step, because rollout is 50 % longer; reward is higher" in turned


def test_a_small_difference_is_a_percentage_with_its_interval(member: Client, project: Project) -> None:
    base = measured(project, "a", pace=10.0)
    run = measured(project, "b", pace=9.0, knobs={"rollout.prompts_per_step": 4})
    query = f"runs={base.pk},{run.pk}"
    assert "b and a show no difference so far" in text(page(member, query))
    for name, pace in {"c": 9.9, "d": 10.1, "e": 10.0, "f": 10.0}.items():
        measured(project, name, pace=pace)

    said = text(page(member, query))

    assert re.search(r"Better b is 11\.1 % ± 3\.\d % faster than a per step", said)
    assert re.search(r"may differ by 2\.\d %, as 5 repeats in this project say", said)


def test_a_run_on_a_busy_node_is_not_comparable_and_says_why(member: Client, project: Project) -> None:
    base, run = measured(project, "a", pace=1.7), measured(project, "b", pace=1.0)
    for one, own, driver in ((base, 1.0, "550"), (run, 1.9, "560")):
        times = STEPS * 2_000_000_000
        for name, value in (("cpu_percent", 100.0), ("cpu_cores", 2.0), ("run_cpu_cores", own)):
            row = Metric.objects.create(run=one, kind="system", name=name, role="runner")
            append_points({row.pk: points(times, times, np.full(60, value))}, attempt=1, through=0)
        told = {"environment": {"driver": driver}}
        RunEvent.objects.create(run=one, at=one.created_at, verb="note", text="", data=told)

    said = text(page(member, f"runs={base.pk},{run.pk}"))
    answer = member.get(f"/api/compare?runs={base.pk},{run.pk}").json()

    assert "Not comparable b against a : step times are not comparable; no difference shown in reward so far." in said
    assert (
        "Step times are not comparable: other programs took 5 % of the node's CPU while b trained, "
        "50 % while a did; another driver (550 → 560). Median step time"
    ) in said
    assert "driver Driver of the devices 550 ≠ 560" in said
    assert re.search(r"Step time, median .{1,99}not comparable", said)
    assert re.search(r"first reached .{1,99} %, not comparable", said)  # its time is of the same steps
    verdict = answer["runs"][1]["verdict"]
    assert (verdict["badge"], verdict["is_speed_comparable"]) == ("not_comparable", False)
    assert [one["kind"] for one in verdict["conditions"]] == ["load", "driver"]
    assert answer["runs"][0]["load"]["taken"] == pytest.approx(0.5)
    assert [row["id"] for row in answer["environment"]] == ["driver"]


def test_a_run_with_few_steps_is_not_judged(member: Client, project: Project) -> None:
    base, fresh = measured(project, "a"), make_run(project, spec={"name": "waiting"})

    said = text(page(member, f"runs={base.pk},{fresh.pk}"))

    assert (
        "Not enough data Not enough common steps to tell waiting and a apart. waiting has not completed a step yet."
        in said
    )


def test_only_differences_are_in_the_config_diff(member: Client, project: Project) -> None:
    base = measured(project, "a")
    run = measured(project, "b", knobs={"optimizer.learning_rate": 1e-5})

    shown = page(member, f"runs={base.pk},{run.pk}&tab=config")
    everything = page(member, f"runs={base.pk},{run.pk}&tab=config&all=1")

    assert re.findall(r"<tr data-difference tabindex=\"-1\"><th scope=\"row\"><code>([\w.]+)", shown) == [
        "optimizer.learning_rate"
    ]
    assert re.search(r"1 of \d+ settings differs, \d+ equal hidden", text(shown))
    assert "≠ 1e-5" in text(shown)
    assert 'data-origin="you"' in shown
    assert shown.count('<th scope="row">') == 1
    assert everything.count('<th scope="row">') > 40


def test_the_table_has_last_best_mean_min_max_and_the_value_at_a_step(member: Client, project: Project) -> None:
    base, run = measured(project, "a"), measured(project, "b", reward=0.7)

    shown = page(member, f"runs={base.pk},{run.pk}&tab=table&step=30&q=reward")

    assert [text(head) for head in re.findall(r"<th scope=\"col\" class=\"num\">(.*?)</th>", shown)] == [
        "Last", "Best", "Mean", "Min", "Max", "At step 30",
    ]  # fmt: skip
    assert len(re.findall(r'<th scope="rowgroup"', shown)) == 1  # only what the filter leaves
    assert len(re.findall(r"\+0\.[12]\d+ better", text(shown))) == 3  # last, best, at step: both got equally far
    assert len(re.findall(r"\+0\.[12]\d+ higher", text(shown))) == 3  # of extremes and means neither is said


def test_the_table_says_what_a_level_took(member: Client, project: Project) -> None:
    base, run = measured(project, "a", pace=1.0), measured(project, "b", pace=2.0)
    Attempt.objects.filter(run__in=[base, run]).update(num_gpus=8)
    query = f"runs={base.pk},{run.pk}&tab=table&step=30&q=reward&target=0.48"

    shown = page(member, query)
    for one, driver in ((base, "550"), (run, "560")):
        told = {"environment": {"driver": driver}}
        RunEvent.objects.create(run=one, at=one.created_at, verb="note", text="", data=told)
    apart = page(member, query)

    assert "Time to 0.480 GPU hours to 0.480" in text(shown)
    cells = [text(cell) for cell in re.findall(r"<td class=\"num [^>]*>(.*?)</td>", shown, re.DOTALL)]
    assert re.fullmatch(r"[\d.]+ s step 5", cells[6])
    assert re.fullmatch(r"[\d.]+ s step 5, \+100 %", cells[14])
    assert re.fullmatch(r"0\.0\d+ \+100 %", cells[15])
    assert text(apart).count("+100 %, not comparable") == 2  # time, and GPU hours


def test_runs_of_unequal_length_are_not_called_better_by_their_last_value(member: Client, project: Project) -> None:
    base, run = measured(project, "a"), make_run(project, state="running", spec={"name": "b"}, step=10)
    row = Metric.objects.create(run=run, name="reward/mean")
    append_points({row.pk: points(STEPS[:10], STEPS[:10], np.full(10, 0.9))}, attempt=1, through=0)

    shown = page(member, f"runs={base.pk},{run.pk}&tab=table&q=reward")
    cells = re.findall(r"<td class=\"num [^>]*>(.*?)</td>", shown, re.DOTALL)

    last, at_step = text(cells[6]), text(cells[11])
    assert last.endswith("higher")
    assert at_step.endswith("better")  # both at step 10


def test_samples_of_a_prompt_stand_side_by_side(member: Client, project: Project) -> None:
    runs = [make_run(project, spec={"name": name}) for name in ("a", "b")]
    for run, reward in zip(runs, (1.0, 0.1), strict=True):
        values = {"attempt": 1, "step": 4, "group": 0, "index": 0, "reward": reward, "tokens": 2}
        Sample.objects.create(run=run, prompt="1+1=", completion=f"said by {run.name} <b>", expected="2", **values)

    raw = member.get(f"/compare?runs={runs[0].pk},{runs[1].pk}&tab=samples").content.decode()

    assert raw.count('class="card cmp-prompt"') == 1
    assert "said by a &lt;b&gt;" in raw
    assert "said by b &lt;b&gt;" in raw
    marks = [re.findall(r"#([-\w]+)", part)[0] for part in raw.split('class="cmp-answer"')[1:]]
    assert marks == ["check", "circle-half-2"]  # a part of the reward is not a right answer
    assert "No held-out sample yet." in page(member, f"runs={runs[0].pk},{runs[1].pk}&tab=samples&kind=eval")


def test_captures_stand_side_by_side_with_what_can_be_fetched(member: Client, project: Project) -> None:
    runs = [make_run(project, spec={"name": name}) for name in ("a", "b", "c")]
    ready, failed = (
        Capture.objects.create(run=run, attempt=1, tool="torch", first_step=4, num_steps=2, state=state, **more)
        for run, state, more in (
            (runs[0], "ready", {"roles": ["policy", "vllm"], "ranks": [0, 1, 3]}),
            (runs[1], "failed", {"problem": "The disk of <node b> is full."}),
        )
    )
    files = [
        Artifact.objects.create(
            run=one.run, attempt=1, name=f"{one.pk}-{role}-0.json.gz", type="trace", path=role, size=2048, capture=one,
            is_ready=one is ready, meta={"role": role, "rank": 0},
        )
        for one, role in ((ready, "policy"), (failed, "vllm"))
    ]  # fmt: skip
    query = f"runs={','.join(run.pk for run in runs)}"

    raw = member.get(f"/compare?{query}&tab=traces").content.decode()
    shown = html.unescape(raw)
    answer = member.get(f"/api/compare?{query}").json()

    assert shown.count("cmp-trace-row") == 1
    first, second, third = (text(part) for part in shown.split('<div class="cmp-answer-column">')[1:])
    assert "Steps 4–5 ready All as zip policy, vLLM, ranks 0–1, 3 2.0 KiB" in first
    assert first.endswith("policy-0.json.gz policy 0, 2.0 KiB Perfetto")
    assert "Steps 4–5 failed all workers" in second
    assert second.endswith("vllm-0.json.gz vLLM 0, 2.0 KiB on the cluster")
    assert "&lt;node b&gt;" in raw
    assert third.startswith("c No torch capture of these steps. Its captures")
    for address in (
        f"/runs/{runs[0].pk}/captures/{ready.pk}.zip",
        f"/runs/{runs[0].pk}/captures/{ready.pk}/perfetto?file={files[0].pk}",
        f"/runs/{runs[0].pk}/files/{files[0].pk}",
        f"/runs/{runs[1].pk}/profile?capture={failed.pk}",
        f"/runs/{runs[2].pk}/profile",
    ):
        assert f'href="{address}"' in shown
    assert f"/files/{files[1].pk}" not in shown  # its bytes are not here
    (row,) = answer["captures"]
    assert (row["tool"], row["steps"]) == ("torch", [4, 5])
    assert [[one["id"] for one in row["runs"][run.pk]] for run in runs] == [[ready.pk], [failed.pk], []]
    assert row["runs"][runs[0].pk][0]["files"][0]["role"] == "policy"


@pytest.mark.parametrize(("received", "said"), [(0, "on the cluster"), (1536, "copying 75 %")])
def test_a_file_under_way_says_how_far_it_is(member: Client, project: Project, received: int, said: str) -> None:
    run = make_run(project)
    capture = Capture.objects.create(run=run, attempt=1, tool="nsys", first_step=4, num_steps=1, state="importing")
    size = {"size": 2048, "received": received, "is_ready": False}
    Artifact.objects.create(run=run, attempt=1, name="a.nsys-rep", type="trace", path="a", capture=capture, **size)

    assert f"a.nsys-rep 2.0 KiB {said}" in text(page(member, f"runs={run.pk}&tab=traces"))


def test_without_captures_the_way_to_one_is_shown(member: Client, project: Project) -> None:
    runs = [make_run(project, spec={"name": name}) for name in ("a", "b")]

    shown = page(member, f"runs={runs[0].pk},{runs[1].pk}&tab=traces")

    assert "No step of these runs was recorded." in shown
    assert all(f'href="/runs/{run.pk}/profile"' in shown for run in runs)


@pytest.mark.parametrize("tab", TABS)
def test_every_tab_opens_with_runs_in_any_state(member: Client, project: Project, tab: str) -> None:
    runs = [measured(project, "a"), make_run(project), make_run(project, state="failed", spec={"algorithm": "sft"})]
    query = f"runs={','.join(run.pk for run in runs)}&tab={tab}"

    shown = page(member, query)

    assert f'data-tab="{tab}"' in shown
    assert "Compare 3 runs" in shown
    page(member, f"{query}&hide={runs[0].pk}")
    assert "All runs are hidden." in page(member, f"{query}&hide={','.join(run.pk for run in runs)}")


def test_without_runs_it_proposes_some_and_with_one_it_invites_to_add(member: Client, project: Project) -> None:
    first, second = make_run(project, spec={"name": "first"}), make_run(project, spec={"name": "second"})
    make_run(spec={"name": "of strangers"})

    empty, one = page(member, ""), page(member, f"runs={first.pk}")

    assert "Which runs?" in empty
    assert f'value="{second.pk}"' in empty
    assert "Compare it with" in one
    assert f'value="{first.pk}" data-pick-run>' not in one
    assert "of strangers" not in empty + one


def test_a_foreign_run_is_as_if_it_did_not_exist(member: Client, project: Project) -> None:
    mine, foreign = measured(project, "mine"), make_run(spec={"name": "secret"})

    shown = page(member, f"runs={mine.pk},{foreign.pk},r-00000000")

    assert "secret" not in shown
    assert f"Not found, or no access: {foreign.pk}, r-00000000." in text(shown)
    assert member.get(f"/compare?runs={foreign.pk}").status_code == 404
    for address in ("/compare/table.csv", "/compare/series.csv"):
        assert member.get(f"{address}?runs={foreign.pk}").status_code == 404
    for address in ("/api/compare", "/api/compare/series"):
        assert member.get(f"{address}?runs={mine.pk},{foreign.pk}&metrics=reward/mean").status_code == 404
    study = Study.objects.create(project=foreign.project, name="s", spec={}, knobs=[], method="grid", num_runs=1)
    assert member.get(f"/compare?study={study.pk}").status_code == 404


@pytest.mark.parametrize(
    "query",
    [
        "runs=<script>alert(1)</script>",
        "runs={run},../../etc/passwd,%27;DROP TABLE&base=%22&tab=nothing&step=-1&zoom=NaN_x&group=a'b.c",
        "runs={run}&hide=,,,&page=99999999999999999999&at=1e9&q=%0a<&m=%3Cimg%3E&smooth=9",
        "runs={run}&study=s-%27&kind=x&x=y&step=99999999999",
    ],
)
def test_what_an_address_gets_wrong_falls_back(member: Client, project: Project, query: str) -> None:
    run = measured(project, "</script><script>alert(1)</script>")

    answer = member.get("/compare?" + query.format(run=run.pk))

    assert answer.status_code == 200
    assert "<script>alert(1)" not in answer.content.decode()
    assert "<img>" not in answer.content.decode()


def test_entries_that_are_no_run_ids_are_named(member: Client, project: Project) -> None:
    run = measured(project, "mine")
    many = ",".join(f"r-{number:08d}" for number in range(50))

    named, left = text(page(member, f"runs={run.pk},R-1,mine")), text(page(member, f"runs={run.pk},{many}"))

    assert "Not a run id: R-1, mine. One looks like r-1a2b3c4d." in named
    assert "left out" not in named
    assert "1 run is left out: at most 50 are compared." in left
    assert "Not a run id" not in left


def test_more_than_ten_runs_are_drawn_apart_and_more_than_fifty_refused(member: Client, project: Project) -> None:
    runs = [make_run(project, spec={"name": f"run {i}"}) for i in range(12)]

    shown = page(member, f"runs={','.join(run.pk for run in runs)}")
    drawn = data(shown)["runs"]
    too_many = page(member, "runs=" + ",".join([runs[0].pk, *(f"r-{i:08x}" for i in range(60))]))

    assert len({(run["color"], run["dash"]) for run in drawn}) == 12
    assert sum(run["dash"] > 0 for run in drawn) == 2
    assert "11 runs are left out: at most 50 are compared." in text(too_many)


def test_a_sweep_opens_grouped_by_its_knob(member: Client, project: Project) -> None:
    study = Study.objects.create(project=project, name="rates", spec={}, knobs=[], method="grid", num_runs=4)
    runs = []
    for rate, reward in ((1e-5, 0.7), (1e-6, 0.5)):
        for seed in (1, 2):
            values = {"optimizer.learning_rate": rate, "train.seed": seed}
            runs.append(
                measured(project, f"{rate:g}-{seed}", reward=reward + seed / 100, study=study, study_values=values)
            )
    dearest, cheapest = runs[0], runs[-1]

    shown = page(member, f"study={study.pk}&group=optimizer.learning_rate&tab=table&q=reward")

    assert "sweep of 4 runs" in text(shown)
    said = text(page(member, f"study={study.pk}&group=optimizer.learning_rate&base={dearest.pk}"))
    assert re.search(r"Worse 1e-6 against 1e-5 ?: reward is lower by 0\.\d+; step times show no difference\.", said)
    assert "(2 runs) against" in said
    assert "One seed each" not in said  # the spread between runs is what it goes by
    one_each = f"runs={cheapest.pk},{dearest.pk}&group=optimizer.learning_rate"
    assert "The spread between runs needs two runs of each group" in text(page(member, one_each))
    groups = [text(cell) for cell in re.findall(r"<td class=\"cmp-run-cell\">(.*?)</td>", shown)]
    assert groups == ["1e-6 baseline", "1e-5"] or groups == ["1e-6", "1e-5 baseline"]
    assert "mean of 2 runs" in shown
    level = f"study={study.pk}&group=optimizer.learning_rate&base={dearest.pk}&target=0.715"
    took = re.search(r"Reward 0\.715 first reached .*? mean of 5 steps (.+?) Config diff", text(page(member, level)))
    assert took is not None
    assert re.match(r"not reached [\d.]+ m?s", took[1])
    table = text(page(member, f"{level}&tab=table"))
    assert "Time to 0.715" in table
    assert "not reached" in table
    colors = {run["group"]: run["color"] for run in data(shown)["runs"]}
    assert colors == {"1e-6": 0, "1e-5": 1}


def test_csv_carries_the_view(member: Client, project: Project) -> None:
    base, run = measured(project, "a"), measured(project, "b")

    table = member.get(f"/compare/table.csv?runs={base.pk},{run.pk}&base={run.pk}&step=7")
    series = member.get(f"/compare/series.csv?runs={base.pk},{run.pk}&m=reward/mean")

    lines = body(table)
    assert table["Content-Type"] == "text/csv; charset=utf-8"
    assert [line.split(",")[4:7] for line in lines[1:3]] == [[run.pk, "b", "1"], [base.pk, "a", "0"]]
    assert len(body(series)) == 1 + 2 * 60


def test_the_api_gives_the_same_verdict(member: Client, project: Project) -> None:
    base, run = measured(project, "a", pace=15.0), measured(project, "b", pace=10.0, knobs={"train.seed": 7})

    answer = member.get(f"/api/compare?runs={base.pk},{run.pk}&step=30").json()
    series = member.get(f"/api/compare/series?runs={base.pk},{run.pk}&metrics=reward/mean&x=time&points=8").json()[
        "series"
    ]

    assert (answer["base"], answer["step"], answer["window"]) == (base.pk, 30, {"low": 1, "high": 60})
    verdict = answer["runs"][1]["verdict"]
    assert (verdict["badge"], verdict["outcome"]) == ("better", "reward/mean")
    assert verdict["speed"]["low"] < 10 / 15 < verdict["speed"]["high"]
    assert answer["runs"][0]["verdict"] is None
    assert answer["runs"][1]["phases"] == pytest.approx({"rollout": 6.0, "update": 3.0})
    row = next(row for row in answer["metrics"] if row["name"] == "reward/mean")
    assert [own["at"]["step"] for own in row["runs"]] == [30, 30]
    assert [row["id"] for row in answer["differences"]] == ["train.seed"]
    assert [(one["run"], one["n"], one["of"]) for one in series] == [(base.pk, 8, 60), (run.pk, 8, 60)]
    assert series[0]["x"][-1] == pytest.approx(15.0 * (60 + 0.02 * NOISE.sum()))


def test_the_api_refuses_in_sentences(member: Client, project: Project) -> None:
    run = measured(project, "a")

    for query, field in (
        ("runs=,", "runs"),
        ("runs=" + ",".join(f"r-{i}" for i in range(51)), "runs"),
        (f"runs={run.pk}&base=r-x", "base"),
    ):
        answer = member.get(f"/api/compare?{query}")
        assert (answer.status_code, answer.json()["problems"][0]["field"]) == (422, field)
    assert member.get(f"/api/compare/series?runs={run.pk}&metrics=a&from=1e300").status_code == 422


def test_the_page_asks_the_database_equally_often_however_long_the_runs_are(member: Client, project: Project) -> None:
    runs = [measured(project, "a"), measured(project, "b")]
    counts = []
    for start in (0, 400):
        values = {"attempt": 1, "group": 0, "index": 0, "prompt": "p", "completion": "c"}
        steps = range(start, start + 1 + start)
        Sample.objects.bulk_create(Sample(run=run, step=step, **values) for run in runs for step in steps)
        with CaptureQueriesContext(connection) as queries:
            page(member, f"runs={runs[0].pk},{runs[1].pk}")
            page(member, f"runs={runs[0].pk},{runs[1].pk}&tab=samples")
        counts.append(len(queries))

    assert counts[0] == counts[1]
    assert counts[0] < 100


def test_the_way_to_compare_is_on_runs_and_on_a_run(member: Client, project: Project) -> None:
    run = make_run(project)

    assert f'data-act="compare" data-url="{reverse("compare")}"' in member.get("/runs").content.decode()
    assert f'href="/compare?runs={run.pk}"' in member.get(f"/runs/{run.pk}").content.decode()


def test_marks_stand_on_every_axis_and_of_many_runs_the_baseline_has_them(member: Client, project: Project) -> None:
    base, run = measured(project, "a", pace=2.0), measured(project, "b")
    Artifact.objects.create(run=run, attempt=1, name="c", type="checkpoint", path="c", step=30)
    Capture.objects.create(run=run, attempt=1, tool="torch", first_step=4, num_steps=2, state="ready")
    query = f"runs={base.pk},{run.pk}&tab=charts"

    by_step, by_time = (
        {one["id"]: one["marks"] for one in data(page(member, query + more))["runs"]}[run.pk]
        for more in ("", "&x=time")
    )
    others = [make_run(project, spec={"name": f"run {i}"}) for i in range(10)]
    many = page(member, f"runs={','.join(one.pk for one in (base, run, *others))}&tab=charts")

    assert (by_step["checkpoints"], by_step["captures"]) == ([30], [{"steps": [4, 5], "tool": "torch"}])
    assert by_step["places"] is None
    assert by_time["places"] == {
        "4": pytest.approx(4, abs=0.3), "5": pytest.approx(5, abs=0.3), "30": pytest.approx(30, abs=1.5),
    }  # fmt: skip
    assert [one["id"] for one in data(many)["runs"] if one["marks"]] == [base.pk]
    assert "marks of the baseline only" in text(many)
    assert "marks of the baseline only" not in text(page(member, query))


def test_a_place_of_a_chart_is_another_step_of_each_run(member: Client, project: Project) -> None:
    slow, fast, short = measured(project, "a", pace=2.0), measured(project, "b"), make_run(project, step=0)
    ids = f"{slow.pk},{fast.pk},{short.pk}"

    def points_at(query: str) -> list[Any]:
        runs = member.get(f"/api/compare/point?runs={ids}&metric=reward/mean&{query}").json()["runs"]
        return [(one["step"], one["value"] and one["value"]["step"]) for one in runs]

    assert points_at("at=30") == [(30, 30), (30, 30), (None, None)]
    assert points_at("at=61") == [(None, None)] * 3
    (of_slow, _), (of_fast, value_step), nothing = points_at("at=40&x=time")
    assert (of_slow, of_fast) == (pytest.approx(20, abs=1), pytest.approx(40, abs=1))
    assert value_step == of_fast
    assert nothing == (None, None)


def test_a_place_of_many_runs_takes_no_more_statements(member: Client, project: Project) -> None:
    runs = [measured(project, f"run-{i}", pace=1 + i / 10) for i in range(6)]
    counts = []
    for some in (runs[:2], runs):
        with CaptureQueriesContext(connection) as queries:
            ids = ",".join(run.pk for run in some)
            assert member.get(f"/api/compare/point?runs={ids}&metric=reward/mean&x=time&at=20").status_code == 200
        counts.append(len(queries))

    assert counts[0] == counts[1]


def test_when_a_level_was_reached_in_time_and_gpu_hours(member: Client, project: Project) -> None:
    base, run = measured(project, "a", pace=2.0, reward=0.2), measured(project, "b", pace=1.0)
    slow = make_run(project, state="finished", spec={"name": "c"}, step=60)
    ramp = Metric.objects.create(run=slow, name="reward/mean")
    append_points({ramp.pk: points(STEPS, STEPS, STEPS / 100.0)}, attempt=1, through=0)
    Attempt.objects.filter(run=run).update(num_gpus=8)
    ids = f"{base.pk},{run.pk},{slow.pk}"

    target = member.get(f"/api/compare?runs={ids}&target=0.45").json()["target"]
    own = member.get(f"/api/compare?runs={ids}").json()["target"]

    assert (target["metric"], target["value"], target["runs"][base.pk]) == ("reward/mean", 0.45, None)
    reached = target["runs"][run.pk]
    assert (reached["step"], round(reached["seconds"])) == (5, 5)  # the mean of the first five steps
    assert reached["gpu_hours"] == pytest.approx(8 * reached["seconds"] / 3600)
    assert target["runs"][slow.pk] == {"step": 47, "seconds": None, "gpu_hours": None}  # mean of 43 to 47
    assert own["value"] == pytest.approx(0.2, abs=0.02)  # what the least of them reached
    said = text(page(member, f"runs={ids}&target=0.45"))
    assert re.search(
        r"Reward 0\.450 first reached training time; mean of 5 steps not reached [\d.]+ s step 5, 0\.01\d* GPU h", said
    )


def test_the_report_is_one_file_with_verdict_numbers_and_a_line_for_each_run(member: Client, project: Project) -> None:
    base = measured(project, "grpo-t05", pace=15.0)
    run = measured(project, "grpo-t06", pace=10.0, knobs={"optimizer.learning_rate": 1e-5})

    answer = member.get(f"/compare/report.html?runs={base.pk},{run.pk}")
    markup = html.unescape(answer.content.decode())

    assert "attachment" in answer["Content-Disposition"]
    assert not re.search(r"(?:src|href|url\()\s*=?", markup)  # nothing to fetch
    assert "t06 is 1.50× faster than t05 per step" in text(markup)
    assert "The outcome decides the badge" in text(markup)
    assert re.search(r"Knob\s+t05\s+t06\s+optimizer.learning_rate", text(markup))
    assert markup.count('class="line"') == 4  # two runs, reward and step time
    assert "Step time, median" in text(markup)
