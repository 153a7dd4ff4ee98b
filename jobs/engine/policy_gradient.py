"""What algorithms with rollouts share: the policy loss around a surrogate, advantages of groups, the KL."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from jobs.catalog.spec.derived import DERIVED
from jobs.catalog.spec.runspec import RunSpec
from jobs.engine.advantages import group_advantages, over_tokens
from jobs.engine.algorithm import Counts, Estimates, Loss, PolicyOutputs
from jobs.engine.batch import Batch
from jobs.engine.losses import ClippedLoss, aggregate, clipped_policy_loss, kl_estimate, kl_loss

Surrogate = Callable[[Tensor, Tensor, Batch, RunSpec], ClippedLoss]
"""What each token costs: of the log-probabilities of now and the old ones, [B, L] each."""


def needs_old_logprobs(spec: RunSpec) -> bool:
    """Return whether a pass of the policy over the rollout has to come before its update."""
    return bool(DERIVED["batch.has_old_pass"](spec))


def group_estimates(batch: Batch, spec: RunSpec) -> Estimates:
    """Return the group-relative advantage of each completion, at each of its tokens."""
    advantages_B = group_advantages(
        rewards_less_kl(batch, spec),
        group_size=spec.int_knob("rollout.samples_per_prompt"),
        normalize_by_std=bool(spec.knob("algorithm.normalize_by_std")),
    )
    return Estimates(advantages_BL=over_tokens(advantages_B, batch.mask_BL))


def surrogate_loss(
    batch: Batch, outputs: PolicyOutputs, spec: RunSpec, counts: Counts, *, surrogate: Surrogate
) -> Loss:
    """Return the shares of the surrogate's loss, plus kl_coefficient * KL to the reference if that is in the loss, less
    entropy_coefficient * entropy.

    Without old log-probabilities in the batch those of `outputs` are the old ones: each ratio is 1, its gradient is
    there. Metrics: policy/entropy, clip_fraction, clip_fraction_lower with a dual clip, ratio_mean where it can differ
    from 1; kl/reference where there is a reference; loss/policy.
    """
    assert batch.advantages_BL is not None
    is_first = batch.old_logprobs_BL is None
    old_BL = outputs.logprobs_BL.detach() if batch.old_logprobs_BL is None else batch.old_logprobs_BL
    clipped = surrogate(outputs.logprobs_BL, old_BL, batch, spec)

    def mean(values_BL: Tensor) -> Tensor:
        return token_mean(values_BL.detach().float(), batch, counts)

    shares = {"policy/entropy": mean(outputs.entropies_BL), "policy/clip_fraction": mean(clipped.is_cut_BL)}
    if clipped.is_bounded_BL is not None:
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
            loss_BL = loss_BL + kl_weight(batch, spec) * kl_BL
        shares["kl/reference"] = mean(kl_BL)
    if bonus := entropy_bonus(spec):
        loss_BL = loss_BL - bonus * outputs.entropies_BL
    loss = aggregate(
        loss_BL,
        batch.mask_BL,
        how=spec.knob("algorithm.loss_aggregation"),
        num_tokens=counts.num_tokens,
        num_sequences=counts.num_sequences,
        scale=loss_scale(spec),
    )
    return loss, shares | {"loss/policy": loss.detach()}


def clipped_tokens(logprobs_BL: Tensor, old_logprobs_BL: Tensor, batch: Batch, spec: RunSpec) -> ClippedLoss:
    """Return the clipped loss of each token's own ratio, with the run's bounds."""
    assert batch.advantages_BL is not None
    return clipped_policy_loss(
        logprobs_BL,
        old_logprobs_BL,
        batch.advantages_BL,
        clip_low=spec.float_knob("algorithm.clip_ratio_low"),
        clip_high=spec.float_knob("algorithm.clip_ratio_high"),
        dual_clip=spec.knob("algorithm.dual_clip"),
    )


clipped_loss = partial(surrogate_loss, surrogate=clipped_tokens)


def entropy_bonus(spec: RunSpec) -> float:
    """Return the weight of the entropies in the loss; 0 where they are only shown."""
    return spec.float_knob("algorithm.entropy_coefficient")


def loss_scale(spec: RunSpec) -> float:
    """Return by how many tokens a scaled sum is divided: as long as a response can be, unless the run says otherwise.

    A constant: the width of a batch would bring back the bias towards length that the scaled sum is there to remove.
    """
    return spec.float_knob("algorithm.loss_scale") or float(spec.int_knob("rollout.max_new_tokens"))


def kl_weight(batch: Batch, spec: RunSpec) -> Tensor | float:
    """Return the weight of the KL: that of the batch, [B, 1], where a controller moves it, else the run's."""
    if batch.kl_coefficients_B is not None:
        return batch.kl_coefficients_B.unsqueeze(1)
    return spec.float_knob("algorithm.kl_coefficient")


def kl_costs(batch: Batch, spec: RunSpec) -> Tensor | None:
    """Return what each counted token's KL to the reference takes off the reward: [B, L]; None where nothing does."""
    if batch.reference_logprobs_BL is None or spec.knob("algorithm.kl_in_loss"):
        return None
    assert batch.old_logprobs_BL is not None
    estimator = spec.knob("algorithm.kl_estimator")
    kl_BL = kl_estimate(batch.old_logprobs_BL, batch.reference_logprobs_BL, estimator=estimator)
    return torch.where(batch.mask_BL, kl_weight(batch, spec) * kl_BL, 0.0)


def rewards_less_kl(batch: Batch, spec: RunSpec) -> Tensor:
    """Return each completion's reward, less kl_coefficient * its KL to the reference if that is not in the loss: [B].

    The KL is the sum over its counted tokens of the estimate for the policy that drew them.
    Source: RLOO, arXiv 2402.14740, equation 1.
    """
    assert batch.rewards_B is not None
    costs_BL = kl_costs(batch, spec)
    return batch.rewards_B if costs_BL is None else batch.rewards_B - costs_BL.sum(dim=1)


def token_mean(values_BL: Tensor, batch: Batch, counts: Counts) -> Tensor:
    """Return a micro-batch's share of the mean over all counted tokens."""
    return aggregate(
        values_BL,
        batch.mask_BL,
        how="token_mean",
        num_tokens=counts.num_tokens,
        num_sequences=counts.num_sequences,
    )
