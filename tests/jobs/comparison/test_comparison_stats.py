"""Intervals worked out by hand, and their promise kept on drawn series: about 95 % of them hold the truth."""

import math

import numpy as np
import pytest

from jobs.comparison.stats import (
    MIN_STEPS,
    ConfidenceInterval,
    RunSpread,
    batch_error,
    correlated_mean_interval,
    mean_interval,
    median_interval,
    pooled_spread,
    ratio_interval,
    t_quantile,
    welch_interval,
)


def test_the_error_of_a_mean_comes_from_the_spread_of_batch_means() -> None:
    # five batches of two: means 1.5, 3.5, 5.5, 7.5, 9.5; their variance (n - 1) is 40 / 4 = 10
    mean, error = batch_error(np.arange(1, 11, dtype=float), num_batches=5)

    assert mean == 5.5
    assert error == pytest.approx(math.sqrt(10 / 5))


def test_a_mean_of_ten_steps_reaches_t_times_its_error() -> None:
    found = mean_interval(np.arange(1, 11, dtype=float))

    assert found is not None
    assert (found.value, found.n) == (5.5, 10)
    assert found.half == pytest.approx(2.776 * math.sqrt(2))
    assert found.low == pytest.approx(5.5 - 2.776 * math.sqrt(2))


def test_only_the_last_twenty_finite_values_count() -> None:
    values = np.concatenate([np.full(30, 1000.0), [math.nan, math.inf], np.tile([1.0, 3.0], 10)])

    found = mean_interval(values)

    assert found == ConfidenceInterval(value=2.0, low=2.0, high=2.0, n=20)  # each batch of four has the mean 2


def test_too_few_steps_give_no_interval() -> None:
    assert mean_interval(np.arange(9, dtype=float)) is None
    assert median_interval(np.array([1.0] * 9 + [math.nan])) is None


def test_the_median_of_even_noise_is_a_sign_test() -> None:
    # alternating: every batch has as many above as below, so the error is that of independent values: 0.5 / 10;
    # ten batches: t(9) = 2.262; reach 0.1131 of 100 values: the order statistics 38 and 61, counted from 0
    values = np.tile([0.0, 1.0], 50) + np.arange(100) / 1000
    ordered = np.sort(values)

    found = median_interval(values)

    assert found is not None
    assert found.value == pytest.approx((ordered[49] + ordered[50]) / 2)
    assert (found.low, found.high) == (ordered[38], ordered[61])


def test_slow_drifts_widen_the_interval_of_a_median() -> None:
    noise = np.random.default_rng(0).normal(size=400)
    shuffled = median_interval(noise)
    drifting = median_interval(np.sort(noise))

    assert shuffled is not None
    assert drifting is not None
    assert drifting.half > 3 * shuffled.half


def test_a_ratio_recovers_its_variances_from_both_intervals() -> None:
    # logs: 2/1 with bounds one tenth around each: the half widths add as squares
    tenth = math.exp(0.1)
    one = ConfidenceInterval(value=2.0, low=2.0 / tenth, high=2.0 * tenth, n=50)
    base = ConfidenceInterval(value=1.0, low=1.0 / tenth, high=1.0 * tenth, n=40)

    found = ratio_interval(one, base)

    assert found is not None
    assert found.value == pytest.approx(2.0)
    assert found.low == pytest.approx(2.0 * math.exp(-0.1 * math.sqrt(2)))
    assert found.high == pytest.approx(2.0 * math.exp(0.1 * math.sqrt(2)))
    assert found.n == 40


def test_a_ratio_to_nothing_is_none() -> None:
    zero = ConfidenceInterval(value=1.0, low=0.0, high=2.0, n=10)

    assert ratio_interval(zero, zero) is None


def test_groups_differ_by_the_spread_of_their_runs() -> None:
    # variances 1 and 4, three runs each: error sqrt(1/3 + 4/3), degrees (5/3)^2 / ((1/9 + 16/9) / 2) = 2.94, so 2
    found = welch_interval(np.array([4.0, 5.0, 6.0]), np.array([1.0, 3.0, 5.0]))

    assert found is not None
    assert (found.value, found.n) == (2.0, 6)
    assert found.half == pytest.approx(4.303 * math.sqrt(5 / 3))
    assert welch_interval(np.array([4.0]), np.array([1.0, 3.0])) is None
    same = welch_interval(np.array([2.0, 2.0]), np.array([1.0, 1.0]))
    assert same is not None
    assert (same.low, same.high) == (1.0, 1.0)


def test_excluding_means_not_reaching() -> None:
    found = ConfidenceInterval(value=2.0, low=1.0, high=3.0, n=10)

    assert not found.excludes(1.0)
    assert found.excludes(0.99)
    assert found.excludes(3.01)


def test_the_table_of_t_is_that_of_the_books() -> None:
    assert [t_quantile(d) for d in (1, 4, 9, 29)] == [12.706, 2.776, 2.262, 2.045]


@pytest.mark.parametrize("memory", [0.0, 0.6])
def test_about_nineteen_of_twenty_intervals_hold_the_truth(memory: float) -> None:
    """Log-normal step times with autocorrelation `memory`, the second run truly 1.2 times as slow."""
    rng = np.random.default_rng(7)
    hits = 0
    for _ in range(200):
        sides = []
        for scale in (1.2, 1.0):
            noise = rng.normal(size=250)
            for i in range(1, len(noise)):
                noise[i] = memory * noise[i - 1] + math.sqrt(1 - memory**2) * noise[i]
            sides.append(median_interval(scale * np.exp(0.2 * noise[50:])))
        assert sides[0] is not None
        assert sides[1] is not None
        found = ratio_interval(sides[0], sides[1])
        assert found is not None
        hits += found.low <= 1.2 <= found.high

    assert 176 <= hits <= 200  # 88 % or more; batches of a few steps leave a little correlation behind


def test_what_wanders_slowly_has_a_wider_interval_than_its_batches_say() -> None:
    rng = np.random.default_rng(4)
    noise = rng.normal(size=60)
    slow = np.zeros(60)
    for i in range(1, 60):
        slow[i] = 0.9 * slow[i - 1] + noise[i]

    assert_halves(noise, least=1.0, most=1.6)
    assert_halves(slow, least=1.5, most=np.inf)
    same = correlated_mean_interval(np.ones(30))
    assert same is not None
    assert (same.low, same.high) == (1.0, 1.0)
    assert correlated_mean_interval(np.ones(MIN_STEPS - 1)) is None


def test_what_grows_along_a_line_is_not_taken_for_noise() -> None:
    """A run that collapses beside one that learns: the difference grows to the last step."""
    steps = np.arange(1, 61)
    learned = 0.3 + 0.69 * (1 - np.exp(-steps / 18)) + np.random.default_rng(0).normal(0, 0.04, 60)

    found = correlated_mean_interval(-learned)

    assert found is not None
    assert found.value == pytest.approx(-0.96, abs=0.01)
    assert found.half < 0.5  # it was 3.4


def assert_halves(values: np.ndarray, *, least: float, most: float) -> None:
    """The interval that minds correlation is so many times as wide as the one by batches."""
    batches, minded = mean_interval(values), correlated_mean_interval(values)
    assert batches is not None
    assert minded is not None
    assert minded.value == batches.value
    assert least <= minded.half / batches.half <= most


def test_the_spread_between_repeats_is_pooled_within_configurations() -> None:
    # logs 0, 0.1, 0.2 about 0.1 and 5, 5.1, 5.2 about 5.1: squares 0.02 each, of 2 + 2 degrees; of one run nothing
    found = pooled_spread([np.exp([0.0, 0.1, 0.2]), np.exp([5.0, 5.1, 5.2]), [3.0]])

    assert found is not None
    assert found.log_sd == pytest.approx(math.sqrt(0.04 / 4))
    assert (found.degrees, found.num_runs) == (4, 6)
    assert pooled_spread([[1.0, 1.1], [2.0, 2.1], [3.0, 3.1]]) is None  # three degrees


def test_a_ratio_of_two_runs_covers_their_spread_beside_the_noise_of_steps() -> None:
    # Student's t of 11 degrees is 2.201: 2.201 * sqrt(2) * 0.036 = 0.1121, and hypot(0.1, 0.1121) = 0.1502
    ratio = ConfidenceInterval(value=1.0, low=math.exp(-0.1), high=math.exp(0.1), n=40)

    found = RunSpread(log_sd=0.036, degrees=11).widened(ratio)

    assert (found.value, found.n) == (1.0, 40)
    assert (math.log(found.low), math.log(found.high)) == pytest.approx((-0.1502, 0.1502), abs=1e-4)


def test_with_a_measured_spread_one_pair_in_twenty_of_equal_runs_is_told_apart() -> None:
    rng = np.random.default_rng(1)
    told_apart = 0
    for _ in range(2000):
        repeats = np.exp(rng.normal(0, 0.03, size=(3, 4)))
        one, base = np.exp(rng.normal(0, 0.03, size=2))
        spread = pooled_spread(list(repeats))
        assert spread is not None
        exact = ConfidenceInterval(value=one / base, low=one / base, high=one / base, n=1000)
        told_apart += spread.widened(exact).excludes(1)

    assert 0.035 <= told_apart / 2000 <= 0.065
