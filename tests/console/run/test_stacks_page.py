"""The page of sampled stacks: who stands where, hostile text as text, and what is missing in a sentence."""

from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from jobs.models import Capture, Run
from tests.rows import make_artifact, make_project, make_run, make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def run(tmp_path: Path, settings: Any) -> Run:
    settings.FILES_DIR = tmp_path / "files"
    return make_run(make_project("theirs"), state="running")


@pytest.fixture
def client(run: Run) -> Client:
    client = Client(headers={"Host": "localhost"})
    client.force_login(make_user("viewer", project=run.project, role="viewer"))
    return client


def recorded(run: Run, **files: str) -> Capture:
    capture = Capture.objects.create(run=run, attempt=1, tool="stacks", state="ready", first_step=3, num_steps=1)
    for name, text in files.items():
        role, _, rank = name.partition("_")
        file = make_artifact(
            run, f"{capture.pk}-{role}-{rank}.stacks.txt", type="trace", capture=capture, is_ready=True
        )
        file.meta = {"role": role, "rank": int(rank)}
        file.save()
        file.stored_path.parent.mkdir(parents=True, exist_ok=True)
        file.stored_path.write_text(text)
    return capture


def test_ranks_that_stand_in_one_place_are_named_together(client: Client, run: Run) -> None:
    hanging = "MainThread;train (engine/loop.py:9);all_reduce (torch/dist.py:3) 100\n"
    capture = recorded(
        run,
        policy_0=hanging + "beat;wait (threading.py:1) 100\n",
        policy_1=hanging,
        vllm_0="MainThread;<script>alert(1)</script> (x.py:1) 100\n",
    )

    answer = client.get(f"/runs/{run.pk}/captures/{capture.pk}/stacks")

    page = answer.content.decode()
    assert answer.status_code == 200
    first, second = answer.context["groups"][0][1]
    assert (first.where, first.num_processes) == (["policy 0 100 %", "policy 1 100 %"], 2)
    assert first.frames == [("all_reduce", "torch/dist.py:3"), ("train", "engine/loop.py:9")]
    assert second.where == ["vllm 0 100 %"]
    assert answer.context["groups"][1][1][0].where == ["policy 0 beat 100 %"]
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "<script>alert" not in page
    assert "3 processes" in page
    told = client.get(f"/api/runs/{run.pk}/captures/{capture.pk}").json()
    assert told["stacks_url"] == f"/runs/{run.pk}/captures/{capture.pk}/stacks"
    none = Capture.objects.create(run=run, attempt=1, tool="torch", state="armed", first_step=3, num_steps=1)
    assert client.get(f"/api/runs/{run.pk}/captures/{none.pk}").json()["stacks_url"] is None


def test_a_long_file_is_read_to_a_limit_and_says_so(client: Client, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("console.views.run.stacks._MOST_BYTES", 60)
    monkeypatch.setattr("console.views.run.stacks._MOST_SHOWN", 1)
    lines = "".join(f"MainThread;f{i} (a.py:{i}) {9 - i}\n" for i in range(9))
    capture = recorded(run, policy_0=lines)

    answer = client.get(f"/runs/{run.pk}/captures/{capture.pk}/stacks")

    assert answer.context["is_cut"]
    ((_, rows, more), _others) = answer.context["groups"]
    assert ([row.frames for row in rows], more) == ([[("f0", "a.py:0")]], 1)
    assert "Only the most frequent stacks" in answer.content.decode()
    assert "1 more stack was seen less often." in answer.content.decode()


def test_many_files_are_read_to_a_limit_together(client: Client, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("console.views.run.stacks._MOST_TOGETHER", 120)
    lines = "".join(f"MainThread;f{i} (a.py:{i}) {9 - i}\n" for i in range(9))
    capture = recorded(run, policy_0=lines, policy_1=lines)

    answer = client.get(f"/runs/{run.pk}/captures/{capture.pk}/stacks")

    assert answer.context["is_cut"]
    ((_, rows, _more), _others) = answer.context["groups"]
    assert [row.num_processes for row in rows] == [2, 2]


def test_a_name_of_any_length_is_cut(client: Client, run: Run) -> None:
    capture = recorded(run, policy_0=f"{'t' * 5000};f (a.py:1) 1\n")

    answer = client.get(f"/runs/{run.pk}/captures/{capture.pk}/stacks")

    assert answer.context["groups"][1][1][0].where == [f"policy 0 {'t' * 100} 100 %"]


def test_a_capture_without_samples_of_another_run_or_of_strangers_is_not_there(client: Client, run: Run) -> None:
    none = Capture.objects.create(run=run, attempt=1, tool="torch", state="ready", first_step=3, num_steps=1)
    answer = client.get(f"/runs/{run.pk}/captures/{none.pk}/stacks")
    assert answer.status_code == 200
    assert "This capture has no samples of stacks." in answer.content.decode()

    other = make_run(make_project("other"), state="running")
    capture = recorded(other, policy_0="MainThread;f (a.py:1) 1\n")
    assert client.get(f"/runs/{other.pk}/captures/{capture.pk}/stacks").status_code == 404
    assert client.get(f"/runs/{run.pk}/captures/{capture.pk}/stacks").status_code == 404
