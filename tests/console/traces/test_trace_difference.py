"""Traces without marked steps against each other, other devices, chosen windows, and the sentences on all of it."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from jobs.models import Project, Trace
from tests.console.made_traces import REAL, imported
from tests.rows import make_project, make_user

pytestmark = pytest.mark.django_db
T = 1_760_000_000_000_000  # us


@pytest.fixture
def project() -> Project:
    return make_project("theirs")


@pytest.fixture
def client(project: Project) -> Client:
    client = Client(headers={"Host": "localhost"})
    client.force_login(
        make_user("viewer", project=project, role="viewer"), backend="django.contrib.auth.backends.ModelBackend"
    )
    return client


Make = Callable[..., Trace]


@pytest.fixture
def unmarked(project: Project, tmp_path: Path) -> Make:
    """Return a maker of traces of kernels alone, names and lengths in us; `more` is written beside the events."""

    def make(kernels: list[tuple[str, int]], **more: Any) -> Trace:
        at, events = T, []
        for name, lasts in kernels:
            args = {"device": 0, "stream": 7}
            event = {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": at, "dur": lasts, "args": args}
            events.append(event)
            at += lasts
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.json"
        path.write_text(json.dumps({"schemaVersion": 1, **more, "traceEvents": events}))
        return imported(project, file=path)

    return make


def _text(answer: Any) -> str:
    assert answer.status_code == 200, answer.content[:2000]
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", answer.content.decode()))


def once(slow: int = 0) -> list[tuple[str, int]]:
    """Return kernels that do not repeat; one of them takes `slow` us more."""
    return [(f"kernel{i}", 100 + slow * (i == 3)) for i in range(8)]


def test_a_lengthened_kernel_is_found_without_any_step(client: Client, unmarked: Make) -> None:
    one, other = unmarked(once()), unmarked(once(slow=80))
    found = client.get(f"/api/traces/{one.pk}/difference?other={other.pk}").json()
    assert (found["per"], found["sources"], found["before"], found["after"]) == (
        "window",
        ["window", "window"],
        800_000,
        880_000,
    )
    assert (found["items"][0]["name"], found["items"][0]["delta"]) == ("kernel3", 80_000)
    assert sum(item["delta"] for item in found["items"]) + found["rest"] + found["unexplained"] == 80_000
    assert found["verdict"]["word"] == "slower"
    text = _text(client.get(f"/traces/{one.pk}/difference?other={other.pk}"))
    assert "The window takes 880 µs instead of 800 µs: +80.0 µs (+10.0 %)." in text
    assert "Verdict: likely slower, by 10.0 %." in text
    assert "per window, of 800 µs before and 880 µs after" in text
    assert "Before, per window" in text
    assert "Calls per window" in text


def test_times_per_token_and_per_second(client: Client, unmarked: Make) -> None:
    one, other = unmarked(once()), unmarked(once(slow=80))
    path = f"/api/traces/{one.pk}/difference?other={other.pk}"
    by_token = client.get(f"{path}&per=token&tokens=8&other_tokens=20").json()
    assert (by_token["before"], by_token["after"], by_token["verdict"]["word"]) == (100_000, 44_000, "cannot")
    assert by_token["verdict"]["lowered"][0]["key"] == "calls"  # one kernel a token, and two fifths of one
    by_second = client.get(f"{path}&per=second").json()
    assert (round(by_second["before"]), round(by_second["after"]), by_second["verdict"]["word"]) == (
        10**9,
        10**9,
        "shares",
    )
    refused = client.get(f"{path}&per=token")
    assert refused.status_code == 409
    assert "tells of tokens" in refused.json()["problems"][0]["message"]
    refused = client.get(f"{path}&per=step")
    assert "has no complete step in what is compared" in refused.json()["problems"][0]["message"]
    assert client.get(f"{path}&per=month").status_code == 422


def test_windows_are_chosen_for_each_side(client: Client, unmarked: Make) -> None:
    one, other = unmarked(once()), unmarked(once(slow=80))
    path = f"/traces/{one.pk}/difference?other={other.pk}"
    text = _text(client.get(f"{path}&from_ms=0.1&to_ms=0.3&other_from_ms=0.1&other_to_ms=0.3"))
    assert "The window takes 200 µs instead of 200 µs: less than 1 % apart." in text
    assert "Verdict: no difference (below 2 %, which clocks alone can move)." in text
    page = client.get(f"{path}&from_ms=0.1&to_ms=0.3").content.decode()
    assert re.search(r'name="from_ms"[^>]*value="0.1"', page)
    for odd, said in (
        ("from_ms=x", "From: &#x27;x&#x27; is no time."),
        ("from_ms=5&to_ms=4", "To: 4 ms is not after 5 ms."),
        ("to_ms=-1", "is no time"),
        ("tokens=many", "is no number of tokens"),
        ("from_ms=90&to_ms=91", "holds no events of a worker"),
    ):
        assert said in _text(client.get(f"{path}&{odd}"))
    api = f"/api{path}&from={T * 1000}&to={T * 1000 + 200_000}"
    assert client.get(api).json()["before"] == 200_000
    assert client.get(f"/api{path}&other_from=5").json()["problems"][0]["message"].startswith("other_to: give both")


def test_iterations_that_repeat_are_compared_as_steps(client: Client, unmarked: Make) -> None:
    sides = [unmarked([("embed", 50), ("gemm", 100 + slow), ("head", 50)] * 12) for slow in (0, 60)]
    found = client.get(f"/api/traces/{sides[0].pk}/difference?other={sides[1].pk}").json()
    assert (found["per"], found["sources"], found["before"], found["after"]) == (
        "step",
        ["repetition", "repetition"],
        200_000,
        260_000,
    )
    text = _text(client.get(f"/traces/{sides[0].pk}/difference?other={sides[1].pk}"))
    assert "per iteration, found by repetition: mean of 11 before, 11 after" in text
    assert "Verdict: likely slower, by 30.0 % (95 % interval by the spread of steps: 30.0 % to 30.0 %)." in text
    assert "found by repetition of the kernels" in _text(client.get(f"/traces/{sides[0].pk}/summary"))


@pytest.mark.proof
def test_devices_and_versions_that_differ_come_first(client: Client, project: Project, unmarked: Make) -> None:
    before, after = (imported(project, file=REAL / f"torch_diff_{name}.json.gz") for name in ("control", "test"))
    found = client.get(f"/api/traces/{before.pk}/difference?other={after.pk}").json()
    names = "NVIDIA A100-PG509-200 before, Tesla V100-SXM2-16GB after"
    first = f"The recordings differ: {names}; ranks 8 before, 2 after."
    assert found["beforehand"] == first
    assert found["verdict"]["word"] == "cannot"
    text = _text(client.get(f"/traces/{before.pk}/difference?other={after.pk}"))
    assert f"{first} A step takes 124 ms instead of 77.5 ms" in text
    assert "Verdict: the two cannot be compared: " in text
    assert "another device (NVIDIA A100-PG509-200, Tesla V100-SXM2-16GB)" in text
    # an equal workload on another device can be, and the device is named all the same
    sides = [
        unmarked(once(slow), deviceProperties=[{"id": 0, "name": name}]) for slow, name in ((0, "H100"), (0, "H200"))
    ]
    found = client.get(f"/api/traces/{sides[0].pk}/difference?other={sides[1].pk}").json()
    assert (found["beforehand"], found["verdict"]["word"], found["verdict"]["comparability"]) == (
        "The recordings differ: H100 before, H200 after.",
        "none",
        0.6,
    )


def test_one_recording_is_no_difference_and_other_work_cannot_be_compared(
    client: Client, project: Project, unmarked: Make
) -> None:
    one = unmarked(once())
    found = client.get(f"/api/traces/{one.pk}/difference?other={one.pk}").json()
    assert found["verdict"]["sentence"] == "Verdict: both are the same part of one recording: nothing changed."
    odd = unmarked([(f"other{i}", 100) for i in range(8)])
    found = client.get(f"/api/traces/{one.pk}/difference?other={odd.pk}").json()
    assert "only 0.0 % of the names" in found["verdict"]["sentence"]
    made = imported(project, file=None)
    found = client.get(f"/api/traces/{one.pk}/difference?other={made.pk}").json()
    assert found["verdict"]["lowered"][0]["key"] == "source"


def test_stacks_alone_are_compared_by_the_shares_of_functions(client: Client, project: Project, tmp_path: Path) -> None:
    def stacks(name: str, lines: list[str]) -> Trace:
        path = tmp_path / name
        path.write_text("\n".join(lines) + "\n")
        return imported(project, file=path)

    common = "main (train.py:1);step (train.py:9)"
    one = stacks("one.txt", [f"{common};load (data.py:5) 30", f"{common};load (data.py:6) 10", f"{common} 60"])
    longer = [f"{common};load (data.py:8) 20", f"{common};save (ckpt.py:2) 60", f"{common} 120"]
    other = stacks("other.txt", longer)  # twice as many samples: step's share is the same
    path = f"/api/traces/{one.pk}/difference?other={other.pk}"

    found = client.get(path).json()
    assert (found["of"], found["per"], found["verdict"]["word"]) == ("functions", "second", "shares")
    assert {item["name"]: (round(item["before"]), round(item["after"])) for item in found["items"]} == {
        "load (data.py)": (400_000_000, 100_000_000),
        "save (ckpt.py)": (0, 300_000_000),
        "step (train.py)": (600_000_000, 600_000_000),
    }
    page = _text(client.get(path.removeprefix("/api")))
    assert "per second of sampled stacks, the time in which a function was the innermost one" in page
    assert "Most of it: load (data.py) (−300 ms), save (ckpt.py) (+300 ms)." in page
    assert "Operators" not in page
    assert client.get(f"/api/traces/{one.pk}/difference?other={one.pk}").json()["verdict"]["word"] == "same_recording"

    for query, said in (
        (f"{path}&per=step", "Of stacks alone only shares of time can be compared"),
        (f"{path}&from=5&to=6", "one.txt holds no events"),
        (f"/api/traces/{one.pk}/difference?other={imported(project, file=None).pk}", "one.txt holds stacks alone"),
    ):
        refused = client.get(query)
        assert refused.status_code == 409
        assert said in refused.json()["problems"][0]["message"]
