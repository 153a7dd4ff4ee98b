"""Models of checkpoints: what may be asked for, whose file it is, and that nothing is left of what was called off."""

from pathlib import Path
from typing import Any

import pytest

from jobs.captures import artifacts as files
from jobs.models import Artifact, AuditEvent, Merge, Run, RunEvent
from jobs.runs import merges
from jobs.runs.annotate import ChangeRefused
from jobs.runs.merges import MERGES, MergeOver, cancel_merge, merge_key, merge_of, request_merge, settle_merge
from jobs.storage.quotas import set_quota
from tests.console.fake_runner import DATA, SHA256
from tests.jobs.fake_ray import FakeRay
from tests.rows import NOW, make_artifact, make_merge, make_run

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def files_dir(settings: Any, tmp_path: Path) -> Path:
    settings.FILES_DIR = tmp_path / "files"
    return tmp_path / "files"


def piece(data: bytes = DATA, offset: int = 0, **about: Any) -> files.FilePiece:
    fields = {"size": len(DATA), "sha256": SHA256, "type": "model", "step": 3, "path": "x", "meta": {}, **about}
    return files.FilePiece(offset=offset, data=data, **fields)


def bytes_on_disk(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_a_model_is_asked_for_once_and_told_of() -> None:
    merge = make_merge(make_run(state="finished"))

    assert (merge.state, merge.file_name) == ("queued", "model-step-3.zip")
    assert merge.submission_id.startswith(f"merge-{merge.run_id}-")
    assert RunEvent.objects.filter(run=merge.run_id, verb="merge").get().text == "A model of checkpoint 3 asked for"
    assert AuditEvent.objects.latest("pk").verb == "run.merge"
    with pytest.raises(ChangeRefused, match="Wait for it") as caught:
        make_merge(merge.run)
    assert caught.value.is_conflict


@pytest.mark.parametrize(
    ("spec", "step", "words"),
    [
        ({}, 4, "has no checkpoint of step 4"),
        ({"algorithm": "grpo", "trainer": {"name": "verl"}, "knobs": {"parallel.engine": "megatron"}}, 3, "on a GPU"),
    ],
)
def test_what_cannot_be_made_is_refused(spec: dict[str, Any], step: int, words: str) -> None:
    run = make_run(state="finished", spec=spec)
    make_artifact(run, "checkpoint-3", type="checkpoint", step=3)

    with pytest.raises(ChangeRefused, match=words):
        request_merge(run_id=run.pk, attempt=1, step=step, user=None, now=NOW)
    assert not Merge.objects.exists()


@pytest.mark.parametrize("meta", [{"removed": True}, {"trashed": True}])
def test_a_checkpoint_that_is_gone_makes_no_model(meta: dict[str, Any]) -> None:
    run = make_run(state="finished")
    make_artifact(run, "checkpoint-3", type="checkpoint", step=3, meta=meta)

    with pytest.raises(ChangeRefused, match="any more"):
        request_merge(run_id=run.pk, attempt=1, step=3, user=None, now=NOW)


def test_a_checkpoint_that_has_a_model_needs_no_other() -> None:
    run = make_run(state="finished")
    make_artifact(run, "model-final.zip", step=3)

    with pytest.raises(ChangeRefused, match=r"model-final\.zip is a model of this checkpoint already"):
        make_merge(run)


def test_a_key_opens_the_way_for_its_own_merge_while_that_is_under_way() -> None:
    merge = make_merge(make_run(state="finished"), state="starting")
    other = make_merge(merge.run, step=4, state="starting")
    own = {"run_id": merge.run_id, "attempt": 1}

    assert merge_of(**own, shown=f"{merge.pk}:{merge_key(merge)}") == merge
    for shown in (
        f"{merge.pk}:",
        f"{merge.pk}:{merge_key(other)}",
        f"{other.pk}:{merge_key(merge)}",
        f"{merge.pk + 99}:{merge_key(merge)}",
        f"{'9' * 30}:{merge_key(merge)}",
        merge_key(merge),
        "",
    ):
        assert merge_of(**own, shown=shown) is None
    shown = f"{merge.pk}:{merge_key(merge)}"
    assert merge_of(run_id=merge.run_id, attempt=2, shown=shown) is None
    assert merge_of(run_id=make_run().pk, attempt=1, shown=shown) is None
    settle_merge(merge, problem="It does not work.", now=NOW)
    assert merge_of(**own, shown=shown) is None


def test_a_model_that_arrived_is_the_merges_file() -> None:
    merge = make_merge(make_run(state="finished"), state="starting")

    merges.receive_model(merge, piece(type="log", step=99, meta={"capture": "c-1"}))
    settle_merge(merge, problem="", now=NOW)

    merge.refresh_from_db()
    file = merge.artifact
    assert file is not None
    assert merge.state == "finished"
    assert (file.name, file.type, file.step, file.meta, file.is_ready) == ("model-step-3.zip", "model", 3, {}, True)
    settle_merge(merge, problem="Late.", now=NOW)
    assert Artifact.objects.filter(pk=file.pk).exists()


def test_a_job_that_says_it_is_done_and_has_handed_nothing_over_has_failed() -> None:
    merge = make_merge(make_run(state="finished"), state="starting")

    settle_merge(merge, problem="", now=NOW)

    merge.refresh_from_db()
    assert (merge.state, merge.problem) == ("failed", "The job ended without handing the model over.")
    assert make_merge(merge.run).state == "queued"  # and may be asked for again


@pytest.mark.parametrize("is_whole", [False, True])
def test_nothing_is_left_of_a_model_that_was_called_off(
    files_dir: Path, ray: FakeRay, django_capture_on_commit_callbacks: Any, is_whole: bool
) -> None:
    merge = make_merge(make_run(state="finished"), state="starting")
    merges.receive_model(merge, piece(DATA if is_whole else DATA[:100]))

    with django_capture_on_commit_callbacks(execute=True):
        cancel_merge(merge=merge, user=None, now=NOW)

    assert not Artifact.objects.filter(name=merge.file_name).exists()
    assert not bytes_on_disk(files_dir)
    assert RunEvent.objects.filter(run=merge.run_id, verb="merge").latest("pk").text.endswith("was canceled")
    with pytest.raises(ChangeRefused, match="over already"):
        cancel_merge(merge=merge, user=None, now=NOW)


@pytest.mark.parametrize("moment", ["_sole", "_begin", "_append"])
def test_nothing_is_left_of_a_piece_that_arrives_while_it_is_called_off(
    files_dir: Path, monkeypatch: pytest.MonkeyPatch, django_capture_on_commit_callbacks: Any, moment: str
) -> None:
    merge = make_merge(make_run(state="finished"), state="starting")
    do = getattr(files, moment)

    def canceled_meanwhile(*given: Any, **named: Any) -> Any:
        monkeypatch.setattr(files, moment, do)
        with django_capture_on_commit_callbacks(execute=True):
            MERGES.settle(merge.pk, state="canceled", now=NOW)
        return do(*given, **named)

    monkeypatch.setattr(files, moment, canceled_meanwhile)
    with django_capture_on_commit_callbacks(execute=True), pytest.raises(MergeOver):
        merges.receive_model(merge, piece(DATA[:100]))

    assert not Artifact.objects.filter(name=merge.file_name).exists()
    assert not bytes_on_disk(files_dir)


def test_a_model_that_is_found_whole_before_its_last_request_is_over_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    merge = make_merge(make_run(state="finished"), state="starting")
    complete = files._complete

    def seen_meanwhile(*given: Any) -> None:
        complete(*given)
        MERGES.bury(merge, "killed", NOW)

    monkeypatch.setattr(files, "_complete", seen_meanwhile)
    assert merges.receive_model(merge, piece()).is_ready

    merge.refresh_from_db()
    assert merge.state == "finished"
    assert merge.artifact is not None
    assert merge.artifact.stored_path.read_bytes() == DATA


def test_a_merge_that_is_over_takes_no_piece(files_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    merge = make_merge(make_run(state="finished"), state="starting")
    MERGES.settle(merge.pk, state="canceled", now=NOW)
    monkeypatch.setattr(files, "receive", None)

    with pytest.raises(MergeOver):
        merges.receive_model(merge, piece())

    assert not bytes_on_disk(files_dir)


def test_what_was_handed_over_before_its_time_was_up_is_kept() -> None:
    merge = make_merge(make_run(state="finished"), state="starting")
    merges.receive_model(merge, piece())

    MERGES.give_up_late(now=NOW + MERGES.patience * 2)

    merge.refresh_from_db()
    assert merge.state == "finished"


@pytest.mark.parametrize("state", ["starting", "finished"])
def test_a_late_request_of_a_canceled_merge_leaves_the_model_of_a_newer_one(
    monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    merge = make_merge(make_run(state="finished"), state="starting")
    receive = files.receive

    def asked_for_again(**named: Any) -> Any:
        monkeypatch.setattr(files, "receive", receive)
        MERGES.settle(merge.pk, state="canceled", now=NOW)
        newer = make_merge(merge.run, state="starting")
        done = merges.receive_model(newer, piece())
        if state == "finished":
            settle_merge(newer, problem="", now=NOW)
        return done

    monkeypatch.setattr(files, "receive", asked_for_again)
    with pytest.raises(MergeOver):
        merges.receive_model(merge, piece())

    file = Artifact.objects.get(name=merge.file_name)
    assert file.is_ready
    assert file.stored_path.read_bytes() == DATA


def test_a_run_in_the_trash_makes_no_model() -> None:
    run = make_run(state="finished")
    Run.objects.filter(pk=run.pk).update(trashed_at=NOW)

    with pytest.raises(ChangeRefused, match="is in the trash"):
        make_merge(run)


def test_a_project_without_room_takes_no_model() -> None:
    merge = make_merge(make_run(state="finished"), state="starting")
    set_quota(merge.run.project, values={"storage_bytes": 100}, actor=None)

    with pytest.raises(files.DiskFull):
        merges.receive_model(merge, piece())


def test_a_run_whose_spec_is_no_longer_accepted_makes_no_model() -> None:
    run = make_run(state="finished")
    Run.objects.filter(pk=run.pk).update(spec={**run.spec, "algorithm": "of-old"})

    with pytest.raises(ChangeRefused, match="no longer accepts"):
        make_merge(run)
