"""Folders that are there whole or not at all."""

from pathlib import Path
from typing import Any, cast

import pytest

from jobs.engine.checkpoint import Checkpoints, LoopState, read_state, whole_folder
from jobs.engine.crew import Crew


class Rank:
    """A policy rank that writes one file."""

    def __init__(self, error: str = "") -> None:
        self._error = error

    def call(self, method: str, folder: str, **_: Any) -> None:
        (Path(folder) / "state").write_text(method)
        if self._error:
            raise OSError(28, self._error)


class FakeCrew:
    """As much of a crew as saving needs."""

    def __init__(self, *ranks: Rank) -> None:
        self.policies = ranks

    def gather(self, calls: Any) -> list[None]:
        return list(calls)


def save(folder: Path, step: int, *, keep: int = 2, error: str = "", best_step: int = -1) -> Path:
    crew = cast(Crew, FakeCrew(Rank(error)))
    state = LoopState(step=step, num_consumed=step * 16, best_step=best_step)
    return Checkpoints(folder, keep=keep).save(crew, state, spec={}).folder


def test_the_folder_appears_whole(tmp_path: Path) -> None:
    with whole_folder(tmp_path / "a") as draft:
        (draft / "x").write_text("1")
        assert not (tmp_path / "a").exists()

    assert [p.name for p in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a" / "x").read_text() == "1"


def test_a_failure_leaves_the_old_folder_as_it_was_and_nothing_else(tmp_path: Path) -> None:
    with whole_folder(tmp_path / "a") as draft:
        (draft / "x").write_text("old")

    def fail() -> None:
        with whole_folder(tmp_path / "a") as draft:
            (draft / "x").write_text("new")
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        fail()

    assert (tmp_path / "a" / "x").read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_a_draft_of_a_killed_process_is_swept_away(tmp_path: Path) -> None:
    (tmp_path / ".a.draft").mkdir()
    (tmp_path / ".a.draft" / "half").write_text("")

    with whole_folder(tmp_path / "a") as draft:
        (draft / "x").write_text("1")

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
    saved = Checkpoints(tmp_path, keep=2).save(cast(Crew, FakeCrew(Rank())), state, spec={})

    assert saved.removed == (5,)


def test_a_full_disk_costs_no_older_checkpoint(tmp_path: Path) -> None:
    save(tmp_path, 5, keep=1)

    with pytest.raises(OSError, match="No space"):
        save(tmp_path, 10, keep=1, error="No space left on device")

    assert [p.name for p in tmp_path.iterdir()] == ["step-5"]
