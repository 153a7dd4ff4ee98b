"""Memory over time, by hand."""

import numpy as np
import pytest

from profiling.analysis.memory import at, fragmentation, memory_of, running, thinned


def _curve(*points):
    return np.array([t for t, _ in points], np.int64), np.array([v for _, v in points], float)


def test_the_peak_has_its_moment_and_what_was_reserved_then() -> None:
    found = memory_of(
        {"allocated": _curve((0, 10), (5, 60), (9, 20)), "reserved": _curve((0, 40), (4, 80), (8, 120))}, device=0
    )
    assert found is not None
    assert (found.peak, found.peak_at, found.reserved) == (60, 5, 80)
    assert found.fragmentation == 0.25
    assert [(curve.name, curve.peak, curve.peak_at, curve.at_peak) for curve in found.curves] == [
        ("allocated", 60, 5, 60),
        ("reserved", 120, 8, 80),
    ]


def test_categories_add_up_where_nobody_told_the_sum() -> None:
    found = memory_of({"weights": _curve((0, 10)), "activations": _curve((2, 5), (4, 30), (6, 0))}, device=-1)
    assert found is not None
    assert (found.peak, found.peak_at, found.reserved, found.fragmentation) == (40, 4, None, None)
    assert [curve.at_peak for curve in found.curves] == [10, 30]
    assert memory_of({"allocated": _curve()}, device=0) is None


def test_changes_add_up_and_a_curve_holds_its_value() -> None:
    assert running(np.array([5.0, -2.0, 4.0])).tolist() == [5, 3, 7]
    curve = _curve((10, 5), (20, 3))
    assert [at(*curve, moment) for moment in (9, 10, 19, 20, 99)] == [0, 5, 5, 3, 3]


def test_a_thinned_curve_keeps_every_peak() -> None:
    times = np.arange(100_000)
    values = np.sin(times / 50.0)
    values[77_777], values[33_333] = 9.0, -9.0
    points = thinned(times, values)
    assert len(points) <= 400
    assert (77_777, 9.0) in points
    assert (33_333, -9.0) in points
    assert [t for t, _ in points] == sorted({t for t, _ in points})


@pytest.mark.parametrize(
    ("allocated", "reserved", "share"), [(80, 100, 0.2), (0, 0, None), (5, None, None), (9, 8, None)]
)
def test_fragmentation_is_what_of_the_reserved_is_not_used(allocated, reserved, share) -> None:
    assert fragmentation(allocated, reserved) == share
