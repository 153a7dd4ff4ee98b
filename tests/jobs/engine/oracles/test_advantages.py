"""Advantages of each algorithm against the functions of verl and OpenRLHF, in float64 to 1e-6.

Known differences: OpenRLHF divides by a group's deviation + 1e-9 where verl and ours add 1e-6, and whitens with the
variance of N where verl and ours take N - 1; it takes the KL off the reward of single tokens after the baseline in
every algorithm, verl and ours take its sum off before it where the baseline is a group's.
"""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from jobs.engine.advantages import at_last_token
from jobs.engine.algorithm import load_algorithm
from jobs.engine.batch import Batch
from jobs.engine.policy_gradient import kl_costs
from tests.jobs.engine.oracles.peers import OPENRLHF, VERL, peer
from tests.jobs.engine.policy_batches import spec_of

PROMPTS, SAMPLES, LENGTH = 3, 4, 7
VERL_ESTIMATORS = {
    "grpo": "grpo",
    "dapo": "grpo",
    "dr_grpo": "grpo",
    "gspo": "grpo",
    "cispo": "grpo",
    "rloo": "rloo",
    "reinforce_pp": "reinforce_plus_plus",
    "reinforce_pp_baseline": "reinforce_plus_plus_baseline",
}
OPENRLHF_ESTIMATORS = {
    "grpo": "group_norm",
    "dr_grpo": "dr_grpo",
    "rloo": "rloo",
    "reinforce_pp": "reinforce",
    "reinforce_pp_baseline": "reinforce_baseline",
}


@pytest.fixture
def batch() -> Batch:
    generator = torch.Generator().manual_seed(5)
    size = PROMPTS * SAMPLES
    lengths = torch.randint(2, LENGTH, (size,), generator=generator)
    mask = torch.arange(LENGTH).unsqueeze(0) <= lengths.unsqueeze(1)
    mask[:, 0] = False
    old = -torch.rand(size, LENGTH, generator=generator, dtype=torch.float64)
    return Batch(
        tokens_BL=torch.zeros((size, LENGTH), dtype=torch.long),
        mask_BL=mask,
        lengths_B=lengths + 1,
        rewards_B=torch.randn(size, generator=generator, dtype=torch.float64),
        old_logprobs_BL=old,
        reference_logprobs_BL=old - 0.2 * torch.randn(size, LENGTH, generator=generator, dtype=torch.float64),
    )


def ours(algorithm: str, batch: Batch, **knobs: Any) -> Tensor:
    estimate = load_algorithm(algorithm).advantages
    assert estimate is not None
    return estimate(batch, spec_of(algorithm, rollout__samples_per_prompt=SAMPLES, **knobs)).advantages_BL


def shaped(algorithm: str, batch: Batch, **knobs: Any) -> Tensor:
    """Return the rewards of single tokens as verl's trainer hands them to an estimator, less the KL of each."""
    assert batch.rewards_B is not None
    rewards = at_last_token(batch.rewards_B, batch.mask_BL)
    costs = kl_costs(batch, spec_of(algorithm, rollout__samples_per_prompt=SAMPLES, **knobs))
    return rewards if costs is None else rewards - costs


@pytest.mark.parametrize("algorithm", VERL_ESTIMATORS)
@pytest.mark.parametrize("coefficient", [0.0, 0.1])
def test_advantages_are_those_of_verl(algorithm: str, coefficient: float, batch: Batch) -> None:
    knobs = {
        "algorithm__kl_coefficient": coefficient,
        "algorithm__kl_in_loss": False,
        **({"algorithm__gamma": 0.9} if algorithm == "reinforce_pp" else {}),
    }

    found = ours(algorithm, batch, **knobs)

    estimator = peer(VERL, "verl.trainer.ppo.core_algos")
    all_options: dict[str, dict[str, Any]] = {
        "grpo": {"norm_adv_by_std_in_grpo": algorithm != "dr_grpo"},
        "reinforce_plus_plus": {"config": SimpleNamespace(gamma=0.9)},
    }
    options = all_options.get(VERL_ESTIMATORS[algorithm], {})
    if VERL_ESTIMATORS[algorithm] != "reinforce_plus_plus":
        options["index"] = np.arange(PROMPTS).repeat(SAMPLES)
    wanted, _ = getattr(estimator, f"compute_{VERL_ESTIMATORS[algorithm]}_outcome_advantage")(
        token_level_rewards=shaped(algorithm, batch, **knobs), response_mask=batch.mask_BL.double(), **options
    )
    assert wanted.abs().sum() > 0
    assert torch.allclose(found, wanted, atol=1e-6, rtol=0)


@pytest.mark.parametrize("algorithm", OPENRLHF_ESTIMATORS)
def test_advantages_are_those_of_openrlhf(algorithm: str, batch: Batch) -> None:
    """Without KL; whitened ones after its other variance is made up for."""
    assert batch.rewards_B is not None
    found = ours(algorithm, batch, algorithm__kl_coefficient=0.0)

    wanted = openrlhfs(OPENRLHF_ESTIMATORS[algorithm], batch, coefficient=0.0)

    number = int(batch.mask_BL.sum())
    is_whitened = algorithm.startswith("reinforce")
    factor = (number / (number - 1)) ** 0.5 if is_whitened else 1.0
    assert torch.allclose(found * factor, wanted, atol=1e-5 if algorithm == "grpo" or is_whitened else 1e-6, rtol=0)


def test_the_kl_of_single_tokens_is_taken_off_as_openrlhf_does(batch: Batch) -> None:
    """In REINFORCE++, without whitening's division: the returns of the tokens, less their mean."""
    knobs = {"algorithm__kl_coefficient": 0.1, "algorithm__gamma": 0.9, "algorithm__whiten_by_std": False}

    found = ours("reinforce_pp", batch, **knobs)

    wanted = openrlhfs("reinforce", batch, coefficient=0.1, gamma=0.9, no_std_norm=True)
    assert torch.allclose(found, wanted, atol=1e-6, rtol=0)


def openrlhfs(
    estimator: str, batch: Batch, *, coefficient: float, gamma: float = 1.0, no_std_norm: bool = False
) -> Tensor:
    """Return what OpenRLHF's experience maker makes of the batch."""
    assert batch.rewards_B is not None
    assert batch.old_logprobs_BL is not None
    assert batch.reference_logprobs_BL is not None
    methods = ("compute_advantages_and_returns", "get_cumulative_returns")
    maker: Any = peer(OPENRLHF, "openrlhf.trainer.ppo_utils.experience_maker").cut("RemoteExperienceMaker", *methods)()
    advantage = SimpleNamespace(estimator=estimator, gamma=gamma, lambd=1.0, no_std_norm=no_std_norm)
    maker.strategy = SimpleNamespace(
        args=SimpleNamespace(
            algo=SimpleNamespace(advantage=advantage),
            rollout=SimpleNamespace(n_samples_per_prompt=SAMPLES),
            reward=SimpleNamespace(clip_range=(-100.0, 100.0)),
        )
    )
    maker.advantage_estimator, maker.kl_ctl = estimator, SimpleNamespace(value=coefficient)
    experience = SimpleNamespace(
        rewards=batch.rewards_B.clone(),
        index=list(range(batch.num_sequences)),
        kl=batch.old_logprobs_BL - batch.reference_logprobs_BL,
        action_mask=batch.mask_BL,
        info={},
    )
    (found,) = maker.compute_advantages_and_returns([experience])
    return torch.where(batch.mask_BL, found.advantages.double(), 0.0)
