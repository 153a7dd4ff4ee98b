"""PPO: advantages by a learned value of each token, a clipped ratio, and a clipped loss of the values.

Source: PPO, arXiv 1707.06347; generalized advantage estimation, arXiv 1506.02438; the KL to the reference off the
reward of each token: Ziegler et al., arXiv 1909.08593, section 2.
"""

from torch import Tensor

from jobs.catalog.spec.runspec import RunSpec
from jobs.engine.advantages import at_last_token, whiten
from jobs.engine.algorithm import Algorithm, Counts, Estimates, Loss
from jobs.engine.batch import Batch
from jobs.engine.policy_gradient import clipped_loss, kl_costs, needs_old_logprobs, token_mean
from jobs.engine.value_estimates import clipped_value_loss, generalized_advantages


def token_rewards(batch: Batch, spec: RunSpec) -> Tensor:
    """Return the reward of each token: the completion's at its last one, less the weighed KL to the reference at each,
    if that is not in the loss: [B, L].
    """
    assert batch.rewards_B is not None
    rewards_BL = at_last_token(batch.rewards_B, batch.mask_BL)
    costs_BL = kl_costs(batch, spec)
    return rewards_BL if costs_BL is None else rewards_BL - costs_BL


def advantages(batch: Batch, spec: RunSpec) -> Estimates:
    """Return generalized advantages, whitened over the batch, and returns, which are not."""
    assert batch.values_BL is not None
    advantages_BL, returns_BL = generalized_advantages(
        token_rewards(batch, spec),
        batch.values_BL,
        batch.mask_BL,
        gamma=spec.float_knob("algorithm.gamma"),
        gae_lambda=spec.float_knob("algorithm.gae_lambda"),
    )
    by_std = bool(spec.knob("algorithm.whiten_by_std"))
    return Estimates(advantages_BL=whiten(advantages_BL, batch.mask_BL, by_std=by_std), returns_BL=returns_BL)


def value_loss(batch: Batch, values_BL: Tensor, spec: RunSpec, counts: Counts) -> Loss:
    """Return the shares of the mean clipped loss over all counted tokens, and of value/clip_fraction."""
    assert batch.values_BL is not None
    assert batch.returns_BL is not None
    clip = spec.float_knob("algorithm.value_clip")
    clipped = clipped_value_loss(values_BL, batch.values_BL, batch.returns_BL, clip=clip)
    loss = token_mean(clipped.loss_BL, batch, counts)
    cut = token_mean(clipped.is_cut_BL.to(values_BL.dtype), batch, counts)
    return loss, {"loss/value": loss.detach(), "value/clip_fraction": cut}


PLUGIN = Algorithm(
    advantages=advantages,
    needs_old_logprobs=needs_old_logprobs,
    policy_loss=clipped_loss,
    value_loss=value_loss,
)
