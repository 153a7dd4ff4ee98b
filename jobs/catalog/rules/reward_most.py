"""The most that a reward can be, and how close a run is to it.

A reward near its most has nothing left to teach: all samples of a prompt are right, their variance is zero, and the
policy is sure. Without knowing the most, that looks like a run without a signal.
"""

import math
from collections.abc import Sequence

from jobs.catalog.rules.condition import Numbers
from jobs.catalog.spec.runspec import RunSpec

SHARE = "reward/of_most"
NEEDED = {"reward/mean", "reward/max"}
_UP_TO_ONE = ("math", "exact_match", "format", "code")  # kinds that give 1 for what is right


def with_share_of_most(spec: RunSpec, numbers: Numbers) -> Numbers:
    """Return the numbers with each step's mean reward over the most that it can be, where that is known."""
    rewards = numbers.get("reward/mean", ())
    most = _most(spec, numbers, rewards)
    if not most:
        return numbers
    return {**numbers, SHARE: [None if value is None else value / most for value in rewards]}


def _most(spec: RunSpec, numbers: Numbers, rewards: Sequence[float | None]) -> float | None:
    """Return the most that a response can earn; None where nobody knows.

    What the spec says counts first, then the largest reward that a trainer has reported. Of others the most is taken to
    be 1 if no step's mean is above it: nearly all rewards that check an answer give 1 for a right one.
    """
    if spec.is_native and all(part.kind in _UP_TO_ONE for part in spec.reward.parts):
        return math.fsum(max(0.0, part.weight) for part in spec.reward.parts) or None
    reported = _finite(numbers.get("reward/max", ()))
    if reported:
        return max(reported) if max(reported) > 0 else None
    highest = max(_finite(rewards), default=0.0)
    return 1.0 if 0 < highest <= 1 else None


def _finite(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None and math.isfinite(value)]
