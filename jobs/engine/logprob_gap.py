"""How far a rollout engine's log-probabilities are from the trainer's with the same weights.

Both compute the same function in another order, so they differ by rounding alone if the engine has the policy's
weights. Shapes: B sequences, L positions.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from jobs.engine.losses import LARGEST_K3, LARGEST_LOG_RATIO

_FAR = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class GapSums:
    """Sums over counted tokens of how two log-probabilities of each differ; parts of a batch add up to the whole.

    `probability`: of |exp(rollout) - exp(trainer)|. `kl`: of exp(-r) - 1 + r with r = rollout - trainer, which
    estimates KL(rollout || trainer) in nats. `num_far`: tokens whose probability differs by more than one half.
    `largest`: of |r| in nats, NaN if any log-probability is none.
    """

    num_tokens: int
    probability: float
    kl: float
    num_far: int
    largest: float

    def metrics(self) -> dict[str, float]:
        """Return them by canonical name, means over the tokens."""
        count = max(self.num_tokens, 1)
        return {
            "sync/max_logprob_diff": self.largest,
            "sync/mean_probability_diff": self.probability / count,
            "sync/far_token_fraction": self.num_far / count,
            "kl/rollout": self.kl / count,
        }


def gap_sums(rollout_logprobs_BL: Tensor, trainer_logprobs_BL: Tensor, mask_BL: Tensor) -> GapSums:
    """Return the sums over the tokens that `mask_BL` counts."""
    rollout, trainer = rollout_logprobs_BL[mask_BL].float(), trainer_logprobs_BL[mask_BL].detach().float()
    difference = rollout - trainer
    apart = (rollout.exp() - trainer.exp()).abs()
    held = difference.clamp(-LARGEST_LOG_RATIO, LARGEST_LOG_RATIO)
    return GapSums(
        num_tokens=difference.numel(),
        probability=float(apart.sum()),
        kl=float((torch.exp(-held) - 1 + held).clamp(max=LARGEST_K3).sum()),
        num_far=int((apart > _FAR).sum()),
        largest=float(difference.abs().max()) if difference.numel() else 0.0,
    )


def total(parts: Iterable[GapSums]) -> GapSums:
    """Return the sums of all parts together; zeros for none."""
    parts = list(parts)
    largest = [part.largest for part in parts]
    return GapSums(
        num_tokens=sum(part.num_tokens for part in parts),
        probability=sum(part.probability for part in parts),
        kl=sum(part.kl for part in parts),
        num_far=sum(part.num_far for part in parts),
        largest=math.nan if any(map(math.isnan, largest)) else max(largest, default=0.0),
    )
