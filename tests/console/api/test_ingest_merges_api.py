"""The way in for a model of a checkpoint: open to the job of one merge, for one file, while it is under way."""

from pathlib import Path
from typing import Any

import pytest

from jobs.models import Artifact, Attempt, Merge, Run
from jobs.runs.merges import cancel_merge, merge_key
from tests.console.fake_runner import DATA, Runner
from tests.jobs.fake_ray import TOKEN, serve
from tests.rows import NOW, make_merge, make_run
from tests.services import Valkey

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def files_dir(settings: Any, tmp_path: Path) -> Path:
    settings.FILES_DIR = tmp_path / "files"
    return tmp_path / "files"


@pytest.fixture
def merge(valkey: Valkey) -> Merge:
    """A merge under way of a run that has ended, and has gone on since."""
    merge = make_merge(make_run(state="finished"), state="starting")
    Attempt.objects.create(run=merge.run, number=2, state="finished", submission_id="s2")
    Run.objects.filter(pk=merge.run_id).update(latest_attempt=2)
    return merge


def job(merge: Merge, key: str | None = None, **whose: Any) -> Runner:
    return Runner(merge.run, merge=f"{merge.pk}:{merge_key(merge) if key is None else key}", **whose)


def test_the_job_hands_its_model_over_long_after_the_run_has_ended(merge: Merge) -> None:
    own = job(merge)

    assert own.put("model-step-3.zip", DATA[:100]).json() == {"received": 100, "is_ready": False}
    assert own.put("model-step-3.zip", DATA[100:], offset=100).json()["is_ready"]
    assert own.post("merge", {"problem": ""}).status_code == 200

    merge.refresh_from_db()
    assert merge.state == "finished"
    assert merge.artifact is not None
    assert merge.artifact.stored_path.read_bytes() == DATA
    # The way is closed now, also for another model in its place.
    assert own.put("model-step-3.zip", b"x" * 10, size=10).status_code == 409
    assert own.post("merge", {"problem": "no"}).status_code == 409
    assert merge.artifact.stored_path.read_bytes() == DATA


def test_nobody_else_puts_a_model_there(merge: Merge) -> None:
    callers = {
        "the attempt's token alone": Runner(merge.run),
        "a guessed number": Runner(merge.run, merge=str(merge.pk)),
        "a key that is cut": job(merge, key=merge_key(merge)[:-1]),
        "no key": job(merge, key=""),
    }
    for name, caller in callers.items():
        assert caller.put("model-step-3.zip", DATA).status_code == 409, name
        if "alone" not in name:
            assert caller.post("merge", {"problem": "x"}).status_code == 409, name
    assert Runner(merge.run).post("merge", {"problem": "x"}).status_code == 409
    assert job(merge, attempt=2).put("model-step-3.zip", DATA).status_code == 409
    assert job(merge, token="wrong").put("model-step-3.zip", DATA).status_code == 401
    assert not Artifact.objects.filter(type="model").exists()
    merge.refresh_from_db()
    assert merge.state == "starting"


@pytest.mark.parametrize("name", ["model-final.zip", "model-step-4.zip", "checkpoint-3", "../model-step-3.zip"])
def test_the_key_opens_no_other_file(merge: Merge, name: str) -> None:
    assert job(merge).put(name, DATA).status_code in (400, 404, 409)
    assert not Artifact.objects.filter(type="model").exists()


def test_the_key_opens_nothing_but_the_file(merge: Merge) -> None:
    own = job(merge)

    assert own.get("launch").status_code == 409
    assert own.events(1).status_code == 409
    assert own.post("environment", {"key": "k"}).status_code == 409


def test_while_the_run_is_live_the_key_is_needed_as_well(valkey: Valkey) -> None:
    merge = make_merge(make_run(state="running"), state="starting")

    assert job(merge, key="guessed").put("model-step-3.zip", DATA).status_code == 409
    assert job(merge).put("model-step-3.zip", DATA).json()["is_ready"]


def test_why_there_is_no_model_is_kept_and_so_is_nothing_of_its_file(
    merge: Merge, files_dir: Path, django_capture_on_commit_callbacks: Any
) -> None:
    own = job(merge)
    own.put("model-step-3.zip", DATA[:100])

    with django_capture_on_commit_callbacks(execute=True):
        assert own.post("merge", {"problem": "No room.\0"}).status_code == 200

    merge.refresh_from_db()
    assert (merge.state, merge.problem) == ("failed", "No room.\ufffd")
    assert not [path for path in files_dir.rglob("*") if path.is_file()]


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"problem": 3}'])
def test_an_outcome_that_is_none_is_refused(merge: Merge, body: bytes) -> None:
    assert job(merge).post("merge", body).status_code == 400


def test_a_job_that_goes_on_after_it_was_called_off_leaves_nothing(
    settings: Any, merge: Merge, files_dir: Path, django_capture_on_commit_callbacks: Any
) -> None:
    own = job(merge)
    own.put("model-step-3.zip", DATA[:100])
    with serve() as ray, django_capture_on_commit_callbacks(execute=True):
        settings.RAY_ADDRESS, settings.RAY_AUTH_TOKEN = ray.address, TOKEN
        cancel_merge(merge=merge, user=None, now=NOW)

    assert own.put("model-step-3.zip", DATA[100:], offset=100).status_code == 409
    assert own.post("merge", {"problem": ""}).status_code == 409
    assert not [path for path in files_dir.rglob("*") if path.is_file()]
