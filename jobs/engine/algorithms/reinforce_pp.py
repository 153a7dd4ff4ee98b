"""REINFORCE++: the discounted return of each token, whitened over the whole batch; no groups, no critic.

The KL to the reference is taken off the reward of each token. Source: REINFORCE++, arXiv 2501.03262.
"""

from jobs.catalog.spec.runspec import RunSpec
from jobs.engine.advantages import at_last_token, discounted_returns, whiten
from jobs.engine.algorithm import Algorithm, Estimates
from jobs.engine.batch import Batch
from jobs.engine.policy_gradient import clipped_loss, kl_costs, needs_old_logprobs


def advantages(batch: Batch, spec: RunSpec) -> Estimates:
    """Return the whitened return of each token: of its own KL and those behind it, and of the completion's reward."""
    assert batch.rewards_B is not None
    rewards_BL = at_last_token(batch.rewards_B, batch.mask_BL)
    costs_BL = kl_costs(batch, spec)
    returns_BL = discounted_returns(
        rewards_BL if costs_BL is None else rewards_BL - costs_BL,
        batch.mask_BL,
        gamma=spec.float_knob("algorithm.gamma"),
    )
    by_std = bool(spec.knob("algorithm.whiten_by_std"))
    return Estimates(advantages_BL=whiten(returns_BL, batch.mask_BL, by_std=by_std))


PLUGIN = Algorithm(advantages=advantages, needs_old_logprobs=needs_old_logprobs, policy_loss=clipped_loss)
