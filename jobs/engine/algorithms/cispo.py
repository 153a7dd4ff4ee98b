"""CISPO: GRPO whose clipped ratio is a weight without a gradient, so that no token stops to learn.

Source: MiniMax-M1, arXiv 2506.13585, section 3.1.
"""

from functools import partial

from torch import Tensor

from jobs.catalog.spec.runspec import RunSpec
from jobs.engine.algorithm import Algorithm
from jobs.engine.batch import Batch
from jobs.engine.losses import ClippedLoss, weighted_policy_loss
from jobs.engine.policy_gradient import group_estimates, needs_old_logprobs, surrogate_loss


def weighted_tokens(logprobs_BL: Tensor, old_logprobs_BL: Tensor, batch: Batch, spec: RunSpec) -> ClippedLoss:
    """Return the loss of each token, weighted by its clipped ratio."""
    assert batch.advantages_BL is not None
    return weighted_policy_loss(
        logprobs_BL,
        old_logprobs_BL,
        batch.advantages_BL,
        clip_low=spec.float_knob("algorithm.clip_ratio_low"),
        clip_high=spec.float_knob("algorithm.clip_ratio_high"),
    )


PLUGIN = Algorithm(
    advantages=group_estimates,
    needs_old_logprobs=needs_old_logprobs,
    policy_loss=partial(surrogate_loss, surrogate=weighted_tokens),
)
