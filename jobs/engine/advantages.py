"""Advantages: how much better each completion was than what to expect. Pure functions on tensors.

Shapes: B completions (groups of equal size lie together), G completions a group, L positions.
"""

import torch
from torch import Tensor

EPSILON = 1e-6


def group_advantages(rewards_B: Tensor, *, group_size: int, normalize_by_std: bool) -> Tensor:
    """Return (reward - mean of its group), divided by the group's deviation if `normalize_by_std`: float32 [B].

    The deviation is the unbiased one (N - 1), plus 1e-6. A group whose rewards are all equal gets zeros: it teaches
    nothing.
    Raises: ValueError if B is not a multiple of `group_size`, or a group has one member.
    Source: DeepSeekMath (arXiv 2402.03300) section 4.1; without the division: Dr. GRPO (arXiv 2503.20783).
    """
    if group_size < 2 or rewards_B.numel() % group_size:
        raise ValueError(f"{rewards_B.numel()} rewards are not whole groups of {group_size}; a group has at least 2.")
    rewards_NG = rewards_B.to(torch.float32).view(-1, group_size)
    centered_NG = rewards_NG - rewards_NG.mean(dim=1, keepdim=True)
    if normalize_by_std:
        centered_NG = centered_NG / (rewards_NG.std(dim=1, keepdim=True) + EPSILON)
    has_signal_N1 = (rewards_NG.amax(dim=1) > rewards_NG.amin(dim=1)).unsqueeze(1)
    return torch.where(has_signal_N1, centered_NG, 0.0).view(-1)


def over_tokens(values_B: Tensor, mask_BL: Tensor) -> Tensor:
    """Return each completion's value at each of its counted tokens, 0 elsewhere: [B, L]."""
    return torch.where(mask_BL, values_B.unsqueeze(1), 0.0)


def zero_variance_fraction(rewards_B: Tensor, *, group_size: int) -> float:
    """Return the fraction of groups whose rewards are all equal."""
    rewards_NG = rewards_B.view(-1, group_size)
    return float((rewards_NG.amax(dim=1) == rewards_NG.amin(dim=1)).float().mean())
