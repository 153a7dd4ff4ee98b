"""Levels, their standard errors and trends of series, on mere noise and on rises of a known size."""

import math
import random
import statistics
from collections.abc import Callable

import pytest

from jobs.catalog.rules.course import change_error, course, gain, is_flat, least_rise, share

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


def test_the_least_rise_that_shows_is_that_of_the_trend() -> None:
    rng = random.Random(1)
    values = [rng.gauss(0, 0.1) for _ in range(300)]

    assert least_rise(values) == pytest.approx(0.082, rel=0.15)  # 4.1 * sqrt(12 / 300) of 0.1
    assert least_rise([0.25] * 30) == 0.0
