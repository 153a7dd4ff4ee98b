"""What algorithms with rollouts share: the clipped policy loss, and the KL to the reference in loss or reward."""

import torch
from torch import Tensor

from jobs.catalog.spec.derived import DERIVED
from jobs.catalog.spec.runspec import RunSpec
from jobs.engine.algorithm import Counts, Loss, PolicyOutputs
from jobs.engine.batch import Batch
from jobs.engine.losses import aggregate, clipped_policy_loss, kl_estimate, kl_loss


def needs_old_logprobs(spec: RunSpec) -> bool:
    """Return whether a pass of the policy over the rollout has to come before its update."""
    return bool(DERIVED["batch.has_old_pass"](spec))


def clipped_loss(batch: Batch, outputs: PolicyOutputs, spec: RunSpec, counts: Counts) -> Loss:
    """Return the shares of the clipped policy loss, plus kl_coefficient * KL to the reference if it is in the loss.

    Without old log-probabilities in the batch those of `outputs` are the old ones: each ratio is 1, its gradient is
    there. Metrics: policy/entropy, clip_fraction, clip_fraction_lower with a dual clip, ratio_mean where it can differ
    from 1; kl/reference where there is a reference; loss/policy.
    """
    assert batch.advantages_BL is not None
    is_first = batch.old_logprobs_BL is None
    old_BL = outputs.logprobs_BL.detach() if batch.old_logprobs_BL is None else batch.old_logprobs_BL
    dual_clip = spec.knob("algorithm.dual_clip")
    clipped = clipped_policy_loss(
        outputs.logprobs_BL,
        old_BL,
        batch.advantages_BL,
        clip_low=spec.float_knob("algorithm.clip_ratio_low"),
        clip_high=spec.float_knob("algorithm.clip_ratio_high"),
        dual_clip=dual_clip,
    )

    def mean(values_BL: Tensor) -> Tensor:
        return token_mean(values_BL.detach().float(), batch, counts)

    shares = {"policy/entropy": mean(outputs.entropies_BL), "policy/clip_fraction": mean(clipped.is_cut_BL)}
    if dual_clip is not None:
        shares["policy/clip_fraction_lower"] = mean(clipped.is_bounded_BL)
    if not is_first:
        shares["policy/ratio_mean"] = mean(clipped.ratio_BL)
    loss_BL = clipped.loss_BL
    if batch.reference_logprobs_BL is not None:
        kl_BL = kl_loss(
            outputs.logprobs_BL,
            batch.reference_logprobs_BL,
            estimator=spec.knob("algorithm.kl_estimator"),
            ratio_BL=clipped.ratio_BL if spec.knob("algorithm.kl_unbiased_gradient") else None,
        )
        if spec.knob("algorithm.kl_in_loss"):
            loss_BL = loss_BL + spec.float_knob("algorithm.kl_coefficient") * kl_BL
        shares["kl/reference"] = mean(kl_BL)
    loss = aggregate(
        loss_BL,
        batch.mask_BL,
        how=spec.knob("algorithm.loss_aggregation"),
        num_tokens=counts.num_tokens,
        num_sequences=counts.num_sequences,
    )
    return loss, shares | {"loss/policy": loss.detach()}


def rewards_less_kl(batch: Batch, spec: RunSpec) -> Tensor:
    """Return each completion's reward, less kl_coefficient * its KL to the reference if that is not in the loss: [B].

    The KL is the sum over its counted tokens of the estimate for the policy that drew them.
    Source: RLOO, arXiv 2402.14740, equation 1.
    """
    assert batch.rewards_B is not None
    if batch.reference_logprobs_BL is None or spec.knob("algorithm.kl_in_loss"):
        return batch.rewards_B
    assert batch.old_logprobs_BL is not None
    estimator = spec.knob("algorithm.kl_estimator")
    kl_BL = kl_estimate(batch.old_logprobs_BL, batch.reference_logprobs_BL, estimator=estimator)
    kl_B = torch.where(batch.mask_BL, kl_BL, 0.0).sum(dim=1)
    return batch.rewards_B - spec.float_knob("algorithm.kl_coefficient") * kl_B


def token_mean(values_BL: Tensor, batch: Batch, counts: Counts) -> Tensor:
    """Return a micro-batch's share of the mean over all counted tokens."""
    return aggregate(
        values_BL,
        batch.mask_BL,
        how="token_mean",
        num_tokens=counts.num_tokens,
        num_sequences=counts.num_sequences,
    )
