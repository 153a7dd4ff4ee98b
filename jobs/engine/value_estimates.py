"""What a critic is for: advantages from its values, what it should have said, and how far off it was. Pure functions.

Shapes: B completions, L positions. Only positions where `mask_BL` is true count; the position after one is the next of
its row that counts, so what lies between, such as the answer of a tool, neither acts nor takes time.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class ClippedValues:
    """The clipped loss of each token's value, [B, L] each; `is_cut_BL`: the clip took the gradient away."""

    loss_BL: Tensor
    is_cut_BL: Tensor


def generalized_advantages(
    rewards_BL: Tensor, values_BL: Tensor, mask_BL: Tensor, *, gamma: float, gae_lambda: float
) -> tuple[Tensor, Tensor]:
    """Return advantages and returns at counted tokens, 0 elsewhere: [B, L] each.

    A_t = delta_t + gamma lambda A_(t+1) with delta_t = r_t + gamma V_(t+1) - V_t, and V = 0 after the last token;
    return = A + V. Source: Schulman et al., arXiv 1506.02438, equation 16.
    """
    advantages_BL = torch.zeros_like(values_BL)
    next_value_B, next_advantage_B = torch.zeros_like(values_BL[:, 0]), torch.zeros_like(values_BL[:, 0])
    for position in reversed(range(values_BL.shape[1])):
        counts_B, value_B = mask_BL[:, position], values_BL[:, position]
        delta_B = rewards_BL[:, position] + gamma * next_value_B - value_B
        advantage_B = delta_B + gamma * gae_lambda * next_advantage_B
        next_value_B = torch.where(counts_B, value_B, next_value_B)
        next_advantage_B = torch.where(counts_B, advantage_B, next_advantage_B)
        advantages_BL[:, position] = torch.where(counts_B, advantage_B, 0.0)
    return advantages_BL, torch.where(mask_BL, advantages_BL + values_BL, 0.0)


def clipped_value_loss(values_BL: Tensor, old_values_BL: Tensor, returns_BL: Tensor, *, clip: float) -> ClippedValues:
    """Return max((V - R)^2, (clamp(V, V_old - clip, V_old + clip) - R)^2) / 2 of each token.

    A value that has moved by more than `clip` gains nothing by moving on. Source: Huang et al., The 37 implementation
    details of PPO (2022), detail 9; half of it is usual.
    """
    held_BL = values_BL.clamp(old_values_BL - clip, old_values_BL + clip)
    free_loss_BL, held_loss_BL = (values_BL - returns_BL).square(), (held_BL - returns_BL).square()
    loss_BL = torch.maximum(free_loss_BL, held_loss_BL) / 2
    return ClippedValues(loss_BL=loss_BL, is_cut_BL=held_loss_BL > free_loss_BL)


def value_metrics(values_BL: Tensor, returns_BL: Tensor, mask_BL: Tensor) -> dict[str, float]:
    """Return what the critic said before its update, against what came: means over counted tokens.

    value/explained_variance is 1 - Var(R - V) / Var(R); it is left out where all returns are equal, which nothing
    explains.
    """
    values_N, returns_N = values_BL[mask_BL], returns_BL[mask_BL]
    metrics = {"value/mean": float(values_N.mean()), "value/return_mean": float(returns_N.mean())}
    spread = float(returns_N.var(correction=0))
    if spread > 0:
        metrics["value/explained_variance"] = 1 - float((returns_N - values_N).var(correction=0)) / spread
    return metrics
