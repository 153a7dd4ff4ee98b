"""Losses: pure functions on tensors.

Shapes: B sequences, L positions, V vocabulary. A `_BL` tensor of log-probabilities holds at position l that of token l
given the tokens before it; `mask_BL` is true where a token counts. Sums are divided by the counts of the whole batch,
over all micro-batches and ranks, so that parts add up to the whole.
"""

from typing import Literal

import torch
from torch import Tensor

KlEstimator = Literal["k1", "k2", "k3"]
Aggregation = Literal["token_mean", "sequence_mean"]


def token_logprobs(logits_BLV: Tensor, tokens_BL: Tensor, *, temperature: float = 1.0) -> Tensor:
    """Return the log-probability of each token under softmax(logits / temperature): [B, L], position 0 is 0.

    logits_BLV[:, l] predicts token l + 1. Computed in float32.
    """
    logits_BLV = logits_BLV[:, :-1].float() / temperature
    chosen_BL = logits_BLV.gather(-1, tokens_BL[:, 1:].unsqueeze(-1)).squeeze(-1)
    return torch.nn.functional.pad(chosen_BL - logits_BLV.logsumexp(dim=-1), (1, 0))


def token_entropies(logits_BLV: Tensor, *, temperature: float = 1.0) -> Tensor:
    """Return the entropy in nats of the distribution that each token was sampled from: [B, L], position 0 is 0.

    H = logsumexp(z) - sum(softmax(z) z).
    """
    logits_BLV = logits_BLV[:, :-1].float() / temperature
    log_total_BL = logits_BLV.logsumexp(dim=-1)
    mean_BL = (torch.softmax(logits_BLV, dim=-1) * logits_BLV).sum(dim=-1)
    return torch.nn.functional.pad(log_total_BL - mean_BL, (1, 0))


def clipped_policy_loss(
    logprobs_BL: Tensor, old_logprobs_BL: Tensor, advantages_BL: Tensor, *, clip_low: float, clip_high: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the loss per token, whether the clip cut it, and the ratio: each [B, L].

    loss = -min(ratio A, clip(ratio, 1 - clip_low, 1 + clip_high) A) with ratio = exp(logprob - old logprob).
    Source: PPO (arXiv 1707.06347) equation 7; separate bounds: DAPO (arXiv 2503.14476) section 3.1.
    """
    ratio_BL = (logprobs_BL - old_logprobs_BL).exp()
    free_BL = -advantages_BL * ratio_BL
    held_BL = -advantages_BL * ratio_BL.clamp(1 - clip_low, 1 + clip_high)
    return torch.maximum(free_BL, held_BL), held_BL > free_BL, ratio_BL


def kl_estimate(logprobs_BL: Tensor, reference_logprobs_BL: Tensor, *, estimator: KlEstimator) -> Tensor:
    """Return the estimate per token of KL(policy || reference) from tokens sampled from the policy: [B, L], nats.

    With r = log policy - log reference: k1 = r, k2 = r^2 / 2, k3 = exp(-r) - 1 + r.
    Raises: ValueError for another name. Source: Schulman, Approximating KL divergence (2020).
    """
    r_BL = logprobs_BL - reference_logprobs_BL
    if estimator == "k1":
        return r_BL
    if estimator == "k2":
        return r_BL.square() / 2
    if estimator == "k3":
        return torch.exp(-r_BL) - 1 + r_BL
    raise ValueError(f"There is no KL estimator {estimator!r}. Use k1, k2 or k3.")


def aggregate(loss_BL: Tensor, mask_BL: Tensor, *, how: Aggregation, num_tokens: int, num_sequences: int) -> Tensor:
    """Return this part's share of the batch's mean loss: a scalar.

    token_mean: sum over counted tokens / `num_tokens`. sequence_mean: sum of each sequence's own mean /
    `num_sequences`. Both counts are those of the whole batch. Raises: ValueError for another name.
    Source: token mean: DAPO (arXiv 2503.14476) section 3.3; sequence mean: GRPO (arXiv 2402.03300) equation 3.
    """
    mask_BL = mask_BL.to(loss_BL.dtype)
    # Outside the mask a value may be infinite (padding); 0 * inf would be NaN.
    kept_BL = torch.where(mask_BL > 0, loss_BL, 0.0)
    if how == "token_mean":
        return kept_BL.sum() / max(num_tokens, 1)
    if how == "sequence_mean":
        return (kept_BL.sum(dim=1) / mask_BL.sum(dim=1).clamp(min=1)).sum() / max(num_sequences, 1)
    raise ValueError(f"There is no loss average {how!r}. Use token_mean or sequence_mean.")
