"""Checkpoints: there whole or not at all, written and read by ranks with and without the driver's disk."""

import errno
import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from jobs.engine.atomic_folder import atomic_folder
from jobs.engine.checkpoints import checkpoint
from jobs.engine.checkpoints.checkpoint import Checkpoints, LoopState, open_checkpoint, read_state
from jobs.engine.problem import CheckpointLost, DiskTooSmall, RunProblem
from jobs.engine.workers.worker_group import WorkerGroup
from tests.jobs.engine.fake_ranks import FakeWorkerGroup, Rank


def save(folder: Path, step: int, *ranks: Rank, keep: int = 2, best_step: int = -1) -> Path:
    workers = cast(WorkerGroup, FakeWorkerGroup(*(ranks or (Rank(),))))
    state = LoopState(step=step, num_consumed=step * 16, best_step=best_step)
    return Checkpoints(folder, keep=keep).save(workers, state, about={}).folder


def restore(folder: Path, *ranks: Rank) -> None:
    open_checkpoint(folder, name="The checkpoint").restore(cast(WorkerGroup, FakeWorkerGroup(*ranks)))


def test_the_folder_appears_whole(tmp_path: Path) -> None:
    with atomic_folder(tmp_path / "a") as partial:
        (partial / "x").write_text("1")
        assert not (tmp_path / "a").exists()

    assert [p.name for p in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a" / "x").read_text() == "1"


def test_a_failure_leaves_the_old_folder_as_it_was_and_nothing_else(tmp_path: Path) -> None:
    with atomic_folder(tmp_path / "a") as partial:
        (partial / "x").write_text("old")

    def fail() -> None:
        with atomic_folder(tmp_path / "a") as partial:
            (partial / "x").write_text("new")
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        fail()

    assert (tmp_path / "a" / "x").read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_a_draft_of_a_killed_process_is_swept_away(tmp_path: Path) -> None:
    (tmp_path / ".a.draft").mkdir()
    (tmp_path / ".a.draft" / "half").write_text("")

    with atomic_folder(tmp_path / "a") as partial:
        (partial / "x").write_text("1")

    assert [p.name for p in (tmp_path / "a").iterdir()] == ["x"]


def test_a_checkpoint_holds_where_the_run_stands(tmp_path: Path) -> None:
    folder = save(tmp_path, 20)

    assert folder.name == "step-20"
    assert read_state(folder) == LoopState(step=20, num_consumed=320)


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    for step in (5, 10, 100):
        save(tmp_path, step, keep=2)

    assert Checkpoints(tmp_path, keep=2).steps() == [10, 100]


def test_the_best_is_kept_besides_until_there_is_a_better_one(tmp_path: Path) -> None:
    for step, best_step in ((5, 5), (10, 5), (15, 5)):
        save(tmp_path, step, keep=1, best_step=best_step)
    assert Checkpoints(tmp_path, keep=1).steps() == [5, 15]

    save(tmp_path, 20, keep=1, best_step=20)

    assert Checkpoints(tmp_path, keep=1).steps() == [20]


def test_what_was_removed_is_said(tmp_path: Path) -> None:
    for step in (5, 10):
        save(tmp_path, step, keep=2)

    state = LoopState(step=15, num_consumed=240)
    saved = Checkpoints(tmp_path, keep=2).save(cast(WorkerGroup, FakeWorkerGroup(Rank())), state, about={})

    assert saved.removed == (5,)


def test_a_full_disk_costs_no_older_checkpoint(tmp_path: Path) -> None:
    save(tmp_path, 5, keep=1)

    with pytest.raises(OSError, match="No space"):
        save(tmp_path, 10, Rank(error="No space left on device"), keep=1)

    assert [p.name for p in tmp_path.iterdir()] == ["step-5"]


def test_a_disk_without_room_is_told_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=63))
    rank = Rank()

    with pytest.raises(DiskTooSmall, match=r"Checkpoint 20 takes 6.4e-08 GB, and the disk of .* has 6.3e-08 GB left"):
        save(tmp_path, 20, rank)

    assert "save_parts" not in rank.calls
    assert list(tmp_path.iterdir()) == []


def test_beside_training_the_state_is_that_of_its_step_and_there_once_all_have_written(tmp_path: Path) -> None:
    checkpoints, ranks = Checkpoints(tmp_path, keep=2), (Rank(0, 2), Rank(1, 2))
    state = LoopState(step=20, num_consumed=320)

    saving = checkpoints.begin(cast(WorkerGroup, FakeWorkerGroup(*ranks)), state, about={"spec": 1})
    for rank in ranks:
        rank.forget()  # training goes on, and changes what was copied
    ranks[0].is_quick = True

    assert not saving.is_written()
    assert checkpoints.steps() == []
    ranks[1].is_quick = True
    assert saving.is_written()
    assert checkpoints.finish(saving).folder == tmp_path / "step-20"
    assert checkpoints.steps() == [20]
    open_checkpoint(tmp_path / "step-20", name="The checkpoint").check()
    restore(tmp_path / "step-20", *ranks)
    assert [rank.share("exp_avg") for rank in ranks] == [[0, 0.1, 0.2, 0.3], [0.4, 0.5, 0.6, 0.7]]


def test_beside_training_a_failure_costs_no_older_checkpoint_and_leaves_no_draft(tmp_path: Path) -> None:
    save(tmp_path, 5, keep=1)
    checkpoints = Checkpoints(tmp_path, keep=1)
    state = LoopState(step=10, num_consumed=160)
    failing = cast(WorkerGroup, FakeWorkerGroup(Rank(error="No space left on device")))

    saving = checkpoints.begin(failing, state, about={})
    with pytest.raises(OSError, match="No space"):
        checkpoints.finish(saving)
    assert [p.name for p in tmp_path.iterdir()] == ["step-5"]
    checkpoints.begin(failing, state, about={}).give_up()

    assert [p.name for p in tmp_path.iterdir()] == ["step-5"]


def test_beside_training_a_rank_without_the_disk_makes_the_others_wait(tmp_path: Path) -> None:
    near, far = Rank(0, 2), Rank(1, 2, has_disk=False)

    saving = Checkpoints(tmp_path, keep=1).begin(
        cast(WorkerGroup, FakeWorkerGroup(near, far)), LoopState(step=20, num_consumed=320), about={}
    )

    assert saving.is_written()
    assert "begin_save" not in near.calls


@pytest.mark.parametrize("num_ranks", [1, 2, 4])
def test_any_number_of_ranks_goes_on_from_what_two_saved(tmp_path: Path, num_ranks: int) -> None:
    folder = save(tmp_path, 20, Rank(0, 2), Rank(1, 2))
    ranks = [Rank(k, num_ranks).forget() for k in range(num_ranks)]

    restore(folder, *ranks)

    for state, whole in Rank().held.items():
        assert [v for rank in ranks for v in rank.share(state)] == pytest.approx(whole.tolist())


def test_a_rank_without_the_disk_hands_over_and_is_handed_piece_by_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "HANDED_BYTES", 12)  # three elements
    near, far = Rank(0, 2), Rank(1, 2, has_disk=False)

    folder = save(tmp_path, 20, near, far)

    assert "save_parts" not in far.calls
    assert far.calls.count("state_part") == 5  # 4 + 4 elements, at most three in one, and the one that is not there
    assert len(list(folder.glob("policy-1-*.safetensors"))) == 4
    restore(folder, near.forget(), far.forget())
    assert "load_parts" not in far.calls
    assert far.share("weights") == [4, 5, 6, 7]
    assert far.share("exp_avg") == [0.4, 0.5, 0.6, 0.7]
    assert near.share("weights") == [0, 1, 2, 3]


def test_a_rank_on_a_node_with_a_folder_of_that_name_but_not_the_same_is_found_out(tmp_path: Path) -> None:
    from jobs.engine.roles.policy import Policy

    (tmp_path / "token").write_text("of another run")
    policy = object.__new__(Policy)

    assert not policy.sees(str(tmp_path), "mine")
    assert policy.sees(str(tmp_path), "of another run")
    assert not policy.sees(str(tmp_path / "none"), "mine")


def damage(folder: Path, how: str) -> None:
    part, index = folder / "policy-0-0.safetensors", folder / "checkpoint.json"
    match how:
        case "part gone":
            part.unlink()
        case "part cut":
            part.write_bytes(part.read_bytes()[:-4])
        case "bit turned":
            data = part.read_bytes()
            part.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        case "no index":
            index.unlink()
        case "index torn":
            index.write_text(index.read_text()[:100])
        case "no token":
            (folder / "token").unlink()
        case "other format":
            index.write_text(json.dumps(json.loads(index.read_text()) | {"version": 9}))
        case "no folder":
            folder.rename(folder.with_name("elsewhere"))


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("part gone", "policy-0-0.safetensors is missing"),
        ("part cut", "bytes instead of"),
        ("bit turned", "policy-0-0.safetensors is damaged"),
        ("no index", "checkpoint.json is missing"),
        ("index torn", "checkpoint.json is damaged"),
        ("no token", "token"),
        ("other format", "format 9"),
        ("no folder", "there is no folder"),
    ],
)
def test_a_checkpoint_that_is_not_whole_is_refused_with_what_is_wrong(tmp_path: Path, how: str, said: str) -> None:
    folder = save(tmp_path, 20)
    open_checkpoint(folder, name="Checkpoint 20 of attempt 1").check()
    damage(folder, how)

    with pytest.raises(RunProblem) as refused:
        open_checkpoint(folder, name="Checkpoint 20 of attempt 1").check()

    assert refused.value.field == "resume"
    assert isinstance(refused.value, CheckpointLost) is (how != "other format")  # then no other one would do
    assert refused.value.message.startswith("Checkpoint 20 of attempt 1 ")
    assert said in refused.value.message


def test_a_checkpoint_that_the_disk_does_not_give_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = open_checkpoint(save(tmp_path, 20), name="Checkpoint 20 of attempt 1")

    def broken(*_: object, **_more: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(Path, "open", broken)

    with pytest.raises(CheckpointLost, match=r"policy-0-0\.safetensors cannot be read \(Input/output error\)"):
        found.check()


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        ({"names": ["layer.weight"], "shapes": [[4, 4]]}, "layer.weight has shape [2, 4] there and has shape [4, 4]"),
        ({"names": ["layer.weight", "head"], "shapes": [[2, 4], [3]]}, "head is not there and has shape [3]"),
        ({"names": [], "shapes": []}, "layer.weight has shape [2, 4] there and is not in"),
    ],
)
def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path, metadata: dict[str, list[object]], said: str) -> None:
    found = open_checkpoint(save(tmp_path, 20), name="Checkpoint 20 of attempt 1")

    with pytest.raises(RunProblem, match="of another model") as refused:
        found.check_model(metadata)

    assert said in refused.value.message


def test_a_pinned_checkpoint_stays_until_it_is_released(tmp_path: Path) -> None:
    save(tmp_path, 5, keep=1)
    checkpoints = Checkpoints(tmp_path, keep=1)
    assert checkpoints.pin(5, is_pinned=True)
    assert not checkpoints.pin(6, is_pinned=True)

    save(tmp_path, 10, keep=1)
    save(tmp_path, 15, keep=1)
    assert checkpoints.steps() == [5, 15]

    checkpoints.pin(5, is_pinned=False)
    save(tmp_path, 20, keep=1)
    assert checkpoints.steps() == [20]


def test_beside_training_the_old_one_stays_until_the_new_one_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path, 5, keep=1)
    checkpoints = Checkpoints(tmp_path, keep=1)
    workers = cast(WorkerGroup, FakeWorkerGroup(Rank()))

    saving = checkpoints.begin(workers, LoopState(step=10, num_consumed=160), about={})
    assert checkpoints.steps() == [5]
    assert checkpoints.finish(saving).removed == (5,)

    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=63))
    with pytest.raises(DiskTooSmall):
        checkpoints.begin(workers, LoopState(step=15, num_consumed=240), about={})
    assert checkpoints.steps() == [10]
