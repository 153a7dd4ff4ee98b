"""Shaped rewards by hand; against OpenRLHF's functions they are held in tests/jobs/engine/oracles."""

from dataclasses import replace

import pytest
import torch

from jobs.engine.rollouts.reward_shaping import Shaping
from tests.jobs.engine.policy_batches import spec_of

NOTHING = Shaping.of(spec_of("grpo"))
REWARDS = torch.tensor([1.0, -2.0, 0.5, 4.0])
LENGTHS = torch.tensor([10.0, 12.0, 14.0, 16.0])
CUT = torch.tensor([False, False, False, True])


def test_by_itself_a_run_leaves_its_rewards_as_they_are() -> None:
    found, metrics = NOTHING.shaped(REWARDS, LENGTHS, CUT)

    assert torch.equal(found, REWARDS)
    assert metrics == {}


def test_responses_lose_more_the_further_they_come_into_the_buffer() -> None:
    shaping = replace(NOTHING, longest=16, overlong_buffer=4, overlong_penalty=2.0)

    found, metrics = shaping.shaped(REWARDS, LENGTHS, CUT)

    assert found.tolist() == [1.0, -2.0, -0.5, 2.0]
    assert metrics == {"reward/overlong_fraction": 0.5}


@pytest.mark.parametrize(("penalty", "last"), [(0.25, 1.0), (0.0, 0.0), (-0.5, -0.5)])
def test_the_reward_of_a_cut_response_is_multiplied_or_replaced(penalty: float, last: float) -> None:
    found, _ = replace(NOTHING, truncation_penalty=penalty).shaped(REWARDS, LENGTHS, CUT)

    assert found.tolist() == [1.0, -2.0, 0.5, last]


def test_rewards_beyond_the_bounds_are_held_and_counted() -> None:
    found, metrics = replace(NOTHING, clip_low=-1.0, clip_high=1.0).shaped(REWARDS, LENGTHS, CUT)

    assert found.tolist() == [1.0, -1.0, 0.5, 1.0]
    assert metrics == {"reward/clipped_fraction": 0.5}
