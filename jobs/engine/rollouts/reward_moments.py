"""Mean and deviation of all rewards of a run so far, by which `reward.normalize` puts them on one scale."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor

_LEAST_DEVIATION = 1e-6
"""Below this rewards count as all the same: they become 0, and rounding does not become a signal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardMoments:
    """`count` rewards, their mean, and the sum of their squared distances from it."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0

    @classmethod
    def of(cls, state: Mapping[str, Any] | None) -> "RewardMoments":
        """Return what `to_state` gave; those of no reward for None."""
        return cls(**state) if state else cls()

    def to_state(self) -> dict[str, Any] | None:
        """Return it as checkpoints keep it; None without rewards."""
        return asdict(self) if self.count else None

    def __add__(self, rewards_N: Tensor) -> "RewardMoments":
        """Return the moments of these rewards besides.

        Source: Chan, Golub and LeVeque, Updating formulae and a pairwise algorithm for sample variances, 1979.
        """
        added = rewards_N.numel()
        if not added:
            return self
        values = rewards_N.double()
        mean, count = float(values.mean()), self.count + added
        apart = mean - self.mean
        squares = self.squares + float((values - mean).square().sum()) + apart**2 * self.count * added / count
        return RewardMoments(count=count, mean=self.mean + apart * added / count, squares=squares)

    @property
    def deviation(self) -> float:
        """The square root of the mean squared distance; 0 without rewards."""
        return math.sqrt(self.squares / self.count) if self.count else 0.0

    def normalized(self, rewards_B: Tensor) -> Tensor:
        """Return the rewards less the mean, over the deviation: [B]; 0 where all rewards so far are the same."""
        if self.deviation < _LEAST_DEVIATION:
            return rewards_B * 0.0
        return (rewards_B - self.mean) / self.deviation

    def metrics(self) -> dict[str, float]:
        """Return them by canonical names; {} without rewards."""
        return {"reward/running_mean": self.mean, "reward/running_std": self.deviation} if self.count else {}
