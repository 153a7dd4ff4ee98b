"""Shards become a Hugging Face folder by the trainer's own program; a program of the test's own stands in for it."""

import sys
from pathlib import Path
from typing import Any

import pytest

from jobs.adapters.verl.checkpoints import VerlCheckpoints
from jobs.catalog.spec.parse import parse_spec
from jobs.runner import merging
from jobs.runner.merging import merge_shards

SPEC = parse_spec({"algorithm": "sft", "trainer": {"name": "verl"}})


@pytest.fixture
def said(tmp_path: Path) -> list[str]:
    shards = tmp_path / "checkpoints" / "global_step_20"
    shards.mkdir(parents=True)
    (shards / "model_world_size_1_rank_0.pt").write_bytes(b"shard")
    (tmp_path / "checkpoints" / "latest_checkpointed_iteration.txt").write_text("20")
    (tmp_path / "log").mkdir()
    return []


def merged(run_dir: Path, said: list[str], monkeypatch: pytest.MonkeyPatch, code: str, *, ends: bool = False) -> bool:
    def command(self: Any, *, spec: Any, python: str, folder: Path, target: Path) -> tuple[str, ...]:
        return (python, "-c", code, str(folder), str(target))

    monkeypatch.setattr(VerlCheckpoints, "merge_command", command)
    return merge_shards(
        spec=SPEC, python=sys.executable, run_dir=run_dir, environ={}, say=said.append, give_up=lambda: ends
    )


def test_the_newest_checkpoint_becomes_a_folder_once_it_is_whole(
    tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "import sys, pathlib; pathlib.Path(sys.argv[2], 'config.json').write_text(sys.argv[1])"
    assert merged(tmp_path, said, monkeypatch, code)
    (folder,) = (tmp_path / "model").iterdir()
    assert folder.name == "merged_20"
    assert (folder / "config.json").read_text() == str(tmp_path / "checkpoints" / "global_step_20")


@pytest.mark.parametrize(
    ("code", "ends", "reason"),
    [
        ("raise SystemExit('no config in the checkpoint')", False, "exit code 1: no config in the checkpoint"),
        ("import time; time.sleep(60)", True, "it took too long or the run was ended"),
    ],
)
def test_what_does_not_work_leaves_the_shards_and_a_sentence(
    tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch, code: str, ends: bool, reason: str
) -> None:
    assert not merged(tmp_path, said, monkeypatch, code, ends=ends)
    assert reason in said[-1]
    assert not (tmp_path / "model" / "merged_20").exists()
    assert (tmp_path / "checkpoints" / "global_step_20").exists()


def test_a_checkpoint_larger_than_memory_is_left_alone(
    tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merging, "ROOM", 1e15)
    assert not merged(tmp_path, said, monkeypatch, "")
    assert "of host memory are free" in said[-1]


def test_verls_own_program_is_told_the_shards_and_what_they_were_trained_by(tmp_path: Path) -> None:
    rl = parse_spec({"algorithm": "grpo", "trainer": {"name": "verl"}, "knobs": {"parallel.engine": "megatron"}})
    command = VerlCheckpoints().merge_command(spec=rl, python="py", folder=tmp_path, target=tmp_path / "m")
    assert command[:6] == ("py", "-m", "verl.model_merger", "merge", "--backend", "megatron")
    assert command[7] == str(tmp_path / "actor")
