"""What is measured of the rollout engine's log-probabilities, and what ends a run."""

import math

import pytest
import torch

from jobs.engine.failures.failure_cause import NonFinite, SyncGap
from jobs.engine.failures.sync_guard import SyncGuard, largest_mean_difference
from jobs.engine.logprob_gap import GapSums, gap_sums, total

LAYERS = 2
LIMIT = largest_mean_difference(precision="bfloat16", num_layers=LAYERS)


def measured(*, mean: float = 0.0, largest: float = 0.0) -> GapSums:
    return GapSums(num_tokens=100, probability=100 * mean, kl=0.0, num_far=0, largest=largest)


def guard(precision: str = "bfloat16") -> SyncGuard:
    return SyncGuard(precision=precision, num_layers=LAYERS)


def test_the_sums_are_of_counted_tokens_alone() -> None:
    """By hand: probabilities 0.8 and 0.2, 0.5 and 0.5, of a token that does not count 1 and e^-9."""
    rollout = torch.tensor([[0.8, 0.5, 1.0]]).log()
    trainer = torch.tensor([[0.2, 0.5, math.exp(-9)]]).log()

    found = gap_sums(rollout, trainer, torch.tensor([[True, True, False]])).metrics()

    r = math.log(4)
    assert found["sync/max_logprob_diff"] == pytest.approx(r, rel=1e-6)
    assert found["sync/mean_probability_diff"] == pytest.approx(0.3, rel=1e-6)
    assert found["sync/far_token_fraction"] == 0.5
    assert found["kl/rollout"] == pytest.approx((math.exp(-r) - 1 + r) / 2, rel=1e-5)


def test_parts_add_up_to_the_whole() -> None:
    generator = torch.Generator().manual_seed(5)
    rollout, trainer = (-torch.rand(6, 4, generator=generator) for _ in range(2))
    mask = torch.rand(6, 4, generator=generator) < 0.7

    whole = gap_sums(rollout, trainer, mask)
    parts = total(gap_sums(rollout[i : i + 2], trainer[i : i + 2], mask[i : i + 2]) for i in (0, 2, 4))

    assert parts.metrics() == pytest.approx(whole.metrics())
    assert total([]) == GapSums(num_tokens=0, probability=0.0, kl=0.0, num_far=0, largest=0.0)


def test_log_probabilities_that_are_no_numbers_end_a_run_in_any_precision() -> None:
    broken = gap_sums(torch.zeros(1, 1), torch.full((1, 1), math.nan), torch.ones(1, 1, dtype=torch.bool))

    for precision in ("float32", "bfloat16"):
        with pytest.raises(NonFinite, match="not numbers after step 3"):
            guard(precision).check(total([measured(), broken]), synced_at=3)


def test_in_float32_one_token_is_enough() -> None:
    guard("float32").check(measured(largest=9e-4), synced_at=1)

    with pytest.raises(SyncGap, match=r"differ by 0\.002 nats"):
        guard("float32").check(measured(largest=2e-3), synced_at=1)


def test_in_bfloat16_single_tokens_may_be_nats_off() -> None:
    guard().check(measured(mean=LIMIT / 2, largest=5.0), synced_at=1)


def test_in_bfloat16_the_mean_may_be_too_far_off_once_but_not_twice_in_a_row() -> None:
    watched = guard()
    for mean in (1.1, 0.9, 1.1, 0.9):
        watched.check(measured(mean=mean * LIMIT), synced_at=1)

    watched.check(measured(mean=1.1 * LIMIT), synced_at=5)
    with pytest.raises(SyncGap, match="after the weight sync of step 6"):
        watched.check(measured(mean=1.1 * LIMIT), synced_at=6)


def test_in_bfloat16_far_above_what_rounding_explains_ends_at_once() -> None:
    with pytest.raises(SyncGap, match="did not get the policy's weights"):
        guard().check(measured(mean=5 * LIMIT), synced_at=1)


def test_the_limit_grows_with_the_root_of_the_depth() -> None:
    """By hand for 28 layers: 2^-8 * sqrt(2 * 57)."""
    assert largest_mean_difference(precision="bfloat16", num_layers=28) == pytest.approx(0.0417, abs=1e-4)
