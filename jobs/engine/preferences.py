"""Losses of learning from preferences, pairs and single labels: pure functions on tensors.

Shapes: B sequences, L positions, P pairs. In a batch of pairs sequence 2 p is the chosen response of pair p and 2 p + 1
the rejected one.
"""

from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, sigmoid

PairLoss = Literal["sigmoid", "ipo"]


def sequence_logprobs(logprobs_BL: Tensor, mask_BL: Tensor, *, is_averaged: bool = False) -> Tensor:
    """Return the log-probability of each response: the sum over its counted tokens, or their mean: [B], nats."""
    summed_B = torch.where(mask_BL, logprobs_BL, 0.0).sum(dim=1)
    return summed_B / mask_BL.sum(dim=1).clamp(min=1) if is_averaged else summed_B


def sides(values_B: Tensor) -> tuple[Tensor, Tensor]:
    """Return what is of the chosen responses and what of the rejected ones: [P] each."""
    return values_B[0::2], values_B[1::2]


def preference_loss(
    differences_P: Tensor,
    *,
    kind: PairLoss,
    beta: float,
    label_smoothing: float = 0.0,
    target_margin: float = 0.0,
) -> Tensor:
    """Return the loss of each pair, [P], from d: log(policy / reference) of the chosen response less the other one's.

    sigmoid: -(1 - s) log sigmoid(x) - s log sigmoid(-x) with x = beta d - target_margin and s the smoothing; ipo:
    (d - 1 / (2 beta))^2.
    Sources: DPO, arXiv 2305.18290, equation 7; cDPO, Mitchell 2023, equation 3; SimPO, arXiv 2405.14734, equation 6 (d
    of mean log-probabilities without a reference, and a target margin); IPO, arXiv 2310.12036, equation 17.
    """
    if kind == "ipo":
        return (differences_P - 1 / (2 * beta)).square()
    x_P = beta * differences_P - target_margin
    return -(1 - label_smoothing) * logsigmoid(x_P) - label_smoothing * logsigmoid(-x_P)


def ranking_loss(differences_P: Tensor, margins_P: Tensor) -> Tensor:
    """Return -log sigmoid(d - m) of each pair, [P]: d is the score of the chosen response less that of the rejected
    one, m by how much it is to be larger.

    Sources: InstructGPT, arXiv 2203.02155, equation 1; with margins Llama 2, arXiv 2307.09288, equation 2.
    """
    return -logsigmoid(differences_P - margins_P)


def pair_metrics(rewards_B: Tensor) -> dict[str, Tensor]:
    """Return of each pair whether it is in order, by how much, and the reward of both responses: [P] each."""
    chosen_P, rejected_P = sides(rewards_B.detach())
    return {
        "pairs/accuracy": (chosen_P > rejected_P).to(rewards_B.dtype),
        "pairs/margin": chosen_P - rejected_P,
        "pairs/chosen_reward": chosen_P,
        "pairs/rejected_reward": rejected_P,
    }


def reference_point(logprobs_BL: Tensor, reference_logprobs_BL: Tensor, mask_BL: Tensor) -> Tensor:
    """Return KTO's reference point from responses under prompts that they do not answer, in nats: a scalar, at least 0.

    It is the mean of log(policy / reference) of a whole response, a biased estimate of KL(policy || reference) that
    costs no sampling. Source: arXiv 2402.01306, section 4.1.
    """
    return sequence_logprobs(logprobs_BL - reference_logprobs_BL, mask_BL).mean().clamp(min=0)


def labeled_loss(
    gains_B: Tensor, is_desirable_B: Tensor, *, beta: float, desirable_weight: float, undesirable_weight: float
) -> Tensor:
    """Return the loss of each response, [B], from its gain: log(policy / reference) less the reference point, in nats.

    w (1 - sigmoid(beta g)) of a desirable one, w (1 - sigmoid(-beta g)) of an undesirable one, with its label's weight.
    Source: KTO, arXiv 2402.01306, equations 7 and 8.
    """
    signs_B = torch.where(is_desirable_B, 1.0, -1.0)
    weights_B = torch.where(is_desirable_B, desirable_weight, undesirable_weight).to(gains_B.dtype)
    return weights_B * (1 - sigmoid(beta * signs_B * gains_B))


def label_metrics(
    rewards_B: Tensor,
    logprobs_B: Tensor,
    is_desirable_B: Tensor,
    *,
    thresholds_B: Tensor,
    num_desirable: int,
    num_undesirable: int,
) -> dict[str, Tensor]:
    """Return these responses' shares of the step's means: how many labels the reward gets right, the share of desirable
    responses, and reward and log-probability of each label; the step has so many of both.

    A reward is right on the label's side of its threshold. What a label has none of is left out.
    """
    num = num_desirable + num_undesirable
    is_right_B = torch.where(is_desirable_B, rewards_B > thresholds_B, rewards_B < thresholds_B)
    shares = {
        "labels/accuracy": is_right_B.to(rewards_B.dtype).sum() / num,
        "labels/desirable_fraction": is_desirable_B.to(rewards_B.dtype).sum() / num,
    }
    for label, count, of_label_B in (
        ("desirable", num_desirable, is_desirable_B),
        ("undesirable", num_undesirable, ~is_desirable_B),
    ):
        if count:
            shares[f"labels/{label}_reward"] = rewards_B[of_label_B].sum() / count
            shares[f"labels/{label}_logprob"] = logprobs_B[of_label_B].sum() / count
    if num_desirable and num_undesirable:
        shares["labels/margin"] = shares["labels/desirable_reward"] - shares["labels/undesirable_reward"]
    return shares
