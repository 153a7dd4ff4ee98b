"""Penalties of length and the KL controller against the functions of OpenRLHF and verl."""

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from jobs.engine.kl_controller import next_coefficient
from jobs.engine.rollouts.reward_shaping import Shaping
from tests.jobs.engine.oracles.peers import OPENRLHF, VERL, peer


def inputs() -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(11)
    lengths = torch.randint(1, 65, (200,), generator=generator).double()
    return torch.randn(200, generator=generator, dtype=torch.float64), lengths, lengths == 64


@pytest.mark.parametrize("truncation_penalty", [1.0, 0.25, 0.0, -0.5])
@pytest.mark.parametrize("buffer", [0, 16, 64])
def test_rewards_lose_for_length_what_they_lose_in_openrlhf(buffer: int, truncation_penalty: float) -> None:
    rewards, lengths, is_truncated = inputs()
    shaping = Shaping(
        longest=64,
        overlong_buffer=buffer,
        overlong_penalty=0.7,
        truncation_penalty=truncation_penalty,
        clip_low=-1e6,
        clip_high=1e6,
    )

    found, _ = shaping.shaped(rewards, lengths, is_truncated)

    penalties = peer(OPENRLHF, "openrlhf.trainer.ppo_utils.length_penalty")
    experience = SimpleNamespace(rewards=rewards.clone(), response_length=lengths, truncated=is_truncated)
    if buffer:
        penalties.apply_overlong_penalty([experience], 64, buffer, 0.7)
    penalties.apply_stop_properly_penalty([experience], truncation_penalty)
    assert torch.allclose(found, experience.rewards, atol=1e-6, rtol=0)


@pytest.mark.parametrize("kl", [0.0, 0.04, 0.05, 0.055, 1.0])
def test_the_kl_coefficient_moves_as_in_verl_and_openrlhf(kl: float) -> None:
    found = 0.01
    controllers = [
        peer(VERL, "verl.trainer.ppo.core_algos").AdaptiveKLController(0.01, 0.05, 1000),
        peer(OPENRLHF, "openrlhf.trainer.ppo_utils.kl_controller").AdaptiveKLController(0.01, 0.05, 1000),
    ]
    for _ in range(3):
        found = next_coefficient(found, kl=kl, target=0.05, horizon=1000, num_samples=256)
        for controller in controllers:
            controller.update(kl, 256)

    assert [controller.value for controller in controllers] == pytest.approx([found, found], abs=1e-12)
