"""What removes a deleted run's folders on a node: only those, whatever lies in them."""

import json
from pathlib import Path

import pytest

from jobs.runner.remove_folders import FolderRefused, main, remove


def test_only_the_folders_of_the_run_go_and_no_link_is_followed(tmp_path: Path) -> None:
    root, outside = tmp_path / "runs", tmp_path / "precious"
    for folder in ("r-1/a1/checkpoints/step-20", "r-1/a1/checkpoints/step-40", "r-2/a1", "r-12/a1"):
        (root / folder).mkdir(parents=True)
        (root / folder / "file").write_text("x")
    outside.mkdir()
    (outside / "data").write_text("x")
    (root / "r-1" / "a1" / "link").symlink_to(outside)
    (root / "r-3").symlink_to(outside)

    assert remove(str(root), ["r-1/a1/checkpoints/step-20", "r-404"]) == []
    assert sorted(p.name for p in (root / "r-1/a1/checkpoints").iterdir()) == ["step-40"]
    assert remove(str(root), ["r-1", "r-3"]) == []

    assert sorted(p.name for p in root.iterdir()) == ["r-12", "r-2"]
    assert (outside / "data").exists()
    (root / "r-2" / "a1" / "checkpoints").symlink_to(outside)
    assert "r-2/a1/checkpoints/data" in remove(str(root), ["r-2/a1/checkpoints/data"])[0]
    assert (outside / "data").exists()


@pytest.mark.parametrize("folder", ["", "..", "r-1/../r-2", "/r-1", "r-1/", "r-1/a1", "r-1/b/x", "r-1/a1/..", "models"])
def test_nothing_else_can_be_named(tmp_path: Path, folder: str) -> None:
    (tmp_path / "r-1" / "a1").mkdir(parents=True)

    with pytest.raises(FolderRefused):
        remove(str(tmp_path), ["r-1", folder])
    assert (tmp_path / "r-1").exists()


def test_the_job_says_by_its_exit_code_whether_all_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PITWALL_RUN_ROOT", str(tmp_path / "missing"))
    monkeypatch.setenv("PITWALL_FOLDERS", json.dumps(["r-1"]))
    assert main() == 0
    monkeypatch.setenv("PITWALL_FOLDERS", json.dumps(["../etc"]))
    assert main() == 1
    assert "nothing was removed" in capsys.readouterr().out
