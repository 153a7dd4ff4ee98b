"""What an attempt runs on and with is told once, of the interpreter that has the trainer."""

import importlib.metadata
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from jobs.catalog.spec.parse import parse_spec
from jobs.runner import surroundings as module
from jobs.runner.source_trees import source_tree
from jobs.runner.surroundings import AttemptParts, surroundings, tell_surroundings


def test_node_devices_packages_and_code_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[str, Mapping[str, Any]]] = []
    monkeypatch.setattr(module, "device_names", lambda: ["H100", "H100"])
    monkeypatch.setattr(module, "driver_version", lambda: "550.54")

    tell_surroundings(lambda text, meta: told.append((text, meta)), parts=AttemptParts(python=sys.executable)).join()

    ((text, meta),) = told
    found = meta["environment"]
    assert (found["node"], found["devices"], found["driver"]) == (socket.gethostname(), ["H100", "H100"], "550.54")
    assert found["packages"]["numpy"] == importlib.metadata.version("numpy")
    assert len(found["code"]) == 16
    assert f"On {socket.gethostname()}: {found['cores']} cores of" in text
    assert "2 × H100, driver 550.54, Python" in text


def test_an_interpreter_that_does_not_run_costs_its_packages_only() -> None:
    found = surroundings(AttemptParts(python="/nowhere/python"))

    assert (found["python"], found["packages"]) == ("", {})
    assert found["node"]


def git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=x", "-c", "user.email=x@example.com")
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


def test_commit_and_diff_of_the_working_directory_are_told_and_nothing_of_it_is_run(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / "train.py").write_text("lr = 1\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "first")
    git(tmp_path, "remote", "add", "origin", "https://ghp-not-real@example.com/me/mine.git")
    git(tmp_path, "config", "core.fsmonitor", f"touch {tmp_path / 'ran'}")
    git(tmp_path, "config", "diff.external", f"touch {tmp_path / 'ran'}")

    clean = source_tree(tmp_path, name="mine")
    (tmp_path / "train.py").write_text("lr = 2\n")
    (tmp_path / "new.py").touch()
    parts = AttemptParts(python="/nowhere/python", working_dir=tmp_path)
    (changed,) = surroundings(parts)["sources"]

    assert clean is not None
    assert (clean["changes"], clean["remote"]) == ("", "https://example.com/me/mine.git")
    assert changed["commit"] == clean["commit"]
    assert "+lr = 2" in changed["diff"]
    assert changed["untracked"] == ["new.py"]
    assert len(changed["changes"]) == 16
    assert not (tmp_path / "ran").exists()
    assert source_tree(tmp_path.parent, name="none") is None


def test_a_dataset_of_the_hub_is_told_with_its_revision_once_the_trainer_has_read_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = parse_spec({"trainer": {"name": "trl"}, "algorithm": "sft", "data": {"kind": "hub", "id": "me/rows"}})
    ref = tmp_path / "hub" / "datasets--me--rows" / "refs" / "main"
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.01)
    told: list[Mapping[str, Any]] = []

    def has_read() -> bool:  # it loads them meanwhile
        is_there = ref.exists()
        ref.parent.mkdir(parents=True, exist_ok=True)
        ref.write_text("c0ffee")
        return is_there

    parts = AttemptParts(python="/nowhere/python", spec=spec, has_read_data=has_read)
    tell_surroundings(lambda text, meta: told.append({"text": text, **meta}), parts=parts).join()

    assert told[0]["environment"]["data"] == ""
    assert told[1]["data"] == {"hub": "me/rows", "revision": "c0ffee"}
    assert told[1]["text"] == "Training data: me/rows, revision c0ffee"
