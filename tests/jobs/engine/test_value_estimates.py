"""Advantages from values, by hand."""

import pytest
import torch

from jobs.engine.value_estimates import (
    clipped_value_loss,
    generalized_advantages,
    value_metrics,
)

MASK_BL = torch.tensor([[False, True, True, True], [False, True, False, True]])
VALUES_BL = torch.tensor([[9.0, 0.5, 0.25, 1.0], [9.0, 0.5, 9.0, 0.25]])
REWARDS_BL = torch.tensor([[0.0, 0.0, 0.0, 1.0], [0.0, 0.0, 0.0, 2.0]])


def test_generalized_advantages_by_hand() -> None:
    """gamma 0.5, lambda 0.5. First row, from its end: delta 1 - 1 = 0; 0.5 x 1 - 0.25 = 0.25; 0.5 x 0.25 - 0.5 =
    -0.375, and -0.375 + 0.25 x 0.25 = -0.3125. Second row, over the gap: 2 - 0.25 = 1.75; 0.5 x 0.25 - 0.5 = -0.375,
    and -0.375 + 0.25 x 1.75 = 0.0625.
    """
    advantages_BL, returns_BL = generalized_advantages(REWARDS_BL, VALUES_BL, MASK_BL, gamma=0.5, gae_lambda=0.5)

    assert advantages_BL.tolist() == [[0, -0.3125, 0.25, 0], [0, 0.0625, 0, 1.75]]
    assert returns_BL.tolist() == [[0, 0.1875, 0.5, 1], [0, 0.5625, 0, 2]]


def test_with_gamma_and_lambda_1_a_return_is_all_reward_to_come() -> None:
    advantages_BL, returns_BL = generalized_advantages(REWARDS_BL, VALUES_BL, MASK_BL, gamma=1.0, gae_lambda=1.0)

    assert returns_BL.tolist() == [[0, 1, 1, 1], [0, 2, 0, 2]]
    assert torch.equal(advantages_BL[MASK_BL], (returns_BL - VALUES_BL)[MASK_BL])


def test_with_lambda_0_an_advantage_is_the_surprise_of_one_token() -> None:
    advantages_BL, _ = generalized_advantages(REWARDS_BL, VALUES_BL, MASK_BL, gamma=1.0, gae_lambda=0.0)

    assert advantages_BL.tolist() == [[0, -0.25, 0.75, 0], [0, -0.25, 0, 1.75]]


@pytest.mark.parametrize(
    ("value", "old", "loss", "is_cut"),
    [
        (0.2, 0.0, 0.32, False),  # within the clip: (0.2 - 1)^2 / 2
        (0.8, 0.0, 0.125, True),  # beyond it, towards the return: that of 0.5
        (-0.8, 0.0, 1.62, False),  # beyond it, away from the return: its own
    ],
)
def test_a_value_that_moved_too_far_gains_nothing_more(value: float, old: float, loss: float, is_cut: bool) -> None:
    now_BL = torch.tensor([[value]], requires_grad=True)

    found = clipped_value_loss(now_BL, torch.tensor([[old]]), torch.tensor([[1.0]]), clip=0.5)
    found.loss_BL.sum().backward()

    assert found.loss_BL.item() == pytest.approx(loss)
    assert bool(found.is_cut_BL) is is_cut
    assert now_BL.grad is not None
    assert bool(now_BL.grad == 0) is is_cut


@pytest.mark.parametrize(
    ("values", "explained"), [([1.0, 2.0, 4.0], 1.0), ([0.0, 1.0, 3.0], 1.0), ([7.0, 7.0, 7.0], 0.0)]
)
def test_explained_variance_is_1_for_what_differs_by_a_constant_and_0_for_a_constant(
    values: list[float], explained: float
) -> None:
    mask_BL = torch.tensor([[False, True, True, True]])

    found = value_metrics(torch.tensor([[9.0, *values]]), torch.tensor([[9.0, 1.0, 2.0, 4.0]]), mask_BL)

    assert found["value/explained_variance"] == pytest.approx(explained)
    assert found["value/return_mean"] == pytest.approx(7 / 3)
    assert found["value/mean"] == pytest.approx(sum(values) / 3)


def test_nothing_is_said_of_the_variance_of_returns_that_are_equal() -> None:
    mask_BL = torch.tensor([[True, True]])

    assert "value/explained_variance" not in value_metrics(torch.zeros(1, 2), torch.ones(1, 2), mask_BL)
