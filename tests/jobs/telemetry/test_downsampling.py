"""Down-sampling shows every spike and every NaN; smoothing does not change with it."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from jobs.telemetry.chunks import points, roll_up, rows_of_points
from jobs.telemetry.downsampling import sample, sort_rows
from jobs.telemetry.smoothing import Smoothing, smooth

values = st.lists(st.sampled_from([math.nan, math.inf, -math.inf]) | st.floats(-1e9, 1e9), min_size=1, max_size=400)


def rows_of(y: list[float]) -> object:
    return rows_of_points(points(range(len(y)), range(len(y)), y))


@given(values, st.integers(8, 60))
def test_each_bin_keeps_its_extremes_and_a_nan_and_the_ends_stay(y: list[float], num_points: int) -> None:
    rows = rows_of(y)

    found = sample(rows, num_points=num_points)

    kept = dict(zip(found.x.tolist(), found.y.tolist(), strict=True))
    assert len(found.x) <= num_points
    assert found.x.tolist() == sorted(kept)
    assert {0, len(y) - 1} <= set(kept)
    for x, value in kept.items():  # every point shown is a real one
        assert value == y[x] or (math.isnan(value) and math.isnan(y[x]))
    if found.is_whole:
        assert len(kept) == len(y)
        return
    width = -(-len(y) // ((num_points - 2) // (3 if any(map(math.isnan, y)) else 2)))
    for start in range(0, len(y), width):
        part = y[start : start + width]
        shown = [kept[x] for x in range(start, start + len(part)) if x in kept]
        known = [v for v in part if not math.isnan(v)]
        if known:
            assert min(known) in shown
            assert max(known) in shown
        assert any(map(math.isnan, part)) == any(map(math.isnan, shown))


@given(values, st.integers(8, 60))
def test_rolled_up_rows_give_real_points_and_the_same_extremes(y: list[float], num_points: int) -> None:
    rows = roll_up(rows_of(y), width=10)  # type: ignore[arg-type]

    found = sample(rows, num_points=num_points)

    assert len(found.x) <= num_points
    for x, value in zip(found.x.tolist(), found.y.tolist(), strict=True):
        assert value == y[x] or (math.isnan(value) and math.isnan(y[x]))
    known = [v for v in y if not math.isnan(v)]
    if known:
        assert min(known) in found.y.tolist()
        assert max(known) in found.y.tolist()
    assert bool(np.isnan(found.y).any()) == any(map(math.isnan, y))


def test_smoothed_values_do_not_depend_on_how_many_points_are_drawn() -> None:
    y = np.random.default_rng(0).normal(size=5000)
    rows = rows_of(y.tolist())
    averages = smooth(rows, Smoothing(kind="ema", amount=0.9))  # type: ignore[arg-type]

    found = sample(rows, num_points=100)

    assert averages[found.place].tolist() == [averages[x] for x in found.x]


def test_steps_that_went_back_are_put_in_order() -> None:
    rows = sort_rows(rows_of_points(points([3, 1, 2], [0, 0, 0], [30.0, 10.0, 20.0])))

    assert (rows.x0.tolist(), rows.y0.tolist()) == ([1, 2, 3], [10.0, 20.0, 30.0])
