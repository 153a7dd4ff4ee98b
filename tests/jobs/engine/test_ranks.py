"""Policy ranks and a rollout engine called one by one: what ZeRO may not change, and what a faulty sync does."""

import json
from typing import Any

import pytest

from tests.jobs.engine.conftest import EndedRun

pytestmark = pytest.mark.engine
WHOLE_BYTES = 657_024 * 4


def _found(ended: EndedRun) -> dict[str, Any]:
    assert ended.code == 0, ended.output
    return json.loads((ended.run_dir / "found.json").read_text())  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def stages(start_engine: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Five steps of SFT on two ranks, once for each variant."""
    spec = {"algorithm": "sft", "knobs": {"train.batch_size": 32}}
    return _found(
        start_engine(tmp_path_factory.mktemp("stages"), spec, program=("tests.jobs.engine.ranks", "stages")).wait()
    )


@pytest.fixture(scope="module")
def gaps(start_engine: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    """The largest difference of log-probabilities after good and bad syncs."""
    knobs = {
        "rollout.prompts_per_step": 1,
        "rollout.samples_per_prompt": 4,
        "rollout.max_prompt_tokens": 400,
        "algorithm.kl_coefficient": 0,
        "optimizer.max_grad_norm": 0,
    }
    spec = {"hardware": {"policy_ranks": 1}, "knobs": knobs}
    return _found(
        start_engine(tmp_path_factory.mktemp("gaps"), spec, program=("tests.jobs.engine.ranks", "gaps")).wait()
    )


@pytest.mark.slow("the first test waits for the ranks that all of them read")
@pytest.mark.parametrize("variant", ["1", "2", "3", "micro", "recompute"])
def test_losses_and_gradients_are_those_of_one_plain_replica(stages: dict[str, Any], variant: str) -> None:
    assert len(stages["0"]["losses"]) == 5
    assert stages[variant]["losses"] == pytest.approx(stages["0"]["losses"], abs=1e-5)
    assert stages[variant]["norms"] == pytest.approx(stages["0"]["norms"], rel=1e-3)


def test_bfloat16_stays_close_and_halves_the_weights(stages: dict[str, Any]) -> None:
    assert stages["bfloat16"]["losses"] == pytest.approx(stages["0"]["losses"], abs=0.05)
    assert stages["bfloat16"]["losses"] != stages["0"]["losses"]
    assert stages["bfloat16"]["readings"][0]["parameter_bytes"] <= 0.51 * stages["2"]["readings"][0]["parameter_bytes"]


def test_five_steps_lower_the_loss(stages: dict[str, Any]) -> None:
    assert stages["0"]["losses"][4] < stages["0"]["losses"][0]


def test_each_zero_stage_holds_less_per_rank(stages: dict[str, Any]) -> None:
    held = {stage: stages[stage]["readings"][0] for stage in "0123"}

    assert [held[s]["parameter_bytes"] >= WHOLE_BYTES for s in "0123"] == [True, True, True, False]
    assert held["3"]["parameter_bytes"] <= 0.52 * WHOLE_BYTES
    assert held["0"]["gradient_bytes"] >= WHOLE_BYTES
    assert held["2"]["gradient_bytes"] <= 0.6 * held["0"]["gradient_bytes"]
    assert held["0"]["optimizer_bytes"] >= 2 * WHOLE_BYTES  # two moments, all of them
    for stage in "123":  # half of two moments and of the master weights
        assert held[stage]["optimizer_bytes"] <= 0.8 * held["0"]["optimizer_bytes"]


@pytest.mark.slow("the first test waits for the engine that others read")
def test_the_prompt_is_longer_than_a_cache_block(gaps: dict[str, float]) -> None:
    assert gaps["prompt_tokens"] > 128


@pytest.mark.parametrize("when", ["start", "before_stale_cache", "before_stale_head", "end"])
def test_a_sync_brings_vllm_to_the_trainer(gaps: dict[str, float], when: str) -> None:
    assert 0 < gaps[when] <= 1e-3


@pytest.mark.parametrize("fault", ["skipped", "stale_cache", "stale_head"])
def test_a_skipped_sync_a_stale_cache_and_an_unrefreshed_head_are_seen(gaps: dict[str, float], fault: str) -> None:
    assert gaps[fault] > 1e-3
