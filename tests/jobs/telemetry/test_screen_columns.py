"""Columns of a screen hold every point: no spike is lost at any zoom, and a value that is no number is told."""

import math

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from jobs.telemetry.screen_columns import ScreenGrid, columns_of, step_grid

Steps = st.lists(st.integers(-5, 400), min_size=1, max_size=200).map(sorted)
Values = st.floats(-1e6, 1e6) | st.sampled_from([math.nan, math.inf, -math.inf])


@given(Steps, st.data(), st.integers(8, 60))
@example([0], None, 8)
def test_every_point_lies_within_its_column(steps: list[int], data: st.DataObject | None, num_columns: int) -> None:
    y = data.draw(st.lists(Values, min_size=len(steps), max_size=len(steps))) if data else [math.nan]
    grid = step_grid(low=steps[0], high=steps[-1], num_columns=num_columns)

    found = columns_of(np.array(steps), np.array(y), np.array(y), grid=grid)

    assert len(found.column) <= num_columns
    assert found.of == len(steps)
    assert found.smooth is not None
    by_column: dict[int, list[float]] = {}
    for step, value in zip(steps, y, strict=True):
        by_column.setdefault((step - steps[0]) // int(grid.width), []).append(value)
    assert found.column.tolist() == sorted(by_column)
    odd = dict(found.odd)
    for i, column in enumerate(found.column.tolist()):
        own = by_column[column]
        finite = [value for value in own if math.isfinite(value)]
        assert np.array_equal(
            [found.low[i], found.high[i]],
            [min(finite, default=math.nan), max(finite, default=math.nan)],
            equal_nan=True,
        )
        assert np.isclose(found.y[i], sum(finite) / len(finite) if finite else math.nan, equal_nan=True)
        assert np.array_equal(found.smooth[i], own[-1], equal_nan=True)
        strange = [value for value in own if not math.isfinite(value)]
        assert np.array_equal(odd.get(column, 0.0), strange[0] if strange else 0.0, equal_nan=True)


@given(st.integers(1, 19_998), st.integers(1, 2000), st.floats(0, 1), st.booleans())
def test_a_planted_spike_is_there_at_every_zoom(place: int, columns: int, share: float, is_time: bool) -> None:
    x = np.arange(20_000)
    y = np.full(20_000, 0.2)
    y[place] = 50.0
    low = int(share * place)
    high = place + int(share * (len(x) - 1 - place))
    part = slice(low, high + 1)
    grid = step_grid(low=low, high=high, num_columns=max(8, columns))
    if is_time:
        grid = ScreenGrid(low=low * 0.37, width=(high - low + 1) * 0.37 / columns)

    found = (
        columns_of(x[part] * 0.37, y[part], None, grid=grid)
        if is_time
        else columns_of(x[part], y[part], None, grid=grid)
    )

    (spike,) = np.flatnonzero(found.high == 50.0)
    own = int(grid.places(np.array([place * 0.37 if is_time else place]))[0])
    assert found.column[spike] == own
    assert found.of == high - low + 1
