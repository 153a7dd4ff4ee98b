"""Shards become a Hugging Face folder by the trainer's own program; a program of the test's own stands in for it."""

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from safetensors.torch import save_file

from jobs.adapters.openrlhf.checkpoints import OpenRLHFCheckpoints
from jobs.adapters.verl.checkpoints import VerlCheckpoints
from jobs.catalog.spec.parse import parse_spec
from jobs.catalog.spec.runspec import RunSpec
from jobs.runner import merging
from jobs.runner.merging import MergeSource, NotMerged, merge_checkpoint, merge_left
from tests.waiting import wait_until

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
    return merge_left(source_of(run_dir, ends=ends), None, say=said.append)


def source_of(run_dir: Path, *, spec: RunSpec = SPEC, ends: bool = False) -> MergeSource:
    return MergeSource(
        spec=spec,
        python=sys.executable,
        run_dir=run_dir,
        run_root=run_dir.parent,
        environ={},
        give_up=lambda: ends,
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
        ("import time; time.sleep(60)", True, "It was told to end."),
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
    monkeypatch.setattr(VerlCheckpoints, "merge_bytes", lambda self, *, spec, folder: 3 << 60)
    assert not merged(tmp_path, said, monkeypatch, "")
    assert "needs about 3221225472.0 GiB of host memory" in said[-1]


def test_a_program_that_takes_too_long_is_ended(
    tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merging, "MERGE_SECONDS", 0.0)
    assert not merged(tmp_path, said, monkeypatch, "import time; time.sleep(60)")
    assert "took longer than" in said[-1]


def test_two_programs_never_run_on_a_node_at_once(
    tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, ends = source_of(tmp_path), source_of(tmp_path, ends=True)
    with merging._sole(source, 60):
        with pytest.raises(NotMerged, match="told to end"), merging._sole(ends, 60):
            pass
        with pytest.raises(NotMerged, match="other models were made on its node"), merging._sole(source, 0):
            pass
        monkeypatch.setattr(merging, "LAST_WAIT_SECONDS", 0)
        assert not merged(tmp_path, said, monkeypatch, "")
        assert "other models were made" in said[-1]


def test_verls_own_program_is_told_the_shards_and_what_they_were_trained_by(tmp_path: Path) -> None:
    rl = parse_spec({"algorithm": "grpo", "trainer": {"name": "verl"}, "knobs": {"parallel.engine": "megatron"}})
    command = VerlCheckpoints().merge_command(spec=rl, python="py", folder=tmp_path, target=tmp_path / "m")
    assert command[:6] == ("py", "-m", "verl.model_merger", "merge", "--backend", "megatron")
    assert command[7] == str(tmp_path / "actor")


@pytest.mark.parametrize(
    ("parameter", "made"), [("score.weight", "merged_adapters"), ("layers.0.q_proj.lora_A.weight", "merged_20")]
)
def test_of_a_reward_model_without_its_head_the_checkpoint_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parameter: str, made: str
) -> None:
    """OpenRLHF's PEFT does not know of the head, and leaves adapters alone."""
    adapters, said = tmp_path / "model" / "final", list[str]()
    adapters.mkdir(parents=True)
    save_file({f"base_model.model.{parameter}": torch.zeros(1, 2)}, adapters / "adapter_model.safetensors")
    (tmp_path / "log").mkdir()
    spec = parse_spec({"algorithm": "rm", "trainer": {"name": "openrlhf"}, "knobs": {"lora.rank": 8}})
    command = lambda *_, target, **__: (sys.executable, "-c", f"open({str(target / 'config.json')!r}, 'w')")  # noqa: E731
    monkeypatch.setattr(OpenRLHFCheckpoints, "merge_command", command)
    monkeypatch.setattr(merging, "adapter_merge", command)
    if made == "merged_20":
        assert not merge_left(source_of(tmp_path, spec=spec), adapters, say=said.append)
        assert "The trained head is not among them" in said[-1]
    (tmp_path / "checkpoints" / "global_step20").mkdir(parents=True)
    (tmp_path / "checkpoints" / "latest").write_text("global_step20")

    assert merge_left(source_of(tmp_path, spec=spec), adapters, say=said.append)

    assert (tmp_path / "model" / made / "config.json").exists()


def test_the_model_of_any_checkpoint_is_there_while_it_is_handed_over_and_leaves_nothing(
    tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "import sys, pathlib; pathlib.Path(sys.argv[2], 'config.json').write_text(sys.argv[1])"
    command = lambda self, *, spec, python, folder, target: (python, "-c", code, str(folder), str(target))  # noqa: E731
    monkeypatch.setattr(VerlCheckpoints, "merge_command", command)
    before = sorted(tmp_path.rglob("*"))

    with merge_checkpoint(source_of(tmp_path), 20) as one, merge_checkpoint(source_of(tmp_path), 20) as other:
        assert one != other
        assert (one / "config.json").read_text() == str(tmp_path / "checkpoints" / "global_step_20")
        assert one.parent.parent == tmp_path

    assert sorted(tmp_path.rglob("*")) == before


def test_no_model_is_made_of_a_checkpoint_that_is_not_there_or_whose_program_fails(
    tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(NotMerged, match="Checkpoint 30 is not on this node"), merge_checkpoint(source_of(tmp_path), 30):
        pass
    command = lambda self, **_: (sys.executable, "-c", "raise SystemExit('no shards')")  # noqa: E731
    monkeypatch.setattr(VerlCheckpoints, "merge_command", command)
    with pytest.raises(NotMerged, match="exit code 1: no shards"), merge_checkpoint(source_of(tmp_path), 20):
        pass
    assert not list(tmp_path.glob(".merge-*"))


def test_a_model_that_lies_in_the_checkpoint_is_taken_without_the_training_state(tmp_path: Path) -> None:
    folder = tmp_path / "model" / "final" / "checkpoint-4"
    folder.mkdir(parents=True)
    for name in ("config.json", "model.safetensors", "tokenizer.json", "trainer_state.json", "optimizer.pt"):
        (folder / name).write_text(name)
    spec = parse_spec({"algorithm": "sft", "trainer": {"name": "trl"}})

    with merge_checkpoint(source_of(tmp_path, spec=spec), 4) as made:
        (folder / "model.safetensors").unlink()  # as the trainer does when newer ones come
        assert {path.name for path in made.iterdir()} == {"config.json", "model.safetensors", "tokenizer.json"}
        assert (made / "model.safetensors").read_text() == "model.safetensors"


def test_what_killed_jobs_left_goes_after_a_day(tmp_path: Path, said: list[str]) -> None:
    old, new, earlier = tmp_path / ".merge-20-old", tmp_path / ".merge-20-new", tmp_path.parent / "a0" / ".merge-3-old"
    for folder in (old, new, earlier):
        folder.mkdir(parents=True)
    for folder in (old, earlier):
        os.utime(folder, (0, time.time() - merging.LEFT_SECONDS - 60))

    with pytest.raises(NotMerged), merge_checkpoint(source_of(tmp_path), 20):
        pass

    assert not old.exists()
    assert not earlier.exists()
    assert new.exists()


def test_the_program_dies_with_the_job(tmp_path: Path, said: list[str]) -> None:
    body = f"""
        import sys, time
        from pathlib import Path
        from jobs.adapters.verl.checkpoints import VerlCheckpoints
        from tests.jobs.runner.test_merging import merge_checkpoint, source_of
        code = "import os, time, pathlib; pathlib.Path('pid').write_text(str(os.getpid())); time.sleep(600)"
        VerlCheckpoints.merge_command = lambda self, **_: (sys.executable, "-c", code)
        with merge_checkpoint(source_of(Path({str(tmp_path)!r})), 20):
            pass
    """
    job = subprocess.Popen([sys.executable, "-c", textwrap.dedent(body)])
    file = tmp_path / "pid"
    wait_until(lambda: file.exists() and bool(file.read_text()), 60)
    program = psutil.Process(int(file.read_text()))

    job.kill()
    job.wait()

    program.wait(10)
