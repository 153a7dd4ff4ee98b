"""Rewards that are normalized by those of the run so far, against numbers taken of all of them at once."""

import json

import pytest
import torch

from jobs.engine.rollouts.reward_moments import RewardMoments

BATCHES = [torch.randn(n, generator=torch.Generator().manual_seed(n)) * 3 + 1000 for n in (5, 1, 40)]


def test_batch_by_batch_they_are_those_of_all_rewards_at_once() -> None:
    moments = RewardMoments()
    for batch in BATCHES:
        moments += batch
        moments = RewardMoments.of(json.loads(json.dumps(moments.to_state())))  # as a checkpoint has them
    every = torch.cat(BATCHES).double()

    assert moments.count == 46
    assert moments.mean == pytest.approx(float(every.mean()), rel=1e-9)
    assert moments.deviation == pytest.approx(float(every.std(unbiased=False)), rel=1e-9)
    assert moments.metrics() == {"reward/running_mean": moments.mean, "reward/running_std": moments.deviation}


def test_rewards_are_put_on_the_scale_of_all_so_far() -> None:
    moments = RewardMoments() + torch.tensor([1.0, 3.0]) + torch.tensor([5.0, 7.0])

    assert moments.normalized(torch.tensor([4.0, 5.0])).tolist() == pytest.approx([0.0, 1 / 5**0.5])


def test_where_all_are_the_same_nothing_is_learned() -> None:
    same = torch.full((4,), 0.1)
    moments = RewardMoments() + same + same

    assert moments.normalized(same).tolist() == [0.0] * 4


def test_without_rewards_there_is_nothing_to_keep_or_to_tell() -> None:
    moments = RewardMoments() + torch.zeros(0)

    assert moments == RewardMoments() == RewardMoments.of(None)
    assert moments.to_state() is None
    assert moments.metrics() == {}
