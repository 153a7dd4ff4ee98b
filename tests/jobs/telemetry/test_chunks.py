"""Chunks: lossless both ways; roll-ups whose numbers are those of the points they stand for."""

import math
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from jobs.telemetry.chunks import (
    decode_all,
    decode_points,
    decode_rows,
    decode_spans,
    encode_points,
    encode_rows,
    encode_spans,
    join_spans,
    points,
    roll_up,
    rows_of_points,
    spans_of,
)

numbers = st.floats(allow_nan=True, allow_infinity=True, width=64)
columns = st.lists(st.tuples(st.integers(-(2**62), 2**62), st.integers(0, 2**62), numbers), max_size=120)
few_numbers = st.sampled_from([math.nan, math.inf, -math.inf, 0.0, 1.0, -2.0, 1e300])
series = st.lists(few_numbers | st.floats(-1e6, 1e6), min_size=1, max_size=300)


def same(a: Any, b: Any) -> bool:
    return bool(np.array_equal(np.asarray(a, float), np.asarray(b, float), equal_nan=True))


@given(columns)
def test_points_come_back_bit_for_bit(rows: list[tuple[int, int, float]]) -> None:
    x, t, y = ([row[i] for row in rows] for i in range(3))
    data = points(x, t, y)

    back = decode_points(encode_points(data))

    assert back.x.tolist() == x
    assert back.t.tolist() == t
    assert same(back.y, data.y)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=5), st.booleans(), st.booleans())
def test_many_chunks_read_at_once_are_the_chunks_one_by_one(sizes: list[int], is_even: bool, is_float32: bool) -> None:
    rng = np.random.default_rng(len(sizes))
    parts = []
    for size in sizes:
        y = rng.normal(size=size)
        x = np.arange(size) * 3 if is_even else rng.integers(0, 99, size)
        parts.append(points(x, x, y.astype("f4") if is_float32 else y))

    found = decode_all([encode_points(part) for part in parts])

    assert found.x.tolist() == [x for part in parts for x in part.x.tolist()]
    assert found.y.tolist() == [y for part in parts for y in part.y.tolist()]


def test_even_float32_points_take_four_bytes_and_their_time() -> None:
    data = points(range(1000), range(1000), np.float32(np.random.default_rng(0).normal(size=1000)))

    assert len(encode_points(data)) < 4 * 1000 + 200


@given(series, st.integers(1, 40))
def test_a_roll_up_says_what_is_true_of_its_points(values: list[float], width: int) -> None:
    rows = roll_up(rows_of_points(points(range(len(values)), range(len(values)), values)), width=width)

    for i in range(len(rows)):
        part = np.array(values[i * width : (i + 1) * width])
        at = list(range(i * width, i * width + len(part)))
        known = part[~np.isnan(part)]
        finite = part[np.isfinite(part)]
        assert (rows.x0[i], rows.x1[i], rows.n[i]) == (at[0], at[-1], len(part))
        assert same(rows.y0[i], part[0])
        assert same(rows.y1[i], part[-1])
        assert rows.nan[i] == np.isnan(part).sum()
        assert rows.finite[i] == len(finite)
        if len(known):
            assert rows.ymin[i] == known.min()
            assert rows.ymax[i] == known.max()
            assert values[rows.xmin[i]] == rows.ymin[i]
            assert values[rows.xmax[i]] == rows.ymax[i]
        else:
            assert math.isnan(rows.ymin[i])
            assert math.isnan(rows.ymax[i])
        if rows.nan[i]:
            assert rows.xnan[i] == at[0] + int(np.isnan(part).argmax())
        if len(finite) and abs(finite).max() < 1e200:
            assert np.isclose(rows.mean[i], finite.mean(), rtol=1e-9, atol=1e-6)


@given(series)
def test_rolling_up_twice_is_rolling_up_once(values: list[float]) -> None:
    rows = rows_of_points(points(range(len(values)), range(len(values)), values))

    twice, once = roll_up(roll_up(rows, width=10), width=10), roll_up(rows, width=100)

    for column in ("x0", "x1", "xmin", "xmax", "n", "finite", "nan", "xnan", "y0", "y1", "ymin", "ymax"):
        assert same(getattr(twice, column), getattr(once, column)), column


@given(series)
def test_rows_come_back(values: list[float]) -> None:
    rows = roll_up(rows_of_points(points(range(len(values)), range(len(values)), values)), width=7)

    back = decode_rows(encode_rows(rows))

    for column in ("x0", "y0", "x1", "y1", "xmin", "ymin", "xmax", "ymax", "mean", "n", "finite", "nan", "xnan", "t0"):
        assert same(getattr(back, column), getattr(rows, column)), column


def test_spans_come_back_and_join_with_common_tables() -> None:
    def some(phase: str, name: str, start: int) -> Any:
        return spans_of(
            {"phase": [phase], "name": [name], "start": [str(start)], "duration": [5], "depth": [0], "step": [1]}
        )

    joined = join_spans([some("rollout", "", 1), some("update", "adam", 2), some("rollout", "adam", 3)])
    back = decode_spans(encode_spans(joined))

    assert [back.phases[i] for i in back.phase] == ["rollout", "update", "rollout"]
    assert [back.names[i] for i in back.name] == ["", "adam", "adam"]
    assert back.start.tolist() == [1, 2, 3]
    assert len(join_spans([])) == 0
