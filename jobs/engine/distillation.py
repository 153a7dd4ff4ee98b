"""Learning from a teacher: how far two models' next-token distributions are apart, seen through the teacher's top k.

The distributions of a vocabulary are too large to travel, and most of a teacher's is near zero. What travels are its k
likeliest tokens and their log-probabilities; everything else is one bucket, the tail. The teacher sums up its own tail:
1 less the listed probabilities has the rounding of 1, which is all that the tail of a sure teacher is. Both models are
compared as distributions over these k + 1 outcomes, so nothing is renormalized. By the data-processing inequality such
a divergence is never above the one over the whole vocabulary; with k as large as the vocabulary it is that one.

Pure functions. Shapes: B sequences, L positions, N counted tokens, V vocabulary, K listed tokens. Log-probabilities are
in nats; at position l stand those of what may come in the place of token l.
"""

import math
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from jobs.catalog.algorithm import is_in
from jobs.catalog.spec.runspec import RunSpec
from jobs.engine.algorithm import Counts, Loss, PolicyOutputs
from jobs.engine.batch import Batch
from jobs.engine.losses import aggregate
from jobs.engine.policy_gradient import loss_scale, token_mean


@dataclass(frozen=True, slots=True, kw_only=True)
class TopTokens:
    """A request to a teacher: so many of its likeliest tokens, of those whose id is below a bound.

    The bound is the student's vocabulary: models of one family pad their output layers to different sizes.
    """

    count: int
    below: int


Listed: TypeAlias = TopTokens | Tensor | None
"""What the output layer is asked for beside the chosen token: a teacher's likeliest tokens, or the tokens with these
ids, [..., K]; or nothing."""


def listed_scores(logits_NV: Tensor, listed: Listed, *, temperature: float = 1.0) -> tuple[Tensor, ...]:
    """Return what is asked for under softmax(logits / temperature).

    Of TopTokens: their ids, int32 [N, K], and log-probabilities, float32 [N, K + 1], the likeliest first and that of
    all others last, which is at least the rounding of its type. Of ids: the log-probabilities there [N, K], through
    which gradients flow, and which share of these ids is among the K likeliest here [N]. Of None: ().
    """
    if listed is None:
        return ()
    logits_NV = logits_NV.float() if temperature == 1.0 else logits_NV.float() / temperature
    log_total_N1 = logits_NV.logsumexp(dim=-1, keepdim=True)
    if isinstance(listed, TopTokens):
        logits_NU = logits_NV[:, : listed.below]
        top_NK, ids_NK = logits_NU.topk(min(listed.count, logits_NU.shape[1]), dim=-1)
        others_N1 = logits_NV.scatter(-1, ids_NK, -torch.inf).logsumexp(dim=-1, keepdim=True)
        least = math.log(torch.finfo(logits_NV.dtype).eps)
        tail_N1 = (others_N1 - log_total_N1).clamp(min=least)
        return ids_NK.int(), torch.cat([top_NK - log_total_N1, tail_N1], dim=-1)
    ids_NK = listed.long()
    with torch.no_grad():
        is_listed_NV = torch.zeros_like(logits_NV, dtype=torch.bool).scatter_(-1, ids_NK, value=True)
        own_NK = logits_NV.topk(ids_NK.shape[1], dim=-1).indices
        overlap_N = is_listed_NV.gather(-1, own_NK).float().mean(dim=-1)
    return logits_NV.gather(-1, ids_NK) - log_total_N1, overlap_N


def with_tail(logprobs_BLK: Tensor) -> Tensor:
    """Return the log-probabilities with that of all other tokens behind them: [B, L, K + 1].

    A tail is at least the rounding of its type: what is below that is noise of the sum, and its logarithm would be
    the largest number of the loss.
    """
    share_BL1 = -torch.expm1(logprobs_BLK.logsumexp(dim=-1, keepdim=True))
    least = torch.finfo(logprobs_BLK.dtype).eps
    return torch.cat([logprobs_BLK, share_BL1.clamp(min=least).log()], dim=-1)


def divergence(student: Tensor, teacher: Tensor, *, beta: float) -> Tensor:
    """Return how far the student is from the teacher at each position, over listed tokens and the tail: [B, L].

    Both are log-probabilities of the same outcomes, [B, L, K + 1].

    The generalized Jensen-Shannon divergence: with the mixture m = beta * teacher + (1 - beta) * student it is
    beta * KL(teacher || m) + (1 - beta) * KL(student || m). At its ends, where that is 0, it means what it becomes
    there, divided by the vanishing factor: beta 0 is KL(teacher || student), beta 1 is KL(student || teacher).
    Raises: ValueError unless 0 <= beta <= 1.
    Source: GKD, arXiv 2306.13649, equation 1; the ends as in its section 3.
    """
    if not 0.0 <= beta <= 1.0:
        raise ValueError(f"A divergence between {beta:g} is not known. Use a number from 0 to 1.")
    if beta == 0.0:
        return _kl(teacher, student)
    if beta == 1.0:
        return _kl(student, teacher)
    share = torch.tensor(beta, dtype=student.dtype, device=student.device)
    mixture = torch.logaddexp(student + torch.log1p(-share), teacher + share.log())
    return beta * _kl(teacher, mixture) + (1 - beta) * _kl(student, mixture)


def _kl(one: Tensor, other: Tensor) -> Tensor:
    return (one.exp() * (one - other)).sum(dim=-1)


def distillation_loss(batch: Batch, outputs: PolicyOutputs, spec: RunSpec, counts: Counts) -> Loss:
    """Return the shares of the mean divergence from the teacher over counted tokens, and of the metrics.

    Metrics: loss/distillation; teacher/gap, which is KL(student || teacher) whatever the loss is, so that runs of
    different losses compare; teacher/overlap; policy/entropy.
    """
    assert batch.teacher_logprobs_BLK is not None
    assert outputs.listed_logprobs_BLK is not None
    assert outputs.overlaps_BL is not None
    student, teacher = with_tail(outputs.listed_logprobs_BLK), batch.teacher_logprobs_BLK
    loss_BL = divergence(student, teacher, beta=spec.float_knob("algorithm.distillation_beta"))
    loss = _averaged(loss_BL, batch, spec, counts)
    with torch.no_grad():
        shares = {
            "teacher/gap": token_mean(divergence(student, teacher, beta=1.0), batch, counts),
            "teacher/overlap": token_mean(outputs.overlaps_BL, batch, counts),
            "policy/entropy": token_mean(outputs.entropies_BL, batch, counts),
        }
    return loss, shares | {"loss/distillation": loss.detach()}


def _averaged(loss_BL: Tensor, batch: Batch, spec: RunSpec, counts: Counts) -> Tensor:
    """Return the loss as the run averages its samples; over tokens where answers are given."""
    if not is_in(spec.algorithm, "rl"):
        return token_mean(loss_BL, batch, counts)
    return aggregate(
        loss_BL,
        batch.mask_BL,
        how=spec.knob("algorithm.loss_aggregation"),
        num_tokens=counts.num_tokens,
        num_sequences=counts.num_sequences,
        scale=loss_scale(spec),
    )
