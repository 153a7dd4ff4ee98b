"""Levels, their standard errors and trends of series, on mere noise and on rises of a known size."""

import math
import random
import statistics
from collections.abc import Callable

import pytest

from jobs.catalog.rules.course import (
    change_error,
    course,
    fell,
    gain,
    is_flat,
    is_on_grid,
    most_rise,
    noise,
    repeats,
    share,
)

SEEDS = 200


def share_flat(count: int, rise: Callable[[float], float]) -> float:
    """Return how many of some series are called flat; a rise is that in deviations of the noise, of a share of time."""
    flat = 0
    for seed in range(SEEDS):
        rng = random.Random(f"{count} {seed}")
        flat += is_flat([0.3 + 0.05 * (rise(i / (count - 1)) + rng.gauss(0, 1)) for i in range(count)])
    return flat / SEEDS


@pytest.mark.parametrize("count", [30, 60, 100, 300, 500, 1000])
def test_mere_noise_is_flat_however_long(count: int) -> None:
    assert share_flat(count, lambda _share: 0.0) >= 0.95


@pytest.mark.parametrize(("count", "deviations"), [(60, 2.0), (100, 1.6), (300, 1.0), (500, 0.8), (1000, 0.6)])
def test_a_steady_rise_is_not_flat(count: int, deviations: float) -> None:
    assert deviations > 4.1 * math.sqrt(12 / count)
    assert share_flat(count, lambda share: deviations * share) <= 0.02


@pytest.mark.parametrize(("count", "steps"), [(300, 30), (500, 25), (1000, 25)])
def test_a_rise_at_the_start_is_not_flat_later(count: int, steps: int) -> None:
    assert share_flat(count, lambda share: 2.0 * (1 - math.exp(-share * count / steps))) <= 0.02


def test_the_error_of_a_rise_counts_the_few_values_of_its_start() -> None:
    rng = random.Random(1)
    series = [[rng.gauss(0, 1) for _ in range(100)] for _ in range(600)]

    rises = [statistics.median(values[-50:]) - statistics.median(values[:5]) for values in series]

    # pi / 2 is the variance of a large sample's median; of five values it is 0.287, and not 0.314
    assert statistics.stdev(rises) == pytest.approx(math.sqrt(0.287 + math.pi / 2 / 50), rel=0.1)
    assert statistics.stdev(rises) == pytest.approx(change_error(5, 50), rel=0.1)


def test_a_course_holds_both_errors() -> None:
    values = [0.0, 1.0] * 20

    of = course(values, 10)

    assert of.error_since_start / of.error == pytest.approx(math.sqrt((1 / 5 + 1 / 10) / (1 / 10 + 1 / 10)))
    assert gain([*values, *[5.0, 6.0] * 20], 10)[0] == pytest.approx(5.5 / of.error_since_start, rel=0.1)


@pytest.mark.parametrize(
    ("values", "at_least"),
    [
        ([0.9] * 10, 0.840),  # tenths: ten groups a step, 90 of 100
        ([0.95, 0.96] * 5, 0.942),  # hundredths: 955 of 1,000
        ([1.0] * 10, 0.937),  # nobody knows how many groups: four a step are taken
        ([0.0] + [1.0] * 39, 0.895),  # one group a step, 39 of 40
        ([0.0, 1.0, 1.0, 1.0, 1.0] * 8, 0.679),  # 32 of 40
    ],
)
def test_a_share_is_known_by_how_many_groups_there_were(values: list[float], at_least: float) -> None:
    assert share(values, 10)[0] == pytest.approx(at_least, abs=0.001)


def test_ten_steps_of_one_group_tell_no_share() -> None:
    assert math.isnan(share([0.0, *[1.0] * 10], 10)[0])


def test_a_rise_that_noise_may_hide_is_larger_only_once_in_fifty() -> None:
    def bound(seed: int, rise: float) -> float:
        rng = random.Random(seed)
        return most_rise([rng.gauss(rise * step / 300, 0.1) for step in range(300)])

    assert sum(bound(seed, 0.05) < 0.05 for seed in range(SEEDS)) <= 0.05 * SEEDS
    assert statistics.median(bound(seed, -0.1) for seed in range(SEEDS)) == pytest.approx(0.041, rel=0.1)
    assert statistics.median(bound(seed, 0.05) for seed in range(SEEDS)) == pytest.approx(0.091, rel=0.1)
    assert most_rise([0.25] * 30) == 0.0


def test_a_fall_is_held_against_the_noise_of_its_later_half() -> None:
    """A reward that is hardly ever given at first is quiet then, and each step of few samples differs later."""
    quiet = [0.01 * (step % 3) for step in range(100)]
    rng = random.Random(4)
    few = [rng.choice((0.0, 0.5, 1.5, 2.5)) for _ in range(100)]

    assert course([*quiet, *few], 10).error > 3 * noise([*quiet, *few[:40]]) * change_error(10, 10)
    assert fell([*quiet, *few[:80]], 10)[0] == 0.0
    assert fell([*quiet, *few, *quiet], 10)[0] > 0.5


def few_samples(seed: int, shares: list[float], samples: int) -> list[float]:
    """Return mean rewards of 0 or 1, a step each, of a policy that is right in so many."""
    rng = random.Random(seed)
    return [sum(rng.random() < share for _ in range(samples)) / samples for share in shares]


@pytest.mark.parametrize("values", [[0.0, 0.25, 1.0, 0.5] * 10, [0.3333, 0.6667, 1.0] * 10, [-1.0, 1.0] * 10])
def test_shares_of_few_samples_lie_on_a_grid(values: list[float]) -> None:
    assert is_on_grid(values)


@pytest.mark.parametrize(
    "values",
    [
        [0.0, 0.1, 0.317, 0.9] * 10,  # come again, but no multiples of anything coarse
        [0.001 * i * i for i in range(40)],
        [0.0, 0.0, 0.0, 14.2, 0.0, 3.17] * 7,  # a gradient that is 0 where rewards do not differ
        [0.5] * 40,
    ],
)
def test_other_values_lie_on_none(values: list[float]) -> None:
    assert not is_on_grid(values)


def test_the_noise_of_few_samples_is_that_of_their_binomial() -> None:
    found = [noise(few_samples(seed, [0.15] * 60, 4)) for seed in range(50)]

    # of a policy that is mostly wrong most second differences are small; their median would say 0 or a grain
    assert statistics.fmean(found) == pytest.approx(math.sqrt(0.15 * 0.85 / 4), rel=0.1)


def test_few_samples_of_a_steady_policy_have_not_fallen() -> None:
    for seed in range(60):
        values = few_samples(seed, [0.5] * 40, 4)
        assert all(fell(values[:end], 10)[0] == 0 for end in range(15, 41))


def test_few_samples_of_a_policy_that_collapses_have() -> None:
    named = [fell(few_samples(seed, [0.9] * 30 + [0.1] * 30, 4), 10)[0] for seed in range(60)]

    assert all(share > 0.5 for share in named)


@pytest.mark.parametrize(
    ("same", "at_least"),
    [(20, 0.881), (18, 0.738), (14, 0.516)],
)
def test_the_same_value_again_and_again_is_told_by_how_often(same: int, at_least: float) -> None:
    values = [0.0] * same + [0.25 * (i + 1) for i in range(20 - same)]

    assert repeats(values) == pytest.approx(at_least, abs=0.001)


def test_a_first_value_is_the_start_alone_only_where_none_later_stands_out_as_far() -> None:
    quiet = [1.0, 1.02, 0.98, 1.01, 0.99, 1.03, 0.97] * 2

    assert course([5.0, *quiet], 10).start == 5.0  # all was over at once
    assert fell([5.0, *quiet], 10)[0] == pytest.approx((5.0 - 1.0) / (0.4 * 5.0), rel=0.02)
    assert course([5.0, *quiet[:8], 5.1, *quiet[8:]], 10).start == 1.01  # the median of the first five
    assert fell([5.0, *quiet[:8], 5.1, *quiet[8:]], 10)[0] == 0.0
    assert course([-5.0, *quiet[:8], 5.1, *quiet[8:]], 10).start == -5.0
