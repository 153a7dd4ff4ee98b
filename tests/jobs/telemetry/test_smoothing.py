"""Smoothing is what its definition says, point by point, and the same whatever part of a series is looked at."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.ingest.compaction import append_points
from jobs.models import Metric
from jobs.telemetry.chunks import points, rows_of_points
from jobs.telemetry.series import SeriesWindow, read_series
from jobs.telemetry.smoothing import Smoothing, parse_smoothing, smooth, smooth_values
from tests.rows import make_run

ALL = (
    Smoothing(kind="ema", amount=0.1),
    Smoothing(kind="ema", amount=0.6),
    Smoothing(kind="ema", amount=0.999),
    Smoothing(kind="gaussian", amount=0.7),
    Smoothing(kind="gaussian", amount=12),
    Smoothing(kind="mean", amount=1),
    Smoothing(kind="mean", amount=7),
)


def weights(smoothing: Smoothing, distance: int) -> float:
    """Return how much a point counts that lies `distance` points before the one that is smoothed."""
    if smoothing.kind == "gaussian":
        return math.exp(-0.5 * (distance / smoothing.amount) ** 2)
    if distance < 0:
        return 0.0
    return smoothing.amount**distance if smoothing.kind == "ema" else float(distance < smoothing.amount)


def expected(y: Sequence[float], place: int, smoothing: Smoothing) -> float:
    own = [weights(smoothing, place - i) for i in range(len(y))]
    return math.fsum(w * value for w, value in zip(own, y, strict=True)) / math.fsum(own)


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=150), st.sampled_from(ALL))
def test_smoothed_values_are_the_weighted_means(y: list[float], smoothing: Smoothing) -> None:
    found = smooth_values(np.array(y), smoothing)

    assert found.tolist() == pytest.approx([expected(y, i, smoothing) for i in range(len(y))], rel=1e-6, abs=1e-5)


@pytest.mark.parametrize("weight", [0.01, 0.6, 0.999])
@pytest.mark.parametrize("num", [1, 31, 32, 33, 1023, 1025, 8191, 8192, 8193, 40_000])
def test_an_exponential_average_goes_on_from_block_to_block(num: int, weight: float) -> None:
    y = np.random.default_rng(num).normal(size=num)
    wanted, newest, counted = [], 0.0, 0.0
    for value in y.tolist():
        newest, counted = weight * newest + (1 - weight) * value, weight * counted + 1 - weight
        wanted.append(newest / counted)

    np.testing.assert_allclose(smooth_values(y, Smoothing(kind="ema", amount=weight)), wanted, rtol=1e-9, atol=1e-12)


def test_a_huge_value_changes_nothing_before_it() -> None:
    plain, smoothing = np.random.default_rng(3).normal(size=10_000), Smoothing(kind="ema", amount=0.9)
    spiked = plain.copy()
    spiked[5_001] = 1e300

    found, wanted = smooth_values(spiked, smoothing), smooth_values(plain, smoothing)

    assert found[:5_001].tolist() == wanted[:5_001].tolist()
    assert found[5_001] == pytest.approx(1e299)


@pytest.mark.parametrize("smoothing", ALL)
def test_a_long_series_is_smoothed_like_a_short_one(smoothing: Smoothing) -> None:
    y = np.random.default_rng(1).normal(size=20_000)
    found = smooth_values(y, smoothing)

    for place in (0, 1, 63, 64, 1023, 5000, 19_998, 19_999):
        before, after = smoothing.reach
        low = max(0, place - 3 * before)
        part = y[low : place + after + 1].tolist()
        assert found[place] == pytest.approx(expected(part, place - low, smoothing), abs=1e-7)


def test_what_is_not_finite_is_passed_over() -> None:
    y = [math.nan, 1.0, math.inf, 3.0, math.nan]
    found = smooth(rows_of_points(points(range(5), range(5), y)), Smoothing(kind="mean", amount=2))

    assert math.isnan(found[0])
    assert found[1:].tolist() == [1.0, 1.0, 2.0, 2.0]


@pytest.mark.parametrize("smoothing", [one for one in ALL if not one.is_none])
def test_a_huge_value_spoils_no_other_beyond_its_reach(smoothing: Smoothing) -> None:
    y = np.ones(60_000)
    y[30_000] = 1e30
    found = smooth_values(y, smoothing)

    assert found[:15_000].tolist() == pytest.approx([1.0] * 15_000)
    if smoothing.kind != "ema":  # which never forgets all of it
        assert found[-15_000:].tolist() == pytest.approx([1.0] * 15_000)


@pytest.mark.django_db
@pytest.mark.parametrize("text", ["0.6", "ema:0.99", "gaussian:40", "mean:700"])
def test_a_smoothed_value_is_the_same_at_every_zoom(text: str) -> None:
    run = make_run()
    row = Metric.objects.create(run=run, name="loss")
    x = np.arange(1, 250_001)
    y = np.random.default_rng(0).normal(size=len(x))
    append_points({row.pk: points(x, x, y)}, attempt=1, through=0)
    smoothing = parse_smoothing(text)
    truth = smooth_values(y, smoothing)  # type: ignore[arg-type]

    for low, high, width in ((None, None, 200), (None, None, 1500), (100_000, 240_000, 300), (123_400, 123_900, 1000)):
        (found,) = read_series(
            run_id=run.pk,
            names=["loss"],
            num_points=width,
            smoothing=smoothing,
            window=SeriesWindow(low=low, high=high),
        ).series
        assert found.smooth is not None
        assert np.abs(found.smooth - truth[found.x - 1]).max() < 1e-6


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1", "smooth: 1 is not in 0"),
        ("-0.1", "smooth: -0.1 is not in 0"),
        ("nan", "is not a weight like"),
        ("median:4", "'median:4' is not a weight like"),
        ("gaussian:0", "gaussian:0 is not above 0"),
        ("mean:1e9", r"mean:1e\+09 is not above 0"),
        ("gaussian:", "is not a weight like"),
    ],
)
def test_a_smoothing_that_there_is_not_is_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_smoothing(text)
