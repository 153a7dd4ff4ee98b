"""PPO's formulas against verl's and OpenRLHF's own, in float64."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from jobs.engine.advantages import whiten
from jobs.engine.algorithm import Counts, PolicyOutputs, load_algorithm
from jobs.engine.batch import Batch
from jobs.engine.value_estimates import clipped_value_loss, generalized_advantages
from tests.jobs.engine.oracles.peers import OPENRLHF, VERL, peer
from tests.jobs.engine.policy_batches import spec_of

CLIP = 0.2
KNOBS: dict[str, Any] = {"algorithm__kl_coefficient": 0.0, "algorithm__dual_clip": 3.0}


def drawn(seed: int, *, has_gaps: bool = False) -> dict[str, Tensor]:
    """Return random values, returns, rewards and log-probabilities of 6 completions, in float64, and what counts."""
    random = torch.Generator().manual_seed(seed)
    shape = (6, 12)
    lengths_B1 = torch.randint(3, 13, (6, 1), generator=random)
    mask_BL = torch.arange(12).expand(shape) < lengths_B1
    mask_BL[:, 0] = False
    if has_gaps:
        mask_BL[:, 4:6] = False
    names = ("values", "old_values", "returns", "rewards", "logprobs", "old_logprobs", "advantages")
    found = {name: torch.randn(shape, generator=random, dtype=torch.float64) for name in names}
    return found | {"mask": mask_BL}


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("has_gaps", [False, True])
@pytest.mark.parametrize(("gamma", "gae_lambda"), [(1.0, 1.0), (0.99, 0.95), (0.9, 0.0)])
def test_advantages_and_returns_are_verls(seed: int, has_gaps: bool, gamma: float, gae_lambda: float) -> None:
    """Those of counted tokens. Outside of them verl's returns hold its values, ours 0."""
    given = drawn(seed, has_gaps=has_gaps)
    values, rewards, mask = given["values"], given["rewards"] * given["mask"], given["mask"]
    core = peer(VERL, "verl.trainer.ppo.core_algos")
    theirs, their_returns = core.compute_gae_advantage_return(rewards, values, mask.double(), gamma, gae_lambda)

    found, returns = generalized_advantages(rewards, values, mask, gamma=gamma, gae_lambda=gae_lambda)

    assert torch.allclose(whiten(found, mask, by_std=True)[mask], theirs[mask], atol=1e-6)
    assert torch.allclose(returns[mask], their_returns[mask], atol=1e-6)


@pytest.mark.parametrize(("gamma", "gae_lambda"), [(1.0, 1.0), (0.99, 0.95), (0.9, 0.0)])
def test_advantages_and_returns_are_openrlhfs(gamma: float, gae_lambda: float) -> None:
    """Where no token in the middle is left out, which OpenRLHF counts as one of value 0."""
    given = drawn(3)
    maker = peer(OPENRLHF, "openrlhf.trainer.ppo_utils.experience_maker").cut(
        "RemoteExperienceMaker", "get_advantages_and_returns"
    )
    values, rewards, mask = given["values"], given["rewards"], given["mask"]
    theirs, their_returns = maker.get_advantages_and_returns(
        SimpleNamespace(), values, rewards, mask.double(), gamma, gae_lambda
    )

    found, returns = generalized_advantages(rewards * mask, values, mask, gamma=gamma, gae_lambda=gae_lambda)

    assert torch.allclose(found[mask], theirs[mask], atol=1e-6)
    assert torch.allclose(returns[mask], their_returns[mask], atol=1e-6)


@pytest.mark.parametrize("clip", [0.1, 0.5, 100.0])
def test_the_value_loss_is_verls_and_openrlhfs(clip: float) -> None:
    given = drawn(4)
    mask = given["mask"]
    core = peer(VERL, "verl.trainer.ppo.core_algos")
    verls, fraction = core.compute_value_loss(
        given["values"], given["returns"], given["old_values"], mask.double(), clip
    )
    theirs = peer(OPENRLHF, "openrlhf.models.loss").ValueLoss(clip)(
        given["values"], given["old_values"], given["returns"], mask.double()
    )

    found = clipped_value_loss(given["values"], given["old_values"], given["returns"], clip=clip)

    loss = float(found.loss_BL[mask].mean())
    assert loss == pytest.approx(float(verls), abs=1e-6)
    assert loss == pytest.approx(float(theirs), abs=1e-6)
    assert float(found.is_cut_BL[mask].double().mean()) == pytest.approx(float(fraction), abs=1e-6)


def test_the_losses_of_the_algorithm_are_verls() -> None:
    """As the trainer calls them: policy with dual clip, values, each over the tokens that count."""
    given = drawn(5)
    mask = given["mask"]
    batch = Batch(
        tokens_BL=torch.zeros(mask.shape, dtype=torch.long),
        mask_BL=mask,
        lengths_B=mask.sum(1) + 1,
        old_logprobs_BL=given["old_logprobs"],
        advantages_BL=given["advantages"],
        values_BL=given["old_values"],
        returns_BL=given["returns"],
    )
    counts = Counts(num_tokens=int(mask.sum()), num_sequences=6)
    core = peer(VERL, "verl.trainer.ppo.core_algos")
    verls, *_ = core.compute_policy_loss(
        given["old_logprobs"], given["logprobs"], given["advantages"], mask.double(), CLIP, CLIP, CLIP, 3.0
    )
    their_values, _ = core.compute_value_loss(
        given["values"], given["returns"], given["old_values"], mask.double(), 0.3
    )
    plugin, spec = load_algorithm("ppo"), spec_of("ppo", algorithm__value_clip=0.3, **KNOBS)
    outputs = PolicyOutputs(logprobs_BL=given["logprobs"], entropies_BL=torch.zeros_like(given["logprobs"]))

    policy_loss, _ = plugin.policy_loss(batch, outputs, spec, counts)
    assert plugin.value_loss is not None
    value_loss, _ = plugin.value_loss(batch, given["values"], spec, counts)

    assert float(policy_loss) == pytest.approx(float(verls), abs=1e-6)
    assert float(value_loss) == pytest.approx(float(their_values), abs=1e-6)


def test_the_reward_of_each_token_is_openrlhfs() -> None:
    """The KL off each token's reward, the score at the last one."""
    given = drawn(6)
    mask = given["mask"]
    lengths = mask.sum(1)
    scores = torch.linspace(-1, 1, 6, dtype=torch.float64)
    kl = (given["old_logprobs"] - given["logprobs"]) * mask
    theirs = peer(OPENRLHF, "openrlhf.models.utils").compute_reward(scores, 0.1, kl, action_mask=mask.long())
    batch = Batch(
        tokens_BL=torch.zeros(mask.shape, dtype=torch.long),
        mask_BL=mask,
        lengths_B=lengths + 1,
        rewards_B=scores,
        old_logprobs_BL=given["old_logprobs"],
        reference_logprobs_BL=given["logprobs"],
        values_BL=torch.zeros_like(given["values"]),
    )
    spec = spec_of("ppo", algorithm__kl_coefficient=0.1, algorithm__whiten_by_std=False)
    estimate = load_algorithm("ppo").advantages
    assert estimate is not None

    found = estimate(batch, spec)

    to_come = theirs.flip(1).cumsum(1).flip(1)
    assert found.returns_BL is not None
    assert torch.allclose(found.returns_BL[mask], to_come[mask], atol=1e-6)


def test_a_kl_in_the_loss_leaves_the_reward_alone() -> None:
    given = drawn(7)
    batch = Batch(
        tokens_BL=torch.zeros(given["mask"].shape, dtype=torch.long),
        mask_BL=given["mask"],
        lengths_B=given["mask"].sum(1) + 1,
        rewards_B=torch.ones(6, dtype=torch.float64),
        reference_logprobs_BL=given["logprobs"],
        values_BL=torch.zeros_like(given["values"]),
    )
    estimate = load_algorithm("ppo").advantages
    assert estimate is not None

    found = estimate(batch, spec_of("ppo", algorithm__kl_in_loss=True))
    free = estimate(replace(batch, reference_logprobs_BL=None), spec_of("ppo"))

    assert found.returns_BL is not None
    assert free.returns_BL is not None
    assert torch.equal(found.returns_BL, free.returns_BL)
    assert found.returns_BL[given["mask"]].unique().tolist() == [1.0]
