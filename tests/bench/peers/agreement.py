"""Do two sides learn the same curve, as far as five seeds can say? Pure functions."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

MOST_APART = 1.0
"""Times the spread of seeds that the mean curves of both sides may be apart, averaged over the steps."""
LEAST_OVERLAP = 0.95
"""Of the steps, in how many the ranges of both sides' seeds have to meet."""

Curves = Sequence[Sequence[float]]
"""A curve for each seed, a value for each step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """How far two sides are apart in one metric.

    `spread` is the deviation over seeds (n - 1), of both sides pooled and averaged over the steps; `apart` the distance
    of the two mean curves, averaged over the steps; `overlap` the share of the steps in which the ranges of the seeds
    meet; `seed_gap` the largest difference at any step between the two runs of the same seed.
    """

    spread: float
    apart: float
    overlap: float
    seed_gap: float

    @property
    def holds(self) -> bool:
        """True if the two sides are as near to each other as the seeds of one are."""
        return self.apart <= MOST_APART * self.spread and self.overlap >= LEAST_OVERLAP


def agreement(ours: Curves, theirs: Curves) -> Agreement:
    """Return how far two sides are apart, whose curves have the same seeds in the same order, and the same steps.

    Raises: ValueError for other numbers of seeds or steps, or fewer than two seeds.
    """
    pairs = list(zip(zip(*ours, strict=True), zip(*theirs, strict=True), strict=True))
    spreads, distances, meetings, gaps = [], [], [], []
    for a, b in pairs:
        gaps.append(max(abs(x - y) for x, y in zip(a, b, strict=True)))
        spreads.append(((statistics.variance(a) + statistics.variance(b)) / 2) ** 0.5)
        distances.append(abs(statistics.mean(a) - statistics.mean(b)))
        # What differs by rounding alone meets, too: at the first step all seeds of both sides say the same.
        meetings.append(min(max(a), max(b)) >= max(min(a), min(b)) - 1e-6)
    return Agreement(
        spread=statistics.mean(spreads),
        apart=statistics.mean(distances),
        overlap=statistics.mean(meetings),
        seed_gap=max(gaps),
    )
