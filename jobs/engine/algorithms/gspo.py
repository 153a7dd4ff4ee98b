"""GSPO: GRPO with one ratio for a whole response, clipped as one.

The ratio is a geometric mean, so it stays far closer to 1 than those of tokens, and its clip range is a thousand times
narrower. Source: Group sequence policy optimization, arXiv 2507.18071.
"""

from functools import partial

from torch import Tensor

from jobs.catalog.spec.runspec import RunSpec
from jobs.engine.algorithm import Algorithm
from jobs.engine.batch import Batch
from jobs.engine.losses import ClippedLoss, clipped_policy_loss, sequence_ratio
from jobs.engine.policy_gradient import group_estimates, needs_old_logprobs, surrogate_loss


def clipped_sequences(logprobs_BL: Tensor, old_logprobs_BL: Tensor, batch: Batch, spec: RunSpec) -> ClippedLoss:
    """Return the clipped loss of each token, with the ratio of its sequence."""
    assert batch.advantages_BL is not None
    return clipped_policy_loss(
        logprobs_BL,
        old_logprobs_BL,
        batch.advantages_BL,
        clip_low=spec.float_knob("algorithm.clip_ratio_low"),
        clip_high=spec.float_knob("algorithm.clip_ratio_high"),
        ratio_BL=sequence_ratio(logprobs_BL, old_logprobs_BL, batch.mask_BL),
    )


PLUGIN = Algorithm(
    advantages=group_estimates,
    needs_old_logprobs=needs_old_logprobs,
    policy_loss=partial(surrogate_loss, surrogate=clipped_sequences),
)
