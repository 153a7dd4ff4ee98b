"""Going on from a checkpoint: after a stop, with the same ranks and with others, without a shared disk.

`make proof-resume` kills drivers, and goes on with all layouts.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

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


def go_on(start_engine: Any, run_dir: Path, spec: dict[str, Any], *, step: int) -> EndedRun:
    """Run attempt 2 from a checkpoint of attempt 1."""
    return resume(start_engine, run_dir.with_name("a2"), spec, run_dir, step=step)


def resume(start_engine: Any, after: Path, spec: dict[str, Any], before: Path, *, step: int) -> EndedRun:
    """Run an attempt in `after` from a checkpoint of the one in `before`."""
    after.mkdir(exist_ok=True)
    folder = before / "checkpoints" / f"step-{step}"
    (after / "resume.json").write_text(json.dumps({"attempt": 1, "step": step, "folder": str(folder)}))
    return start_engine(after, spec).wait()  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def after_stop(start_engine: Any, stopped: EndedRun) -> EndedRun:
    """The run that was stopped on two ranks that held the reference, gone on with on one, the reference apart."""
    spec = GRPO | {
        "hardware": {"layout": "split", "policy_ranks": 1},
        "knobs": GRPO["knobs"] | {"memory.zero_stage": "3"},
    }
    return go_on(start_engine, stopped.run_dir, spec, step=last_step(stopped))


def last_step(ended: EndedRun) -> int:
    return max(ended.series("time/step_seconds"))


def rewards(run_dir: Path, step: int) -> list[float]:
    return told(run_dir, "reward", step)


def told(run_dir: Path, name: str, step: int) -> list[Any]:
    lines = (run_dir / "samples" / f"step-{step:06d}.jsonl").read_text().splitlines()
    return [json.loads(line)[name] for line in lines]


@pytest.mark.proof
@pytest.mark.slow("a worker group that is started twice")
def test_losses_after_a_resume_are_those_of_the_run_that_went_on(layouts: list[dict[str, Any]]) -> None:
    assert sum(len(saved["resumed"]) for saved in layouts) == 5
    for saved in layouts:
        for target, resumed in saved["resumed"].items():
            assert resumed["losses"] == pytest.approx(saved["losses"][3:], abs=1e-5), (saved["source"], target)


@pytest.mark.proof
def test_the_same_ranks_go_on_to_the_last_bit(layouts: list[dict[str, Any]]) -> None:
    same = [(saved, saved["resumed"].get(saved["source"])) for saved in layouts]

    assert len([resumed for _, resumed in same if resumed]) == 3
    for saved, resumed in same:
        assert resumed is None or resumed["losses"] == saved["losses"][3:]


@pytest.mark.proof
def test_states_of_bfloat16_take_half_of_the_disk(layouts: list[dict[str, Any]]) -> None:
    size = {saved["source"]: saved["bytes"] for saved in layouts}

    assert size["ZeRO-2 ×2 bfloat16 half masters"] < 0.52 * size["ZeRO-2 ×2 apart"]


@pytest.mark.proof
def test_a_rank_without_the_drivers_disk_handed_its_state_over_in_pieces(layouts: list[dict[str, Any]]) -> None:
    for saved in layouts:
        if "apart" in saved["source"]:
            assert saved["files"] == ["0-0.safetensors", *(f"1-{k}.safetensors" for k in range(4))]


@pytest.mark.slow("the first test waits for the run that goes on, which others read, too")
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


def test_vllm_has_the_resumed_weights_before_the_first_rollout(stopped: EndedRun, after_stop: EndedRun) -> None:
    gaps = after_stop.series("sync/max_logprob_diff")

    assert sorted(gaps) == list(range(last_step(stopped), 7))
    assert 0 < max(gaps.values()) <= 1e-3


def test_a_resumed_run_tells_where_it_goes_on_and_repeats_nothing(
    grpo: EndedRun, stopped: EndedRun, after_stop: EndedRun
) -> None:
    begin = last_step(stopped)

    assert f"Resuming from checkpoint {begin} of attempt 1" in [e["text"] for e in after_stop.of("state")]
    for name, steps in (("eval/accuracy", (3, 6)), ("train/epoch", range(1, 7))):
        assert after_stop.series(name) == {s: grpo.series(name)[s] for s in steps if s > begin}


def test_the_models_of_a_resumed_run_are_those_of_the_run_that_went_on(grpo: EndedRun, after_stop: EndedRun) -> None:
    wanted, found = ({e["name"]: e for e in ended.of("artifact")} for ended in (grpo, after_stop))

    assert found["model-final"]["meta"] == wanted["model-final"]["meta"]
    assert found["model-best"]["step"] == found["model-final"]["meta"]["best_step"]
    for place in ("model/best", "model/final"):
        weights, same = (load_file(ended.run_dir / place / "model.safetensors") for ended in (grpo, after_stop))
        assert weights.keys() == same.keys()
        for name, tensor in weights.items():
            torch.testing.assert_close(same[name], tensor, rtol=0, atol=1e-5)


@pytest.fixture(scope="module")
def colocated(start_engine: Any, grpo: EndedRun, tmp_path_factory: pytest.TempPathFactory) -> tuple[EndedRun, EndedRun]:
    """The whole run gone on with from step 3 by ranks that draw themselves, and that one from step 5, in the same
    layout.
    """
    spec = GRPO | {"hardware": {"layout": "colocated"}, "knobs": GRPO["knobs"] | {"checkpoint.every_steps": 1}}
    folder = tmp_path_factory.mktemp("colocated")
    crossed, again = folder / "a2", folder / "a3"
    whole = resume(start_engine, crossed, spec, grpo.run_dir, step=3)
    return whole, resume(start_engine, again, spec, crossed, step=5)


@pytest.mark.proof
@pytest.mark.slow("two runs, of which the second goes on from the first")
def test_split_goes_on_colocated_with_the_same_prompts(grpo: EndedRun, colocated: tuple[EndedRun, EndedRun]) -> None:
    """The ranks draw other tokens than vLLM, so rewards are their own."""
    crossed, _ = colocated

    assert crossed.code == 0, crossed.output
    assert sorted(crossed.series("time/step_seconds")) == [4, 5, 6]
    for step in (4, 5, 6):
        assert told(crossed.run_dir, "prompt", step) == told(grpo.run_dir, "prompt", step)
    assert max(crossed.series("sync/max_logprob_diff").values()) <= 1e-3
    assert {e["role"] for e in crossed.of("span")} == {"driver", "policy"}


@pytest.mark.proof
def test_colocated_goes_on_colocated_to_the_last_bit(colocated: tuple[EndedRun, EndedRun]) -> None:
    whole, again = colocated

    assert again.code == 0, again.output
    assert told(again.run_dir, "completion", 6) == told(whole.run_dir, "completion", 6)
    assert rewards(again.run_dir, 6) == rewards(whole.run_dir, 6)
    for name in LOSSES:
        assert again.series(name) == {6: whole.series(name)[6]}, name


def test_what_a_kill_left_half_written_is_no_checkpoint(grpo: EndedRun, tmp_path: Path) -> None:
    shutil.copytree(grpo.run_dir / "checkpoints", tmp_path, dirs_exist_ok=True)
    (tmp_path / ".step-9.draft").mkdir()

    assert Checkpoints(tmp_path, keep=2).steps() == [3, 6]


def test_a_checkpoint_that_is_damaged_ends_the_attempt_before_any_worker_starts(
    start_engine: Any, after_stop: EndedRun, tmp_path: Path
) -> None:
    folder = after_stop.run_dir / "checkpoints" / "step-6"
    (folder / "policy" / "0-0.safetensors").rename(tmp_path / "away")
    (tmp_path / "a3").mkdir()
    (tmp_path / "a3" / "resume.json").write_text(json.dumps({"attempt": 2, "step": 6, "folder": str(folder)}))

    ended = start_engine(tmp_path / "a3", GRPO).wait()

    assert ended.code == 1
    assert (ended.cause["side"], ended.cause["field"]) == ("cluster", "resume")
    assert "Checkpoint 6 of attempt 2 is not whole: its file policy/0-0.safetensors is missing" in ended.cause["text"]
    assert not list((tmp_path / "a3").glob("log/policy-*"))
