"""When seeds have shown that an algorithm learns: said here, before anything runs. Pure functions."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

NUM_SEEDS = 5
_QUANTILES = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776}
"""97.5 % of Student's t by degrees of freedom."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a number measured on held-out data has to show over all seeds.

    With `is_rise` it is counted from what the model had before. The lower end of the 95 % interval of the mean over
    seeds has to lie above `mean`, and the number of every single seed above `each`.
    """

    measure: str
    is_rise: bool
    mean: float
    each: float

    def __str__(self) -> str:
        kind = "rise" if self.is_rise else "value"
        return f"{kind} of the mean surely above {self.mean:g}, of each seed above {self.each:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What seeds showed of a target: their mean with its 95 % interval, the least of them, whether that is enough."""

    num_seeds: int
    mean: float
    low: float
    high: float
    least: float
    holds: bool


def judge(values: Sequence[float], target: Target) -> Verdict:
    """Return the verdict on the numbers of 1 to 5 seeds; of a single one, whose spread nobody knows, none holds.

    The interval is mean ± t s / sqrt(n), s the deviation over seeds (n - 1) and t Student's quantile.
    """
    mean, half = statistics.mean(values), math.inf
    if len(values) > 1:
        half = _QUANTILES[len(values) - 1] * statistics.stdev(values) / math.sqrt(len(values))
    low, least = mean - half, min(values)
    return Verdict(
        num_seeds=len(values),
        mean=mean,
        low=low,
        high=mean + half,
        least=least,
        holds=low > target.mean and least > target.each,
    )
