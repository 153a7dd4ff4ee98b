"""What a run makes of its rewards before anything is learned from them: penalties of length, then bounds.

Pure functions on tensors. Shape: B completions.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from jobs.catalog.spec.runspec import RunSpec

WIDEST = 1e6
"""A bound this far out bounds nothing: what the knobs are where nobody set them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shaping:
    """How rewards are shaped: see the knobs of the same names."""

    longest: int
    overlong_buffer: int
    overlong_penalty: float
    truncation_penalty: float
    clip_low: float
    clip_high: float

    @classmethod
    def of(cls, spec: RunSpec) -> "Shaping":
        """Return what the knobs of a run say."""
        return cls(
            longest=spec.int_knob("rollout.max_new_tokens"),
            overlong_buffer=spec.int_knob("reward.overlong_buffer_tokens"),
            overlong_penalty=spec.float_knob("reward.overlong_penalty"),
            truncation_penalty=spec.float_knob("reward.truncation_penalty"),
            clip_low=spec.float_knob("reward.clip_low"),
            clip_high=spec.float_knob("reward.clip_high"),
        )

    def shaped(self, rewards_B: Tensor, lengths_B: Tensor, is_truncated_B: Tensor) -> tuple[Tensor, dict[str, float]]:
        """Return the shaped rewards, [B], and of each step that is on the fraction of responses that it changed.

        In this order: responses that come into the buffer lose reward; of those that were cut it is multiplied, or
        replaced by a negative value; the bounds.
        """
        metrics: dict[str, float] = {}
        if self.overlong_buffer:
            excess_B = overlong_excess(lengths_B, longest=self.longest, buffer=self.overlong_buffer)
            rewards_B = rewards_B - self.overlong_penalty * excess_B
            metrics["reward/overlong_fraction"] = _fraction(excess_B > 0)
        if self.truncation_penalty < 0:
            rewards_B = torch.where(is_truncated_B, self.truncation_penalty, rewards_B)
        else:
            rewards_B = torch.where(is_truncated_B, self.truncation_penalty * rewards_B, rewards_B)
        if self.clip_low > -WIDEST or self.clip_high < WIDEST:
            clipped_B = rewards_B.clamp(self.clip_low, self.clip_high)
            metrics["reward/clipped_fraction"] = _fraction(clipped_B != rewards_B)
            rewards_B = clipped_B
        return rewards_B, metrics


def overlong_excess(lengths_B: Tensor, *, longest: int, buffer: int) -> Tensor:
    """Return how far each response is into the last `buffer` tokens of the longest allowed: [B], 0 to 1.

    Source: DAPO, arXiv 2503.14476, equation 13.
    """
    return ((lengths_B - (longest - buffer)) / buffer).clamp(0, 1)


def _fraction(is_B: Tensor) -> float:
    return float(is_B.float().mean())
