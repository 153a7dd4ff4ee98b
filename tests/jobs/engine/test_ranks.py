"""Policy ranks and a rollout engine called one by one: what ZeRO may not change, and what a faulty sync does."""

import json
import math
from itertools import chain, pairwise
from typing import Any

import pytest

from jobs.engine.failures.sync_guard import LARGEST_GAP, largest_mean_difference
from tests.jobs.engine.conftest import EndedRun
from tests.jobs.engine.rank_variants import BREAKS, PRECISIONS, STEPS, looked_at

pytestmark = pytest.mark.engine
WHOLE_BYTES = 657_024 * 4
LARGEST_MEAN = largest_mean_difference(precision="bfloat16", num_layers=3)


def _found(ended: EndedRun) -> dict[str, Any]:
    assert ended.code == 0, ended.output
    return json.loads((ended.run_dir / "found.json").read_text())  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def stages(start_engine: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Steps of SFT on two ranks, once for each variant: a few of them, all in `make proof-exactness`."""
    spec = {"algorithm": "sft", "knobs": {"train.batch_size": 32}}
    return _found(
        start_engine(tmp_path_factory.mktemp("stages"), spec, program=("tests.jobs.engine.ranks", "stages")).wait()
    )


@pytest.fixture(scope="module")
def gaps(start_engine: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What log-probabilities differ by after good and bad syncs, in both precisions."""
    knobs = {
        "rollout.prompts_per_step": 1,
        "rollout.samples_per_prompt": 4,
        "rollout.max_prompt_tokens": 400,
        "algorithm.kl_coefficient": 0,
        "optimizer.max_grad_norm": 0,
    }
    spec = {"hardware": {"layout": "split", "policy_ranks": 1}, "knobs": knobs}
    return _found(
        start_engine(tmp_path_factory.mktemp("gaps"), spec, program=("tests.jobs.engine.ranks", "gaps")).wait()
    )


@pytest.mark.slow("the first test waits for the ranks that all of them read")
@pytest.mark.parametrize(
    "variant",
    looked_at(
        *("1", "2", "3", "micro", "recompute", "one rank", "tokens", "packed", "packed, one rank", "host", "host 3")
    ),
)
def test_losses_and_gradients_are_those_of_one_plain_replica(stages: dict[str, Any], variant: str) -> None:
    assert len(stages["0"]["losses"]) == STEPS
    assert stages[variant]["losses"] == pytest.approx(stages["0"]["losses"], abs=1e-5)
    assert stages[variant]["norms"] == pytest.approx(stages["0"]["norms"], rel=1e-3)


def test_ranks_whose_tokens_make_other_numbers_of_micro_batches_agree_on_one(stages: dict[str, Any]) -> None:
    """Else they would wait for each other for ever."""
    for variant in looked_at("tokens", "packed"):
        assert any(first != second for first, second in stages[variant]["micros"])
        assert max(chain.from_iterable(stages[variant]["micros"])) > 1


@pytest.mark.parametrize(
    "variant",
    looked_at(*(f"bfloat16 {name}" for name in ("0", "2", "3", "micro", "one rank", "packed", "host", "host 3"))),
)
def test_in_bfloat16_every_layout_stays_close_to_float32_and_to_each_other(
    stages: dict[str, Any], variant: str
) -> None:
    """Weights have 8 bits there, so the paths part; the first gradient, of equal weights, says how exact its sum is."""
    found, exact = stages[variant], stages["0"]

    assert found["norms"][0] == pytest.approx(exact["norms"][0], rel=3e-3)
    assert found["losses"] == pytest.approx(exact["losses"], abs=2e-3)
    assert found["losses"] != exact["losses"]


@pytest.mark.parametrize("variant", looked_at("moved 0", "moved 2", "moved 3"))
def test_states_that_left_the_device_and_came_back_learn_as_if_they_had_stayed(
    stages: dict[str, Any], variant: str
) -> None:
    assert stages[variant]["losses"] == stages[variant.removeprefix("moved ")]["losses"]


def test_in_bfloat16_all_zero_stages_are_the_same(stages: dict[str, Any]) -> None:
    losses = [stages[variant]["losses"] for variant in looked_at("bfloat16 0", "bfloat16 2")]

    assert all(told == losses[0] for told in losses)
    assert all(told == pytest.approx(stages["bfloat16 3"]["losses"], abs=1e-5) for told in losses)


@pytest.mark.parametrize("variant", looked_at("bfloat16 half masters 2", "bfloat16 half masters 3"))
def test_masters_and_moments_of_bfloat16_take_half_and_learn_the_same_at_a_high_rate(
    stages: dict[str, Any], variant: str
) -> None:
    """At 1e-3, where Adam's updates are above the rounding of usual weights."""
    half, whole = stages[variant], stages[variant.replace("half masters ", "")]

    assert half["readings"][0]["optimizer_bytes"] == pytest.approx(
        whole["readings"][0]["optimizer_bytes"] / 2, rel=0.01
    )
    assert half["losses"][0] == whole["losses"][0]
    assert half["norms"][0] == pytest.approx(whole["norms"][0], rel=1e-6)  # the sums are float32
    assert half["losses"] == pytest.approx(whole["losses"], abs=1e-3)


def test_bfloat16_halves_the_weights(stages: dict[str, Any]) -> None:
    held = {name: stages[name]["readings"][0]["parameter_bytes"] for name in ("3", "bfloat16 3")}

    assert held["bfloat16 3"] <= 0.51 * held["3"]


@pytest.mark.parametrize(
    "variant",
    looked_at(*BREAKS),
)
def test_a_step_whose_gradient_is_not_finite_is_skipped_in_every_stage(stages: dict[str, Any], variant: str) -> None:
    broken = stages[variant]["broken"]

    assert broken["is_skipped"] == [True, True]
    assert broken["norm"] == math.inf
    assert broken["is_unchanged"]
    assert broken["is_finite"] == [True, True]
    assert broken["is_skipped_again"] == [False, False]  # and the next one is taken
    assert 0 < broken["norm_again"] < 1


@pytest.mark.parametrize("variant", ["3", "bfloat16 3", "host 3"])
def test_with_zero_3_rank_0_alone_reads_the_weights(stages: dict[str, Any], variant: str) -> None:
    first, second = (readings["read_bytes"] for readings in stages[variant]["readings"])

    assert math.isnan(first)
    assert second < 0.02 * WHOLE_BYTES


@pytest.mark.parametrize("precision", PRECISIONS)
def test_colocated_learns_what_shared_learns_to_the_last_bit(stages: dict[str, Any], precision: str) -> None:
    """From the same samples: that its ranks draw, too, must leave no trace in what they learn."""
    assert len(stages[f"{precision} colocated"]) == 3
    assert stages[f"{precision} colocated"] == stages[f"{precision} shared"]


@pytest.mark.parametrize("precision", PRECISIONS)
def test_split_learns_the_same_from_the_same_samples(stages: dict[str, Any], precision: str) -> None:
    """Its reference scores the batch in other parts."""
    bound = {"float32": 1e-5, "bfloat16": 2e-3}[precision]
    split, colocated = stages[f"{precision} split"], stages[f"{precision} colocated"]

    assert split[0].keys() >= {"loss/policy", "kl/reference", "policy/grad_norm"}
    for here, there in zip(split, colocated, strict=True):
        assert here == pytest.approx(there, abs=bound, rel=bound)
    assert split[2]["kl/reference"] > 0


def test_two_colocated_ranks_draw_what_one_draws(stages: dict[str, Any]) -> None:
    assert len(stages["drawn"]["one rank"]) == 32
    assert stages["drawn"]["two ranks"] == stages["drawn"]["one rank"]


def test_a_few_steps_lower_the_loss(stages: dict[str, Any]) -> None:
    assert stages["0"]["losses"][-1] < stages["0"]["losses"][0]


def test_each_zero_stage_holds_less_per_rank(stages: dict[str, Any]) -> None:
    held = {stage: stages[stage]["readings"][0] for stage in looked_at(*"0123")}

    assert [s for s in held if held[s]["parameter_bytes"] < WHOLE_BYTES] == ["3"]
    assert held["3"]["parameter_bytes"] <= 0.52 * WHOLE_BYTES
    assert held["0"]["gradient_bytes"] >= WHOLE_BYTES
    assert held["2"]["gradient_bytes"] <= 0.6 * held["0"]["gradient_bytes"]
    assert held["0"]["optimizer_bytes"] >= 2 * WHOLE_BYTES  # two moments, all of them
    for stage in looked_at(*"123"):  # half of two moments and of the master weights
        assert held[stage]["optimizer_bytes"] <= 0.8 * held["0"]["optimizer_bytes"]


@pytest.mark.slow("the first test waits for the engines that others read")
def test_the_prompt_is_longer_than_a_cache_block(gaps: dict[str, Any]) -> None:
    assert gaps["float32"]["prompt_tokens"] > 128


@pytest.mark.parametrize("when", ["start", "before_stale_cache", "before_stale_head", "end"])
def test_a_sync_brings_vllm_to_the_trainer(gaps: dict[str, Any], when: str) -> None:
    assert 0 < gaps["float32"][when]["sync/max_logprob_diff"] <= LARGEST_GAP


@pytest.mark.proof
@pytest.mark.parametrize("when", ["start", "before_stale_cache", "before_stale_head", "end"])
def test_a_sync_brings_vllm_to_the_trainer_in_bfloat16_too(gaps: dict[str, Any], when: str) -> None:
    assert 0 < gaps["bfloat16"][when]["sync/mean_probability_diff"] <= LARGEST_MEAN


@pytest.mark.parametrize("fault", ["skipped", "stale_cache", "stale_head"])
def test_a_skipped_sync_a_stale_cache_and_an_unrefreshed_head_are_seen(gaps: dict[str, Any], fault: str) -> None:
    assert gaps["float32"][fault]["sync/max_logprob_diff"] > LARGEST_GAP


@pytest.mark.proof
@pytest.mark.parametrize("fault", ["skipped", "stale_cache"])  # vLLM packs no head in bfloat16
def test_they_are_seen_in_bfloat16_too(gaps: dict[str, Any], fault: str) -> None:
    assert gaps["bfloat16"][fault]["sync/mean_probability_diff"] > LARGEST_MEAN


@pytest.mark.proof
def test_ten_healthy_steps_in_bfloat16_are_not_mistaken_for_a_fault(gaps: dict[str, Any]) -> None:
    means = [gap["sync/mean_probability_diff"] for gap in gaps["bfloat16"]["healthy"]]

    assert len(means) == 10
    assert not [pair for pair in pairwise(means) if min(pair) > LARGEST_MEAN or max(pair) > 4 * LARGEST_MEAN]
