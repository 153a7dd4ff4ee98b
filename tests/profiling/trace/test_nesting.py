"""Depths: nested events lie below each other, no two events of a row overlap, whatever the blocks."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiling.trace.nesting import MOST_DEPTHS, Nesting


def depths(events: list[tuple[int, int]], block: int = 1000) -> list[int]:
    """Sweep (start, duration) as the writer does: sorted, in blocks."""
    ordered = sorted(events, key=lambda event: (event[0], -event[1]))
    start, duration = (np.array(column, np.int64) for column in zip(*ordered, strict=True))
    nesting = Nesting()
    found = [nesting.depths(start[i : i + block], duration[i : i + block]) for i in range(0, len(start), block)]
    return np.concatenate(found).tolist()


@pytest.mark.parametrize("block", [1, 2, 1000])
def test_nested_events_get_their_level(block: int) -> None:
    # |0--------------------100|  |100--120|
    #   |10---50| |50--90|
    #    |10-20|
    assert depths([(0, 100), (10, 40), (10, 10), (50, 40), (100, 20)], block) == [0, 1, 2, 1, 0]


@pytest.mark.parametrize("block", [1, 1000])
def test_crossing_events_take_the_lowest_free_row(block: int) -> None:
    # 0-10, 5-15 crosses it, 12-20 crosses that one: the row of the first is free again
    assert depths([(0, 10), (5, 10), (12, 8)], block) == [0, 1, 0]


def test_moments_without_length_stand_at_the_level_of_what_is_open() -> None:
    assert depths([(0, 0), (0, 0), (0, 10), (5, 0), (5, 0), (10, 0)]) == [0, 1, 1, 1, 1, 0]


def test_depth_is_bounded() -> None:
    deep = depths([(i, 10_000 - 2 * i) for i in range(1000)])
    assert deep == [min(i, MOST_DEPTHS - 1) for i in range(1000)]
    crossing = depths([(i, 10_000) for i in range(1000)])
    assert crossing == [min(i, MOST_DEPTHS - 1) for i in range(1000)]


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 30)), min_size=1, max_size=60),
    st.integers(1, 20),
)
def test_no_two_events_of_a_row_overlap(events: list[tuple[int, int]], block: int) -> None:
    ordered = sorted(events, key=lambda event: (event[0], -event[1]))
    found = depths(events, block)
    rows: dict[int, int] = {}
    for (start, duration), row in zip(ordered, found, strict=True):
        if duration:
            assert rows.get(row, 0) <= start
            rows[row] = start + duration


@st.composite
def nested(draw: st.DrawFn) -> list[tuple[int, int, int]]:
    """Events that nest properly, with the level that they were made at."""
    made: list[tuple[int, int, int]] = []

    def fill(begin: int, end: int, level: int) -> None:
        at = begin
        while at < end and len(made) < 60:
            at += draw(st.integers(0, 5))
            last = min(at + draw(st.integers(1, 20)), end)
            if last <= at:
                return
            made.append((at, last - at, level))
            if draw(st.booleans()) and last - at > 2:
                fill(at + 1, last, level + 1)  # a child that starts with its parent and is as long is no other picture
            at = last

    fill(0, 80, 0)
    return made


@settings(max_examples=100, deadline=None)
@given(nested(), st.integers(1, 20))
def test_what_nests_keeps_its_level(events: list[tuple[int, int, int]], block: int) -> None:
    if not events:
        return
    ordered = sorted(events, key=lambda event: (event[0], -event[1]))
    assert depths([event[:2] for event in ordered], block) == [event[2] for event in ordered]
