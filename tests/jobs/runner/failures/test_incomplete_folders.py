"""What a killed trainer left half done is gone, and what was there before is there again."""

from pathlib import Path

from jobs.runner.failures.incomplete_folders import tidy
from tests.jobs.runner.conftest import House
from tests.jobs.runner.fake_console import FakeConsole


def folder(path: Path, text: str) -> None:
    path.mkdir(parents=True)
    (path / "file").write_text(text)


def test_a_draft_is_deleted_and_what_is_whole_stays(tmp_path: Path) -> None:
    folder(tmp_path / "checkpoints" / "step-3", "whole")
    folder(tmp_path / "checkpoints" / ".step-6.draft", "half")

    assert tidy(tmp_path) == ["checkpoints/step-6"]
    assert [p.name for p in (tmp_path / "checkpoints").iterdir()] == ["step-3"]


def test_a_folder_that_was_being_replaced_comes_back(tmp_path: Path) -> None:
    folder(tmp_path / "model" / ".best.old", "before")
    folder(tmp_path / "model" / ".best.draft", "after")

    tidy(tmp_path)

    assert [p.name for p in (tmp_path / "model").iterdir()] == ["best"]
    assert (tmp_path / "model" / "best" / "file").read_text() == "before"


def test_a_folder_that_was_replaced_is_the_new_one(tmp_path: Path) -> None:
    folder(tmp_path / "model" / ".best.old", "before")
    folder(tmp_path / "model" / "best", "after")

    tidy(tmp_path)

    assert [p.name for p in (tmp_path / "model").iterdir()] == ["best"]
    assert (tmp_path / "model" / "best" / "file").read_text() == "after"


def test_the_runner_tidies_up_after_its_trainer(house: House, console: FakeConsole) -> None:
    house.trainer(
        """
        (run_dir / "checkpoints" / ".step-6.draft").mkdir(parents=True)
        os.kill(os.getpid(), signal.SIGKILL)
        """
    )

    house.finish(house.start())

    assert console.terminal_event["state"] == "failed"
    assert list((house.run_dir / "checkpoints").iterdir()) == []
