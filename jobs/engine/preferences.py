"""Losses of learning from preferences: pure functions on tensors.

Shapes: B sequences, L positions, P pairs. In a batch of pairs sequence 2 p is the chosen response of pair p and 2 p + 1
the rejected one.
"""

from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

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
