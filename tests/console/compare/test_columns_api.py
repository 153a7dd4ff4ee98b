"""Lines of a chart by the API: the same in JSON and as typed columns, compressed, refused in sentences, called off."""

import asyncio
import gzip
import json
from typing import Any

import numpy as np
import pytest
from django.http import HttpRequest
from django.test import Client

from console.api.compare.columns import COLUMNS_TYPE
from console.middleware.caller_gone import CallerGone, WatchCaller, check_caller
from jobs.ingest.compaction import append_points
from jobs.models import Metric, Run
from jobs.telemetry.chunks import points
from tests.rows import make_project, make_run, make_user

URL = "/api/compare/columns"


@pytest.fixture
def runs(db: None) -> list[Run]:
    """Two runs of 4,000 steps: one of noise with a spike, a NaN and a hole; one whose values float32 cannot hold."""
    project = make_project()
    made = []
    noise = np.random.default_rng(0).normal(size=4000)
    noise[1234], noise[77] = 50.0, np.nan
    x = np.arange(1, 4001)
    for y, kept in ((noise, (x < 2000) | (x > 2400)), (1e9 + np.arange(4000) / 64, x > 0)):
        run = make_run(project, state="finished")
        row = Metric.objects.create(run=run, name="reward/mean")
        append_points({row.pk: points(x[kept], x[kept], y[kept])}, attempt=1, through=0)
        Run.objects.filter(pk=run.pk).update(step=4000)
        made.append(run)
    return made


@pytest.fixture
def member(runs: list[Run]) -> Client:
    client = Client()
    client.force_login(make_user(project=runs[0].project, role="viewer"))
    return client


def ask(client: Client, runs: list[Run], *, headers: dict[str, str] | None = None, **query: Any) -> Any:
    about = {"runs": ",".join(run.pk for run in runs), "metrics": "reward/mean", "columns": 200, **query}
    return client.get(URL, query_params=about, headers=headers or {})


def decoded(body: bytes) -> list[dict[str, Any]]:
    """Return the series of a typed answer, as its description says."""
    size = int.from_bytes(body[:4], "little")
    head = json.loads(body[4 : 4 + size])
    at = -(-(4 + size) // 8) * 8

    def take(kind: str, n: int) -> list[float]:
        nonlocal at
        column = np.frombuffer(body, kind, n, at)
        at += -(-column.nbytes // 8) * 8
        return [None if value != value else value for value in column.tolist()]  # type: ignore[misc]

    for own in head["series"]:
        n, kind = own["n"], "<f8" if own["is_wide"] else "<f4"
        own["column"] = take("<i4", n) if own["first"] is None else list(range(own["first"], own["first"] + n))
        own["y"] = take(kind, n)
        own["low"], own["high"] = (own["y"], own["y"]) if own["is_single"] else (take(kind, n), take(kind, n))
        own["smooth"] = take(kind, n) if own["has_smooth"] else None
    assert at == len(body)
    return list(head["series"])


@pytest.mark.parametrize("query", [{}, {"smooth": "gaussian:5"}, {"from": 1190, "to": 1280, "smooth": "0.9"}])
def test_typed_columns_say_the_same_as_json(member: Client, runs: list[Run], query: dict[str, Any]) -> None:
    plain = ask(member, runs, **query).json()
    typed = decoded(ask(member, runs, headers={"Accept": COLUMNS_TYPE}, **query).content)

    assert [(one["run"], one["of"], one["odd"]) for one in typed] == [
        (one["run"], one["of"], one["odd"]) for one in plain["series"]
    ]
    for one, other in zip(typed, plain["series"], strict=True):
        assert one["column"] == other["column"]
        for name in ("y", "low", "high", "smooth"):
            assert (one[name] is None) == (other[name] is None)
            exact = 1e-12 if one["is_wide"] else 1e-6
            assert one[name] is None or one[name] == [
                None if value is None else pytest.approx(value, rel=exact) for value in other[name]
            ]
    assert max(value for value in plain["series"][0]["high"] if value is not None) == 50.0
    assert typed[1]["is_wide"]


def test_what_is_left_out_and_what_is_no_number_is_told(member: Client, runs: list[Run]) -> None:
    found = ask(member, runs[:1]).json()

    assert (found["low"], found["width"]) == (0, 21)
    (line,) = found["series"]
    assert line["of"] == 3599
    assert line["odd"] == [[78 // 21, "NaN"]]
    assert not any(2000 <= column * 21 <= 2380 for column in line["column"])


def test_columns_of_tokens_say_which_runs_have_not_counted_them(member: Client, runs: list[Run]) -> None:
    row = Metric.objects.create(run=runs[0], name="train/tokens")
    x = np.arange(1, 4001)
    append_points({row.pk: points(x, x, np.full(4000, 10.0))}, attempt=1, through=0)

    found = ask(member, runs, x="tokens", to=20_000).json()

    assert (found["unplaced"], found["width"]) == ([runs[1].pk], 100)
    assert [one["of"] for one in found["series"]] == [1999, 0]


def test_an_answer_is_compressed_where_that_is_taken(member: Client, runs: list[Run]) -> None:
    plain, packed = ask(member, runs), ask(member, runs, headers={"Accept-Encoding": "gzip, br"})

    assert packed["Content-Encoding"] == "gzip"
    assert gzip.decompress(packed.content) == plain.content
    assert len(packed.content) < len(plain.content)
    assert "Accept-Encoding" in packed["Vary"]


@pytest.mark.parametrize(
    ("query", "field", "said"),
    [
        ({"smooth": "median:3"}, "smooth", "is not a weight like"),
        ({"smooth": "1"}, "smooth", "is not in 0 (off) to below 1"),
        ({"from": 9, "to": 3}, "from", "is above"),
        ({"from": "1e300"}, "from", "is not a step"),
        ({"x": "hours"}, "x", "'hours' is not allowed. Use 'step', 'time', 'tokens', 'samples' or 'gpu_hours'."),
        ({"x": "time", "from": "nan"}, "from", "is not a place on the axis time"),
        ({"metrics": ","}, "metrics", "Name 1 to"),
    ],
)
def test_a_bad_question_is_refused(member: Client, runs: list[Run], query: Any, field: str, said: str) -> None:
    answer = ask(member, runs, **query)

    (problem,) = answer.json()["problems"]
    assert (answer.status_code, problem["field"]) == (422, field)
    assert said in problem["message"]


def test_a_request_whose_caller_left_is_not_worked_on() -> None:
    seen = []

    async def view(scope: Any, receive: Any, _send: Any) -> None:
        request = HttpRequest()
        request.scope = scope  # type: ignore[attr-defined]  # as Django's request of ASGI has it
        check_caller(request)
        seen.append("is there")
        await receive()
        with pytest.raises(CallerGone):
            check_caller(request)
        seen.append("has gone")

    async def receive() -> dict[str, str]:
        return {"type": "http.disconnect"}

    asyncio.run(WatchCaller(view)({"type": "http"}, receive, None))

    assert seen == ["is there", "has gone"]
    check_caller(HttpRequest())  # of no connection: nobody can leave


def test_the_work_ends_when_the_caller_is_gone(
    member: Client, runs: list[Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(_request: HttpRequest) -> None:
        raise CallerGone

    monkeypatch.setattr("console.api.compare.compare.check_caller", gone)

    assert ask(member, runs).status_code == 499
