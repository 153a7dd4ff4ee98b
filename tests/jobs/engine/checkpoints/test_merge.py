"""The model of a checkpoint is the one that the run exports at that step, bit for bit."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.engine.checkpoints import merge as merge_module
from jobs.engine.checkpoints.merge import main, merge
from tests.jobs.engine.lone_merge import CASES, FILE_BYTES


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, warm_environment: dict[str, str]) -> Path:
    """Return the folder of the ranks that have learned, saved and exported."""
    folder = tmp_path_factory.mktemp("trained")
    command = [sys.executable, "-m", "tests.jobs.engine.lone_merge", str(folder)]
    subprocess.run(command, env=os.environ | warm_environment, check=True, timeout=300)
    return folder


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.slow("waits for the ranks that all of them read")
@pytest.mark.parametrize("case", CASES)
def test_a_checkpoints_model_is_the_exported_one(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    monkeypatch.setattr(merge_module, "EXPORT_BYTES", FILE_BYTES)

    merge(trained / case / "checkpoints" / "step-7", tmp_path / "made")

    exported, made = files(trained / case / "model" / "final"), files(tmp_path / "made")
    assert json.loads(made.pop("pitwall.json"))["step"] == json.loads(exported.pop("pitwall.json"))["step"] == 7
    assert made.keys() == exported.keys()
    assert [name for name in made if made[name] != exported[name]] == []
    assert "model.safetensors.index.json" in made


@pytest.mark.slow("reads what a rank has saved")
def test_a_damaged_checkpoint_makes_no_model(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = trained / "float32" / "checkpoints" / "step-7"
    part = next((folder / "policy").iterdir())
    whole = part.read_bytes()
    part.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    monkeypatch.setattr(sys, "argv", ["merge", str(folder), str(tmp_path / "made")])
    try:
        with pytest.raises(SystemExit, match="is damaged"):
            main()
    finally:
        part.write_bytes(whole)
    assert not (tmp_path / "made").exists()
