"""The data of a run over HTTP: shapes, numbers JSON has no word for, refusals, and membership."""

from typing import Any

import pytest
from django.test import Client

from jobs.ingest.store import AttemptCache, store
from jobs.models import Run
from profiling import events as make
from profiling.phases import PHASES
from tests.batches import T0, delivery, metric
from tests.rows import NOW, make_project, make_run, make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def run() -> Run:
    """A run with three steps of everything."""
    run = make_run(make_project(), state="running")
    reported: list[Any] = [metric(i, **{"loss": 1.0 / i, "reward/mean": float("nan")}) for i in (1, 2, 3)]
    reported += [
        make.system({"cpu_percent": 50.0}, attempt=1, role="runner", t=T0 + 1),
        make.span("update", start=T0, duration=5, attempt=1, step=1, role="policy", rank=1, name="adam", depth=1),
        make.log(["Hello", "World"], attempt=1, role="vllm"),
        make.sample(
            attempt=1, step=1, group=0, index=0, prompt="2+2", completion="4", expected="4", reward=1.0,
            rewards={"math": 1.0}, tokens=1,
        ),
    ]  # fmt: skip
    store([delivery(run.pk, 1, reported)], memory=AttemptCache(), now=NOW)
    return run


@pytest.fixture
def client(run: Run) -> Client:
    client = Client()
    client.force_login(make_user(project=run.project, role="viewer"))
    return client


def get(client: Client, run: Run, path: str, **query: Any) -> Any:
    return client.get(f"/api/runs/{run.pk}/{path}", query_params=query)


def test_metrics_are_listed_with_what_they_mean(client: Client, run: Run) -> None:
    answer = get(client, run, "metrics").json()

    assert answer["through_seq"] == 1
    assert [(m["kind"], m["name"]) for m in answer["metrics"]] == [
        ("metric", "loss"),
        ("metric", "reward/mean"),
        ("system", "cpu_percent"),
    ]
    assert all(m["label"] and m["definition"] for m in answer["metrics"])


def test_series_come_as_columns(client: Client, run: Run) -> None:
    answer = get(client, run, "series", metrics="loss,reward/mean,cpu_percent", smooth=0.5).json()

    loss, reward, cpu = answer["series"]
    assert answer["through_seq"] == 1
    assert (loss["x"], loss["y"], loss["n"], loss["of"]) == ([1, 2, 3], [1.0, 0.5, 1.0 / 3], 3, 3)
    assert (loss["low"], loss["high"], loss["attempt"], loss["row_points"]) == ([], [], 1, 1)
    assert loss["smooth"][0] == 1.0
    assert reward["y"] == ["NaN", "NaN", "NaN"]
    assert (cpu["kind"], cpu["role"], cpu["x"]) == ("system", "runner", [str(T0 + 1)])


def test_a_long_series_is_thinned_and_says_so(client: Client, run: Run) -> None:
    steps = [metric(i, **{"long": float(i)}) for i in range(1, 1500)]
    store([delivery(run.pk, 2, steps)], memory=AttemptCache(), now=NOW)

    answer = get(client, run, "series", metrics="long", points=100).json()["series"][0]

    assert (answer["of"], answer["n"]) == (1499, len(answer["x"]))
    assert answer["n"] <= 100
    assert len(answer["low"]) == len(answer["high"]) == answer["n"]
    part = get(client, run, "series", metrics="long", points=100, **{"from": 10, "to": 20}).json()["series"][0]
    assert part["x"] == list(range(10, 21))


def test_an_axis_says_where_steps_stand(client: Client, run: Run) -> None:
    store(
        [delivery(run.pk, 2, [metric(i, **{"train/tokens": 10.0 * i}) for i in (1, 2, 3)])],
        memory=AttemptCache(),
        now=NOW,
    )

    assert get(client, run, "axis", x="tokens").json() == {
        "x": "tokens",
        "step": [1, 2, 3],
        "place": [10.0, 30.0, 60.0],
    }
    assert get(client, run, "axis", x="samples").json() == {"x": "samples", "step": [], "place": []}


def test_spans_come_by_lane_with_a_table_of_phases(client: Client, run: Run) -> None:
    answer = get(client, run, "spans").json()

    lane = answer["lanes"][0]
    assert (answer["n"], answer["of"], lane["role"], lane["rank"]) == (1, 1, "policy", 1)
    assert answer["phases"][: len(PHASES)] == [p.key for p in PHASES]
    assert answer["phases"][lane["phase"][0]] == "update"
    assert (lane["name"], lane["start"], lane["duration"], lane["depth"], lane["step"]) == (
        ["adam"],
        [str(T0)],
        [5],
        [1],
        [1],
    )
    assert get(client, run, "spans", from_ns=T0 + 6).json()["lanes"] == []


def test_samples_and_logs_come_in_pages(client: Client, run: Run) -> None:
    samples = get(client, run, "samples", step=1, is_eval=False, q="2+2").json()
    assert (samples["total"], samples["num_pages"], samples["samples"][0]["completion"]) == (1, 1, "4")

    logs = get(client, run, "logs", q="wor").json()
    assert [line["text"] for line in logs["lines"]] == ["World"]
    assert logs["lanes"] == [{"role": "vllm", "rank": 0}]
    before = get(client, run, "logs", before=logs["lines"][0]["cursor"]).json()
    assert [line["text"] for line in before["lines"]] == ["Hello"]


def test_a_sample_is_read_whole_and_reviewed_by_editors(client: Client, run: Run) -> None:
    told = [[2, -0.5], [0, "-Infinity"]]
    event = make.sample(
        attempt=1, step=2, group=0, index=0, prompt="3+3", completion="66", expected="6", reward=0.0, rewards={},
        tokens=2, token_logprobs=[(2, -0.5), (0, float("-inf"))],
    )  # fmt: skip
    store([delivery(run.pk, 2, [event])], memory=AttemptCache(), now=NOW)
    sample = get(client, run, "samples", step=2).json()["samples"][0]
    address = f"/api/runs/{run.pk}/samples/{sample['id']}"

    whole = client.get(address).json()
    assert (whole["token_logprobs"], whole["reviews"], whole["num_steps_of_prompt"]) == (told, [], 1)
    assert client.put(f"{address}/review", {"verdict": "up"}, content_type="application/json").status_code == 403
    spread = get(client, run, "samples/distribution", step=2).json()
    assert (spread["edges"], spread["counts"], spread["points"]) == ([0, 0], [1], [[sample["id"], 2, 2, 0.0]])

    client.force_login(make_user("ann", project=run.project))
    said = client.put(f"{address}/review", {"verdict": "down", "note": "no"}, content_type="application/json").json()
    assert [(one["author"], one["verdict"], one["note"], one["is_mine"]) for one in said["reviews"]] == [
        ("ann", "down", "no", True)
    ]
    for wrong in ({"verdict": "maybe"}, {"note": "x" * 2001}, {"note": "\0"}):
        assert client.put(f"{address}/review", wrong, content_type="application/json").status_code == 422
    assert client.get(f"/api/runs/{run.pk}/samples/{10**15}").status_code == 404
    assert client.get(f"/api/runs/{make_run(run.project).pk}/samples/{sample['id']}").status_code == 404
    kept = client.get(f"/api/runs/{run.pk}/samples/reviews.jsonl")
    assert "reviews.jsonl" in kept["Content-Disposition"]


@pytest.mark.parametrize(
    ("path", "query", "field"),
    [
        ("series", {}, "metrics"),
        ("series", {"metrics": ","}, "metrics"),
        ("series", {"metrics": "loss", "points": 7}, "points"),
        ("series", {"metrics": "loss", "smooth": 1}, "smooth"),
        ("series", {"metrics": "loss", "from": "x"}, "from"),
        ("series", {"metrics": ",".join(f"m{i}" for i in range(101))}, "metrics"),
        ("axis", {"x": "epochs"}, "x"),
        ("spans", {"limit": 0}, "limit"),
        ("spans", {"from_ns": -1}, "from_ns"),
        ("samples", {"page": 0}, "page"),
        ("samples", {"is_eval": "maybe"}, "is_eval"),
        ("samples", {"variance": "much"}, "variance"),
        ("samples/distribution", {"reward_from": "nan"}, "reward_from"),
        ("logs", {"before": "x"}, "before"),
        ("logs", {"limit": 10**6}, "limit"),
    ],
)
def test_a_bad_question_is_refused_by_field(client: Client, run: Run, path: str, query: Any, field: str) -> None:
    answer = get(client, run, path, **query)

    assert answer.status_code == 422
    assert answer.json()["problems"][0]["field"] == field


@pytest.mark.parametrize("path", ["metrics", "series", "spans", "samples", "logs"])
def test_only_members_read(run: Run, path: str) -> None:
    stranger = Client()
    assert get(stranger, run, path, metrics="loss").status_code == 401

    stranger.force_login(make_user())

    assert get(stranger, run, path, metrics="loss").status_code == 404
    assert stranger.get(f"/api/runs/r-none/{path}", query_params={"metrics": "loss"}).status_code == 404


@pytest.mark.parametrize(
    ("path", "query"), [("series", {"metrics": "lo\0ss"}), ("logs", {"q": "\0"}), ("samples", {"q": "\0"})]
)
def test_a_nul_in_a_question_is_refused_before_a_database_sees_it(
    client: Client, run: Run, path: str, query: dict[str, str]
) -> None:
    answer = get(client, run, path, **query)

    assert answer.status_code == 400
    assert "NUL character" in answer.json()["problems"][0]["message"]
