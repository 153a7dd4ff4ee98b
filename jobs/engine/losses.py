"""Losses: pure functions on tensors.

Shapes: B sequences, L positions, V vocabulary. A `_BL` tensor of log-probabilities holds at position l that of token l
given the tokens before it; `mask_BL` is true where a token counts. Sums are divided by the counts of the whole batch,
over all micro-batches and ranks, so that parts add up to the whole.
"""

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

KlEstimator = Literal["k1", "k2", "k3"]
Aggregation = Literal["token_mean", "sequence_mean", "token_sum", "sequence_sum", "sequence_sum_scaled"]

LARGEST_LOG_RATIO = 20.0
"""Log-ratios beyond it, in nats, count as this much: e^20 is 4.9e8, e^60 no longer a gradient that a step survives."""

LARGEST_K3 = 10.0
"""The most that k3 says of one token: where the policy has all but given up a token, exp(-r) is no estimate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClippedLoss:
    """The clipped loss of each token: [B, L] each.

    `is_cut_BL`: the clip of the ratio took the gradient away, or where it is a weight, held it. `is_bounded_BL`: the
    dual clip did; None without one.
    """

    loss_BL: Tensor
    is_cut_BL: Tensor
    is_bounded_BL: Tensor | None
    ratio_BL: Tensor


def chosen_scores(
    logits_NV: Tensor, tokens_N: Tensor, *, temperature: float = 1.0, with_entropy_gradient: bool = False
) -> tuple[Tensor, Tensor]:
    """Return of each token its log-probability under softmax(logits / temperature), and that distribution's entropy.

    In nats, float32 [N] each; gradients flow through the log-probabilities, and through the entropies only
    `with_entropy_gradient`, which keeps softmax(z) for the backward pass. H = logsumexp(z) - sum(softmax(z) z).
    """
    logits_NV = logits_NV.float() if temperature == 1.0 else logits_NV.float() / temperature
    log_total_N = logits_NV.logsumexp(dim=-1)
    logprobs_N = logits_NV.gather(-1, tokens_N.unsqueeze(-1)).squeeze(-1) - log_total_N
    with torch.set_grad_enabled(with_entropy_gradient and torch.is_grad_enabled()):
        shares_NV = (logits_NV - log_total_N.unsqueeze(-1)).exp()
        entropies_N = log_total_N - (shares_NV * logits_NV).sum(dim=-1)
    return logprobs_N, entropies_N


def token_scores(
    logits_BLV: Tensor, tokens_BL: Tensor, *, temperature: float = 1.0, with_entropy_gradient: bool = False
) -> tuple[Tensor, Tensor]:
    """Return log-probabilities and entropies as `chosen_scores` does: [B, L] each, position 0 is 0.

    logits_BLV[:, l] predicts token l + 1.
    """
    scores = chosen_scores(
        logits_BLV[:, :-1].flatten(0, 1),
        tokens_BL[:, 1:].flatten(),
        temperature=temperature,
        with_entropy_gradient=with_entropy_gradient,
    )
    shape = (tokens_BL.shape[0], tokens_BL.shape[1] - 1)
    logprobs_BL, entropies_BL = (torch.nn.functional.pad(score.view(shape), (1, 0)) for score in scores)
    return logprobs_BL, entropies_BL


def importance_ratio(logprobs_BL: Tensor, old_logprobs_BL: Tensor) -> Tensor:
    """Return exp(logprob - old logprob), the log-ratio held to +-LARGEST_LOG_RATIO: [B, L], always finite."""
    return (logprobs_BL - old_logprobs_BL).clamp(-LARGEST_LOG_RATIO, LARGEST_LOG_RATIO).exp()


def sequence_ratio(logprobs_BL: Tensor, old_logprobs_BL: Tensor, mask_BL: Tensor) -> Tensor:
    """Return at each token the ratio of its whole sequence: the geometric mean of its counted tokens' ratios, [B, L].

    The gradient of each token is that of its own log-probability times this ratio, so that advantages may differ within
    a sequence; averaged over its tokens it is the gradient of the sequence's ratio.
    Source: GSPO (arXiv 2507.18071) equations 7 and 14 (GSPO-token).
    """
    counted_BL = torch.where(mask_BL, (logprobs_BL - old_logprobs_BL).detach(), 0.0)
    mean_B = counted_BL.sum(dim=1) / mask_BL.sum(dim=1).clamp(min=1)
    held_B = mean_B.clamp(-LARGEST_LOG_RATIO, LARGEST_LOG_RATIO)
    return (held_B.unsqueeze(1) + logprobs_BL - logprobs_BL.detach()).exp()


def weighted_policy_loss(
    logprobs_BL: Tensor, old_logprobs_BL: Tensor, advantages_BL: Tensor, *, clip_low: float, clip_high: float
) -> ClippedLoss:
    """Return CISPO's loss of each token: -w A logprob, with the clipped ratio w as a weight that has no gradient.

    w = clip(exp(logprob - old logprob), 1 - clip_low, 1 + clip_high): a token beyond the bounds still learns, with the
    weight of the bound. Source: MiniMax-M1 (arXiv 2506.13585) equations 4 and 5.
    """
    ratio_BL = importance_ratio(logprobs_BL, old_logprobs_BL).detach()
    weight_BL = ratio_BL.clamp(1 - clip_low, 1 + clip_high)
    loss_BL = -weight_BL * advantages_BL * logprobs_BL
    return ClippedLoss(loss_BL=loss_BL, is_cut_BL=weight_BL != ratio_BL, is_bounded_BL=None, ratio_BL=ratio_BL)


def clipped_policy_loss(
    logprobs_BL: Tensor,
    old_logprobs_BL: Tensor,
    advantages_BL: Tensor,
    *,
    clip_low: float,
    clip_high: float,
    dual_clip: float | None = None,
    ratio_BL: Tensor | None = None,
) -> ClippedLoss:
    """Return the clipped loss of each token; `ratio_BL` stands in for the tokens' own ratios.

    loss = -min(ratio A, clip(ratio, 1 - clip_low, 1 + clip_high) A) with ratio = exp(logprob - old logprob). With
    `dual_clip` c and A < 0 it is at most -c A, so that a token whose ratio exploded does not outweigh all others.
    Source: PPO (arXiv 1707.06347) equation 7; separate bounds: DAPO (arXiv 2503.14476) section 3.1; dual clip: Ye et
    al. (arXiv 1912.09729) equation 5.
    """
    ratio_BL = importance_ratio(logprobs_BL, old_logprobs_BL) if ratio_BL is None else ratio_BL
    free_BL = -advantages_BL * ratio_BL
    held_BL = -advantages_BL * ratio_BL.clamp(1 - clip_low, 1 + clip_high)
    loss_BL = torch.maximum(free_BL, held_BL)
    is_bounded_BL = None
    if dual_clip is not None:
        bound_BL = -advantages_BL * dual_clip
        is_bounded_BL = (advantages_BL < 0) & (loss_BL > bound_BL)
        loss_BL = torch.where(is_bounded_BL, bound_BL, loss_BL)
    return ClippedLoss(loss_BL=loss_BL, is_cut_BL=held_BL > free_BL, is_bounded_BL=is_bounded_BL, ratio_BL=ratio_BL)


def kl_estimate(logprobs_BL: Tensor, reference_logprobs_BL: Tensor, *, estimator: KlEstimator) -> Tensor:
    """Return the estimate per token of KL(policy || reference) from tokens sampled from the policy: [B, L], nats.

    With r = log policy - log reference, held to +-LARGEST_LOG_RATIO: k1 = r, k2 = r^2 / 2, k3 = exp(-r) - 1 + r, at
    most LARGEST_K3. As a loss only k2 has the gradient of that divergence (see `kl_loss`): the mean gradient of k1 is
    0, that of k3 belongs to KL(reference || policy).
    Raises: ValueError for another name. Source: Schulman, Approximating KL divergence (2020).
    """
    r_BL = (logprobs_BL - reference_logprobs_BL).clamp(-LARGEST_LOG_RATIO, LARGEST_LOG_RATIO)
    if estimator == "k1":
        return r_BL
    if estimator == "k2":
        return r_BL.square() / 2
    if estimator == "k3":
        return (torch.exp(-r_BL) - 1 + r_BL).clamp(max=LARGEST_K3)
    raise ValueError(f"There is no KL estimator {estimator!r}. Use k1, k2 or k3.")


def kl_loss(
    logprobs_BL: Tensor,
    reference_logprobs_BL: Tensor,
    *,
    estimator: KlEstimator,
    ratio_BL: Tensor | None = None,
) -> Tensor:
    """Return the KL of each token as a term of the loss: the estimate's value, [B, L] in nats.

    Without `ratio_BL` the gradient is the estimate's own. With it (exp(logprob - old logprob), of the policy that is
    trained to the one that sampled) the gradient is that of KL(policy || reference) for any estimator, also after the
    policy has moved: ratio * r * grad(logprob), whose mean over tokens of the old policy is the divergence's gradient.
    """
    value_BL = kl_estimate(logprobs_BL, reference_logprobs_BL, estimator=estimator)
    if ratio_BL is None:
        return value_BL
    exact_BL = ratio_BL.detach() * kl_estimate(logprobs_BL, reference_logprobs_BL, estimator="k2")
    return value_BL.detach() + exact_BL - exact_BL.detach()


def aggregate(
    loss_BL: Tensor, mask_BL: Tensor, *, how: Aggregation, num_tokens: int, num_sequences: int, scale: float = 1.0
) -> Tensor:
    """Return this part's share of the batch's loss: a scalar.

    token_mean: sum over counted tokens / `num_tokens`. sequence_mean: sum of each sequence's own mean /
    `num_sequences`. token_sum: the sum over counted tokens. sequence_sum: that sum / `num_sequences`.
    sequence_sum_scaled: that / `scale`, a constant number of tokens. Counts are those of the whole batch.
    Raises: ValueError for another name.
    Source: token mean: DAPO (arXiv 2503.14476) section 3.3; sequence mean: GRPO (arXiv 2402.03300) equation 3; scaled
    sum: Dr. GRPO (arXiv 2503.20783) section 3.2.
    """
    mask_BL = mask_BL.to(loss_BL.dtype)
    # Outside the mask a value may be infinite (padding); 0 * inf would be NaN.
    kept_BL = torch.where(mask_BL > 0, loss_BL, 0.0)
    if how == "token_mean":
        return kept_BL.sum() / max(num_tokens, 1)
    rows = max(num_sequences, 1)
    if how == "sequence_mean":
        return (kept_BL.sum(dim=1) / mask_BL.sum(dim=1).clamp(min=1)).sum() / rows
    divisors = {"token_sum": 1.0, "sequence_sum": rows, "sequence_sum_scaled": rows * scale}
    if how in divisors:
        return kept_BL.sum() / divisors[how]
    raise ValueError(f"There is no loss average {how!r}. Use one of {', '.join(get_args(Aggregation))}.")
