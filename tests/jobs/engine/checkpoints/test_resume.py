"""Going on from a checkpoint: after a kill and after a stop, with the same ranks and with others, without a shared
disk.
"""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from jobs.engine.checkpoints.checkpoint import Checkpoints
from tests.jobs.engine.conftest import GRPO, EndedRun

pytestmark = pytest.mark.engine
SFT: dict[str, Any] = {"algorithm": "sft", "knobs": {"train.batch_size": 32}}
LOSSES = ("loss/policy", "kl/reference", "policy/entropy", "policy/grad_norm")


@pytest.fixture(scope="module")
def layouts(start_engine: Any, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Six steps of SFT with a checkpoint after the third, and three steps from it in other layouts."""
    ended: EndedRun = start_engine(
        tmp_path_factory.mktemp("layouts"), SFT, program=("tests.jobs.engine.resuming", "few")
    ).wait()
    assert ended.code == 0, ended.output
    return json.loads((ended.run_dir / "found.json").read_text())  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def killed(start_engine: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run directory of the same run as `grpo`, whose driver was killed after step 4 and before step 6."""
    held = ("tests.jobs.engine.holding_run", "6")
    running = start_engine(tmp_path_factory.mktemp("runs") / "killed" / "a1", GRPO, program=held)
    running.wait_for_step(4)
    os.kill(running.process.pid, signal.SIGKILL)
    assert running.wait().code == -signal.SIGKILL
    return running.run_dir  # type: ignore[no-any-return]


def go_on(start_engine: Any, run_dir: Path, spec: dict[str, Any], *, step: int) -> EndedRun:
    """Run attempt 2 from a checkpoint of attempt 1."""
    after = run_dir.with_name("a2")
    after.mkdir()
    folder = run_dir / "checkpoints" / f"step-{step}"
    (after / "resume.json").write_text(json.dumps({"attempt": 1, "step": step, "folder": str(folder)}))
    return start_engine(after, spec).wait()  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def after_kill(start_engine: Any, killed: Path) -> EndedRun:
    """The killed run, gone on with as it was."""
    return go_on(start_engine, killed, GRPO, step=3)


@pytest.fixture(scope="module")
def after_stop(start_engine: Any, stopped: EndedRun) -> EndedRun:
    """The run that was stopped with ZeRO-3 on two ranks, gone on with on one."""
    spec = GRPO | {"hardware": {"policy_ranks": 1}, "knobs": GRPO["knobs"] | {"memory.zero_stage": "3"}}
    return go_on(start_engine, stopped.run_dir, spec, step=last_step(stopped))


def last_step(ended: EndedRun) -> int:
    return max(ended.series("time/step_seconds"))


def rewards(run_dir: Path, step: int) -> list[float]:
    lines = (run_dir / "samples" / f"step-{step:06d}.jsonl").read_text().splitlines()
    return [json.loads(line)["reward"] for line in lines]


@pytest.mark.slow("a worker group that is started twice")
def test_losses_after_a_resume_are_those_of_the_run_that_went_on(layouts: list[dict[str, Any]]) -> None:
    assert sum(len(saved["resumed"]) for saved in layouts) == 4
    for saved in layouts:
        for target, resumed in saved["resumed"].items():
            assert resumed["losses"] == pytest.approx(saved["losses"][3:], abs=1e-5), (saved["source"], target)


def test_the_same_ranks_go_on_to_the_last_bit(layouts: list[dict[str, Any]]) -> None:
    same = [(saved, saved["resumed"].get(saved["source"])) for saved in layouts]

    assert len([resumed for _, resumed in same if resumed]) == 2
    for saved, resumed in same:
        assert resumed is None or resumed["losses"] == saved["losses"][3:]


def test_a_rank_without_the_drivers_disk_handed_its_state_over_in_pieces(layouts: list[dict[str, Any]]) -> None:
    for saved in layouts:
        if "apart" in saved["source"]:
            assert saved["files"] == ["policy-0-0.safetensors", *(f"policy-1-{k}.safetensors" for k in range(4))]


def test_a_killed_run_goes_on_with_the_rewards_of_one_that_was_not(grpo: EndedRun, after_kill: EndedRun) -> None:
    assert after_kill.code == 0, after_kill.output
    assert sorted(after_kill.series("time/step_seconds")) == [4, 5, 6]
    for step in (4, 5, 6):
        assert rewards(after_kill.run_dir, step) == rewards(grpo.run_dir, step)
        for name in LOSSES:
            assert after_kill.series(name)[step] == pytest.approx(grpo.series(name)[step], abs=1e-5), name


def test_a_stopped_run_goes_on_with_another_number_of_ranks(
    grpo: EndedRun, stopped: EndedRun, after_stop: EndedRun
) -> None:
    assert after_stop.code == 0, after_stop.output
    begin = last_step(stopped)
    assert begin < 6
    assert sorted(after_stop.series("time/step_seconds")) == list(range(begin + 1, 7))
    for step in range(begin + 1, 7):
        assert rewards(after_stop.run_dir, step) == rewards(grpo.run_dir, step)
        for name in LOSSES:
            assert after_stop.series(name)[step] == pytest.approx(grpo.series(name)[step], abs=1e-5), name
    assert any(f"from checkpoint {begin} of attempt 1" in e["text"] for e in after_stop.of("note"))
    assert any("2 ranks then, 1 now" in e["text"] for e in after_stop.of("note"))


def test_vllm_has_the_resumed_weights_before_the_first_rollout(after_kill: EndedRun) -> None:
    gaps = after_kill.series("sync/max_logprob_diff")

    assert sorted(gaps) == [3, 4, 5, 6]
    assert 0 < max(gaps.values()) <= 1e-3


def test_a_resumed_run_tells_where_it_goes_on_and_repeats_nothing(grpo: EndedRun, after_kill: EndedRun) -> None:
    texts = [e["text"] for e in after_kill.of("state")]

    assert "Resuming from checkpoint 3 of attempt 1" in texts
    assert sorted(after_kill.series("eval/accuracy")) == [6]
    assert after_kill.series("eval/accuracy")[6] == grpo.series("eval/accuracy")[6]
    assert after_kill.series("train/epoch") == {s: grpo.series("train/epoch")[s] for s in (4, 5, 6)}


def test_the_best_model_before_the_kill_is_handed_over_with_the_attempt_after_it(
    grpo: EndedRun, after_kill: EndedRun
) -> None:
    wanted, found = ({e["name"]: e for e in ended.of("artifact")} for ended in (grpo, after_kill))

    assert found["model-final"]["meta"] == wanted["model-final"]["meta"]
    assert found["model-best"]["step"] == found["model-final"]["meta"]["best_step"]
    for place in ("model/best", "model/final"):
        weights = [(ended.run_dir / place / "model.safetensors").read_bytes() for ended in (grpo, after_kill)]
        assert weights[0] == weights[1]


def test_what_a_kill_left_half_written_is_no_checkpoint(killed: Path) -> None:
    (killed / "checkpoints" / ".step-6.draft").mkdir(exist_ok=True)

    assert Checkpoints(killed / "checkpoints", keep=2).steps() == [3]


def test_a_checkpoint_that_is_damaged_ends_the_attempt_before_any_worker_starts(
    start_engine: Any, after_kill: EndedRun, tmp_path: Path
) -> None:
    folder = after_kill.run_dir / "checkpoints" / "step-6"
    (folder / "policy-1-0.safetensors").rename(tmp_path / "away")
    (tmp_path / "a3").mkdir()
    (tmp_path / "a3" / "resume.json").write_text(json.dumps({"attempt": 2, "step": 6, "folder": str(folder)}))

    ended = start_engine(tmp_path / "a3", GRPO).wait()

    assert ended.code == 1
    assert (ended.cause["side"], ended.cause["field"]) == ("cluster", "resume")
    assert "Checkpoint 6 of attempt 2 is not whole: its file policy-1-0.safetensors is missing" in ended.cause["text"]
    assert not list((tmp_path / "a3").glob("log/policy-*"))
