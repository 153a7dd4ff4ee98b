"""What single algorithms promise; what all of them do is in tests/contracts/test_algorithms.py."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from jobs.engine.advantages import over_tokens
from jobs.engine.algorithm import load_algorithm
from jobs.engine.batch import Batch
from jobs.engine.losses import token_scores
from jobs.engine.policy_gradient import clipped_loss, rewards_less_kl
from tests.jobs.engine.policy_batches import counts_of, four, outputs_of, spec_of


def advantages_of(algorithm: str, batch: Batch, **knobs: Any) -> Tensor:
    estimate = load_algorithm(algorithm).advantages
    assert estimate is not None
    return estimate(batch, spec_of(algorithm, **knobs)).advantages_BL


def test_grpo_gives_each_token_of_an_answer_the_advantage_of_the_answer() -> None:
    """Two groups of two; by hand: means 0.5 and 0.5, unbiased deviations 0.7071 and 0.3536."""
    batch, _ = four()
    batch = replace(batch, rewards_B=torch.tensor([1.0, 0.0, 0.25, 0.75]))

    found = advantages_of("grpo", batch, rollout__samples_per_prompt=2)

    each = torch.tensor([0.70711, -0.70711, -0.70711, 0.70711])
    assert torch.allclose(found, over_tokens(each, batch.mask_BL), atol=1e-5)


@pytest.mark.parametrize(
    ("rewards", "group_size", "expected"),
    [
        # the mean of the three others is 1/3 for a reward of 1, 2/3 for a 0: what verl's own function gives
        ([1.0, 0.0, 0.0, 1.0], 4, [2 / 3, -2 / 3, -2 / 3, 2 / 3]),
        ([1.0, 0.0, 0.25, 0.75], 2, [1.0, -1.0, -0.5, 0.5]),
        ([0.1, 0.1, 0.1, 0.1], 4, [0.0] * 4),
    ],
)
def test_rloo_holds_an_answer_against_the_others_of_its_prompt(
    rewards: list[float], group_size: int, expected: list[float]
) -> None:
    batch, _ = four()
    batch = replace(batch, rewards_B=torch.tensor(rewards), reference_logprobs_BL=None)

    found = advantages_of("rloo", batch, rollout__samples_per_prompt=group_size)

    assert torch.allclose(found, over_tokens(torch.tensor(expected), batch.mask_BL), atol=1e-6)


def test_rloo_is_the_formula_as_trl_writes_it() -> None:
    """TRL's RLOOTrainer: the KL off the reward, baseline = (sum of the group - own) / (G - 1), no deviation."""
    batch, _ = four()
    rewards_B, old_BL, reference_BL = batch.rewards_B, batch.old_logprobs_BL, batch.reference_logprobs_BL
    assert rewards_B is not None
    assert old_BL is not None
    assert reference_BL is not None
    scores = [
        float(rewards_B[i]) - 0.05 * float((old_BL[i] - reference_BL[i])[batch.mask_BL[i]].sum()) for i in range(4)
    ]
    slow = [score - (sum(scores) - score) / (4 - 1) for score in scores]

    found = advantages_of("rloo", batch, rollout__samples_per_prompt=4, algorithm__kl_coefficient=0.05)

    assert found[:, 1].tolist() == pytest.approx(slow, abs=1e-5)


def test_the_kl_coefficient_weighs_the_distance_to_the_reference() -> None:
    plugin = load_algorithm("grpo")
    batch, logits_BLV = four()
    outputs, counts = outputs_of(logits_BLV, batch), counts_of(batch)

    free, metrics = plugin.policy_loss(batch, outputs, spec_of("grpo", algorithm__kl_coefficient=0.0), counts)
    held, _ = plugin.policy_loss(batch, outputs, spec_of("grpo", algorithm__kl_coefficient=0.5), counts)

    assert float(metrics["kl/reference"]) > 0
    assert float(held - free) == pytest.approx(0.5 * float(metrics["kl/reference"]), abs=1e-6)


def test_the_kl_in_the_reward_is_taken_off_each_answer_and_not_added_to_the_loss() -> None:
    """By hand: 0.5 * the sum of log old - log reference over the tokens of each answer, as k1 estimates it."""
    batch, logits_BLV = four()
    spec = spec_of("grpo", algorithm__kl_coefficient=0.5, algorithm__kl_in_loss=False, algorithm__kl_estimator="k1")
    old_BL, reference_BL = batch.old_logprobs_BL, batch.reference_logprobs_BL
    assert old_BL is not None
    assert reference_BL is not None
    assert batch.rewards_B is not None
    kls = [
        sum(float(o - r) for o, r, counts in zip(*row, strict=True) if counts)
        for row in zip(old_BL, reference_BL, batch.mask_BL, strict=True)
    ]

    found = rewards_less_kl(batch, spec)
    loss, metrics = load_algorithm("grpo").policy_loss(batch, outputs_of(logits_BLV, batch), spec, counts_of(batch))

    wanted = [reward - 0.5 * kl for reward, kl in zip(batch.rewards_B.tolist(), kls, strict=True)]
    assert found.tolist() == pytest.approx(wanted, abs=1e-5)
    free = replace(batch, reference_logprobs_BL=None)
    assert float(loss) == float(clipped_loss(free, outputs_of(logits_BLV, free), spec, counts_of(free))[0])
    assert "kl/reference" in metrics


def test_without_old_log_probabilities_the_updates_own_are_the_old_ones() -> None:
    """One update per rollout: the same loss and gradient as with a pass that found the same numbers before."""
    plugin, spec = load_algorithm("grpo"), spec_of("grpo")
    batch, logits_BLV = four()
    with_pass = replace(batch, old_logprobs_BL=token_scores(logits_BLV, batch.tokens_BL)[0])
    without = replace(batch, old_logprobs_BL=None)
    found = []
    for each in (with_pass, without):
        logits = logits_BLV.clone().requires_grad_()
        loss, metrics = plugin.policy_loss(each, outputs_of(logits, each), spec, counts_of(each))
        loss.backward()
        assert logits.grad is not None
        found.append((loss.item(), logits.grad, metrics))

    assert found[0][0] == found[1][0]
    assert torch.equal(found[0][1], found[1][1])
    assert float(found[0][1].abs().sum()) > 0
    assert "policy/ratio_mean" in found[0][2]
    assert "policy/ratio_mean" not in found[1][2]


@pytest.mark.parametrize(
    ("knobs", "expected"),
    [
        ({}, False),
        ({"train__updates_per_rollout": 2}, True),
        ({"algorithm__kl_in_loss": False}, True),  # the KL of a reward is of the policy that sampled
        ({"algorithm__kl_in_loss": False, "algorithm__kl_coefficient": 0.0}, False),
    ],
)
def test_a_pass_over_the_rollout_comes_before_the_update_only_where_it_is_needed(
    knobs: dict[str, Any], expected: bool
) -> None:
    assert load_algorithm("grpo").needs_old_logprobs(spec_of("grpo", **knobs)) is expected


def test_a_token_outside_the_clip_range_has_no_gradient() -> None:
    plugin = load_algorithm("grpo")
    spec = spec_of("grpo", algorithm__kl_coefficient=0.0, algorithm__clip_ratio_low=0.0, algorithm__clip_ratio_high=0.0)
    batch, logits_BLV = four()
    logits_BLV.requires_grad_()
    now_BL = token_scores(logits_BLV, batch.tokens_BL)[0].detach()
    # A ratio of e with a positive advantage: beyond the upper bound everywhere.
    far = replace(batch, advantages_BL=torch.ones_like(now_BL), old_logprobs_BL=now_BL - 1, reference_logprobs_BL=None)

    loss, metrics = plugin.policy_loss(far, outputs_of(logits_BLV, far), spec, counts_of(far))
    loss.backward()

    assert float(metrics["policy/clip_fraction"]) == pytest.approx(1.0)
    assert logits_BLV.grad is not None
    assert float(logits_BLV.grad.abs().max()) == 0.0


def test_supervised_loss_is_the_mean_cross_entropy_of_the_answer_tokens() -> None:
    batch, logits_BLV = four()
    predicted = logits_BLV[:, :-1][batch.mask_BL[:, 1:]]
    expected = torch.nn.functional.cross_entropy(predicted, batch.tokens_BL[:, 1:][batch.mask_BL[:, 1:]])

    loss, _ = load_algorithm("sft").policy_loss(batch, outputs_of(logits_BLV, batch), spec_of("sft"), counts_of(batch))

    assert float(loss) == pytest.approx(float(expected), rel=1e-5)
