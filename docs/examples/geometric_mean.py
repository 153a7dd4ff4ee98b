"""An algorithm of one's own for Pitwall's built-in trainer: GRPO by geometric means (GMPO, arXiv 2507.20673).

Paste it into the knob *Your own formulas* of a run that trains GRPO. The ratios of a response's tokens, each clipped in
logarithms and on the side that its advantage pulls to, become one by their geometric mean, so that no single token
outweighs a response. GSPO clips that mean as a whole instead. Average the loss by sequence_mean, as the paper does.
"""

from functools import partial

import torch
from torch import Tensor

from jobs.catalog.spec.runspec import RunSpec
from jobs.engine.algorithm import Algorithm
from jobs.engine.batch import Batch
from jobs.engine.losses import ClippedLoss
from jobs.engine.policy_gradient import group_estimates, needs_old_logprobs, surrogate_loss

BASE = "grpo"
"""The run's algorithm: its families, knobs, roles and plan are those of this one. A family is allowed, too."""

CLIP = 0.4
"""Of a token's log-ratio, up and down: section 4 of the paper."""


def geometric_mean(logprobs_BL: Tensor, old_logprobs_BL: Tensor, batch: Batch, _: RunSpec) -> ClippedLoss:
    """Return at each token -A times the geometric mean of its response's clipped ratios."""
    assert batch.advantages_BL is not None
    logs_BL = torch.where(batch.mask_BL, logprobs_BL - old_logprobs_BL, 0.0)
    held_BL = logs_BL.clamp(-CLIP, CLIP)
    sign_BL = batch.advantages_BL.sign()
    kept_BL = sign_BL * torch.minimum(sign_BL * logs_BL, sign_BL * held_BL)
    mean_B = kept_BL.sum(dim=1) / batch.mask_BL.sum(dim=1).clamp(min=1)
    ratio_BL = mean_B.exp().unsqueeze(1).expand_as(logs_BL)
    is_cut_BL = kept_BL != logs_BL
    return ClippedLoss(
        loss_BL=-batch.advantages_BL * ratio_BL, is_cut_BL=is_cut_BL, is_bounded_BL=None, ratio_BL=ratio_BL
    )


PLUGIN = Algorithm(
    advantages=group_estimates,
    needs_old_logprobs=needs_old_logprobs,
    policy_loss=partial(surrogate_loss, surrogate=geometric_mean),
)
