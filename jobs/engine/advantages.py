"""Advantages: how much better each completion was than what to expect. Pure functions on tensors.

Shapes: B completions (groups of equal size lie together), G completions a group, L positions.
"""

import torch
from torch import Tensor

EPSILON = 1e-6
VARIANCE_EPSILON = 1e-8


def group_advantages(rewards_B: Tensor, *, group_size: int, normalize_by_std: bool) -> Tensor:
    """Return (reward - mean of its group), divided by the group's deviation if `normalize_by_std`: [B].

    The deviation is the unbiased one (N - 1), plus 1e-6. A group whose rewards are all equal gets zeros: it teaches
    nothing.
    Raises: ValueError if B is not a multiple of `group_size`, or a group has one member.
    Source: DeepSeekMath (arXiv 2402.03300) section 4.1; without the division: Dr. GRPO (arXiv 2503.20783).
    """
    if group_size < 2 or rewards_B.numel() % group_size:
        raise ValueError(f"{rewards_B.numel()} rewards are not whole groups of {group_size}; a group has at least 2.")
    rewards_NG = rewards_B.to(torch.promote_types(rewards_B.dtype, torch.float32)).view(-1, group_size)
    centered_NG = rewards_NG - rewards_NG.mean(dim=1, keepdim=True)
    if normalize_by_std:
        centered_NG = centered_NG / (rewards_NG.std(dim=1, keepdim=True) + EPSILON)
    has_signal_N1 = (rewards_NG.amax(dim=1) > rewards_NG.amin(dim=1)).unsqueeze(1)
    return torch.where(has_signal_N1, centered_NG, 0.0).view(-1)


def over_tokens(values_B: Tensor, mask_BL: Tensor) -> Tensor:
    """Return each completion's value at each of its counted tokens, 0 elsewhere: [B, L]."""
    return torch.where(mask_BL, values_B.unsqueeze(1), 0.0)


def leave_one_out(rewards_B: Tensor, *, group_size: int) -> Tensor:
    """Return reward - mean of the others of its group: [B]. That is G / (G - 1) of the distance to the mean of all.

    Raises: ValueError as `group_advantages` does. Source: Back to basics (arXiv 2402.14740) section 2.3.
    """
    centered_B = group_advantages(rewards_B, group_size=group_size, normalize_by_std=False)
    return centered_B * (group_size / (group_size - 1))


def at_last_token(values_B: Tensor, mask_BL: Tensor) -> Tensor:
    """Return each completion's value at its last counted token, 0 elsewhere: [B, L]."""
    is_last_BL = mask_BL & (mask_BL.flip(1).cumsum(dim=1).flip(1) == 1)
    return torch.where(is_last_BL, values_B.unsqueeze(1), 0.0)


def discounted_returns(rewards_BL: Tensor, mask_BL: Tensor, *, gamma: float) -> Tensor:
    """Return at each counted token its reward and those of the counted tokens behind it, discounted: [B, L].

    Tokens that do not count are passed over: they neither have a reward nor a share in the discount.
    Source: REINFORCE++ (arXiv 2501.03262) section 3.1.
    """
    returns_BL = torch.zeros_like(rewards_BL)
    running_B = torch.zeros_like(rewards_BL[:, 0])
    for position in reversed(range(rewards_BL.shape[1])):
        counts_B = mask_BL[:, position]
        running_B = torch.where(counts_B, rewards_BL[:, position] + gamma * running_B, running_B)
        returns_BL[:, position] = torch.where(counts_B, running_B, 0.0)
    return returns_BL


def whiten(values_BL: Tensor, mask_BL: Tensor, *, by_std: bool) -> Tensor:
    """Return the values with mean 0 over all counted tokens, and deviation 1 `by_std`; 0 outside of the mask: [B, L].

    The variance is the unbiased one (N - 1), plus 1e-8.
    """
    counted_N = values_BL[mask_BL]
    centered_BL = values_BL - counted_N.mean()
    if by_std and counted_N.numel() > 1:
        centered_BL = centered_BL * torch.rsqrt(counted_N.var() + VARIANCE_EPSILON)
    return torch.where(mask_BL, centered_BL, 0.0)


def zero_variance_fraction(rewards_B: Tensor, *, group_size: int) -> float:
    """Return the fraction of groups whose rewards are all equal."""
    rewards_NG = rewards_B.view(-1, group_size)
    return float((rewards_NG.amax(dim=1) == rewards_NG.amin(dim=1)).float().mean())
