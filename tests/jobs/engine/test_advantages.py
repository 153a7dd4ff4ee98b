"""Group-relative advantages: a case by hand, and what must hold for all."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from jobs.engine.advantages import group_advantages, zero_variance_fraction


def test_a_group_by_hand() -> None:
    # mean 0.25, deviations 0.75 and -0.25 three times, unbiased variance (0.5625 + 3 * 0.0625) / 3 = 0.25
    advantages = group_advantages(torch.tensor([1.0, 0.0, 0.0, 0.0]), group_size=4, normalize_by_std=True)

    assert advantages.tolist() == pytest.approx([1.5, -0.5, -0.5, -0.5], abs=1e-5)


def test_without_the_deviation_it_is_the_distance_to_the_mean() -> None:
    advantages = group_advantages(torch.tensor([1.0, 0.0, 0.4, 0.2]), group_size=2, normalize_by_std=False)

    assert advantages.tolist() == pytest.approx([0.5, -0.5, 0.1, -0.1])


def test_a_group_with_equal_rewards_gets_exact_zeros() -> None:
    rewards = torch.tensor([0.1, 0.1, 0.1, 0.1, 0.1, 0.7])  # 0.1 has no exact mean in float32

    advantages = group_advantages(rewards, group_size=3, normalize_by_std=True)

    assert advantages[:3].tolist() == [0.0, 0.0, 0.0]
    assert zero_variance_fraction(rewards, group_size=3) == 0.5


@given(rewards=st.lists(st.floats(0, 1, width=32), min_size=8, max_size=8), shift=st.floats(-5, 5, width=32))
def test_shifting_all_rewards_changes_nothing(rewards: list[float], shift: float) -> None:
    plain = torch.tensor(rewards, dtype=torch.float64)

    # without division: tiny deviations would blow rounding up
    before = group_advantages(plain, group_size=4, normalize_by_std=False)
    after = group_advantages(plain + shift, group_size=4, normalize_by_std=False)

    assert torch.allclose(before, after, atol=1e-5)


def test_each_group_sums_to_zero_and_has_deviation_one() -> None:
    rewards = torch.rand(8 * 16, generator=torch.Generator().manual_seed(5))

    advantages = group_advantages(rewards, group_size=8, normalize_by_std=True).view(16, 8)

    assert torch.allclose(advantages.sum(dim=1), torch.zeros(16), atol=1e-4)
    assert torch.allclose(advantages.std(dim=1), torch.ones(16), atol=1e-4)


@pytest.mark.parametrize("group_size", [1, 3])
def test_no_whole_groups_is_refused(group_size: int) -> None:
    with pytest.raises(ValueError, match="whole groups"):
        group_advantages(torch.rand(8), group_size=group_size, normalize_by_std=True)
