"""What a run's numbers mean: how close rewards are to the most, and how many nats a whole response has gained or lost.

A reward near its most has nothing left to teach: all samples of a prompt are right, their variance is zero, and the
policy is sure. Without knowing the most, that looks like a run without a signal.
"""

import math
from collections.abc import Sequence

from jobs.catalog.rules.condition import Numbers
from jobs.catalog.rules.course import course, most_rise, noise
from jobs.catalog.spec.runspec import RunSpec

SHARE = "reward/of_most"
RISE = "reward/of_rise"
UNSEEN = "reward/unseen_rise"
KL, LENGTH = "kl/reference", "response/length_mean"
_SURE = 4.0  # standard errors that a reward has to have risen by to have risen
_WINDOW = 10
_OF_START = 0.5  # of a reward of which nothing else is known: what there is to gain
_FURTHER = 2.0  # times as far as it has come, at most: a run that goes on may rise by as much again
IN_NATS = {"pairs/chosen_nats": "pairs/chosen_reward", "labels/desirable_nats": "labels/desirable_reward"}
NEEDED = {"reward/mean", "reward/max", "reward/std", LENGTH, *IN_NATS.values()}
_UP_TO_ONE = ("math", "exact_match", "format", "code")  # kinds that give 1 for what is right


def with_meanings(spec: RunSpec, numbers: Numbers, *, planned: int = 0, step: int = 0) -> Numbers:
    """Return the numbers with each step's mean reward over the most that it can be, where that is known, and with
    implicit rewards of responses in nats, which are what the policy has gained or lost of their likelihood.

    An implicit reward is beta times them (DPO, arXiv 2305.18290, equation 5). `planned` are the steps that the run is
    to have, 0 where nobody knows, `step` the one that it has reached, 0 where each reward is one.
    """
    rewards = numbers.get("reward/mean", ())
    most = _most(spec, numbers, rewards)
    more = {SHARE: _over(rewards, most)} if most else {RISE: _of_rise(numbers, rewards)}
    further = min(_FURTHER, max(1.0, planned / (step or len(rewards) or 1)))
    more[UNSEEN] = _over(_unseen(rewards, most, numbers.get("reward/std", ())), 1 / further)
    more["kl/response"] = _of_responses(numbers)
    beta = spec.knobs.get("pairs.beta")
    if beta is not None and isinstance(beta.value, (int, float)) and beta.value > 0:
        more |= {name: _over(numbers[of], beta.value) for name, of in IN_NATS.items() if of in numbers}
    return {**numbers, **more}


def _of_rise(numbers: Numbers, rewards: Sequence[float | None]) -> list[float | None]:
    """Return each reward as a share of the rise from the start to the best level; nothing if it has not risen.

    It stands in for the share of the most where a reward has no known range: at the end of its rise a policy may know
    all that there is to know. Not where a trainer reports the largest reward: then it is known what else is earned.
    """
    values = _finite(rewards)
    if len(values) < 2 * _WINDOW or numbers.get("reward/max"):
        return []
    of = course(values, _WINDOW)
    rise = of.highest - of.start
    if rise <= _SURE * of.error_since_start:
        return []
    return [None if value is None else (value - of.start) / rise for value in rewards]


def _of_responses(numbers: Numbers) -> list[float | None]:
    """Return the newest divergences per token times the length of the step's responses: what it is of a whole one."""
    divergences, lengths = numbers.get(KL, ()), numbers.get(LENGTH, ())
    count = min(len(divergences), len(lengths))
    pairs = zip(divergences[len(divergences) - count :], lengths[len(lengths) - count :], strict=True)
    return [None if kl is None or length is None else kl * length for kl, length in pairs]


def _unseen(
    rewards: Sequence[float | None], most: float | None, deviations: Sequence[float | None]
) -> list[float | None]:
    """Return the most that noise may hide of a rise, as a share of what there is to gain; nothing of few steps.

    There is to gain what is missing to the most; where that is not known, two deviations of the samples of a step, or
    half of what there was at the start: a reward of which nothing is known may be near its most. It is no less than two
    deviations of a step's mean, as samples differ no less than means of them: those of one prompt may all earn the same
    while prompts differ, and what a reward starts at depends on where its zero is.
    """
    values = _finite(rewards)
    if len(values) < 2 * _WINDOW:
        return []
    rise = most_rise(values)
    start = course(values, _WINDOW).start
    spread = _finite(deviations)
    of_samples = 2 * math.fsum(spread) / len(spread) if spread else _OF_START * abs(start)
    left = most - start if most else max(of_samples, 2 * noise(values))
    return [rise / left if left > 0 else math.inf if rise else 0.0]


def _over(values: Sequence[float | None], unit: float) -> list[float | None]:
    return [None if value is None else value / unit for value in values]


def _most(spec: RunSpec, numbers: Numbers, rewards: Sequence[float | None]) -> float | None:
    """Return the most that a response can earn; None where nobody knows.

    What the spec says counts first, then the largest reward that a trainer has reported. Of others the most is taken to
    be 1 if no step's mean is above it: nearly all rewards that check an answer give 1 for a right one. Others
    show it once steps reach it again and again.
    """
    if spec.is_native and all(part.kind in _UP_TO_ONE for part in spec.reward.parts):
        return math.fsum(max(0.0, part.weight) for part in spec.reward.parts) or None
    reported = _finite(numbers.get("reward/max", ()))
    if reported:
        return max(reported) if max(reported) > 0 else None
    values = _finite(rewards)
    highest = max(values, default=0.0)
    return 1.0 if 0 < highest <= 1 else _ceiling(values)


def _ceiling(values: Sequence[float]) -> float | None:
    """Return the highest of the rewards if they reach it again and again, from below: all samples earn the most then.

    It has to be in a quarter of the newest steps, and above 0, as shares of it are taken.
    """
    newest = values[-2 * _WINDOW :]
    if len(newest) < 2 * _WINDOW:
        return None
    highest, start = max(values), course(values, _WINDOW).start
    is_reached = highest > max(0.0, start) and 4 * newest.count(highest) >= len(newest)
    return highest if is_reached else None


def _finite(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None and math.isfinite(value)]
