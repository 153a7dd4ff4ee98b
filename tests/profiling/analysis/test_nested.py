"""Parents, own time and what is innermost, against an oracle that looks at every event."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from profiling.analysis.nested import Nest
from tests.profiling.analysis.made import events_of

MOST = 64


@st.composite
def calls(draw, begin=0, end=MOST, depth=0):
    """Return calls as a program makes them: each lies whole in its caller, none overlaps its neighbour."""
    found = []
    at = begin
    while at < end and len(found) < 4 and draw(st.booleans()):
        start = draw(st.integers(at, end - 1))
        until = draw(st.integers(start + 1, end))
        found.append((start, until))
        if depth < 3:
            found += draw(calls(begin=start, end=until, depth=depth + 1))
        at = until
    return found


def _nest(*lanes):
    rows = [(number, a, b) for number, own in enumerate(lanes) for a, b in own]
    lane, ts, end = (
        (np.array(column, np.int64) for column in zip(*rows, strict=True)) if rows else [np.empty(0, int)] * 3
    )
    return Nest(events_of({"lane": lane, "ts": ts, "dur": end - ts, "name": np.arange(len(rows))}))


@given(calls(), calls(), st.lists(st.integers(-1, MOST + 1), max_size=12))
def test_innermost_is_the_shortest_that_is_under_way(one, other, moments) -> None:
    nest = _nest(one, other)
    for number, own in enumerate((one, other)):
        rows = nest.innermost(np.full(len(moments), number, np.int64), np.array(moments, np.int64))
        for moment, row in zip(moments, rows.tolist(), strict=True):
            around = [b - a for a, b in own if a <= moment < b]
            assert (nest.events.dur[row] if row >= 0 else None) == min(around, default=None)


@given(calls())
def test_own_times_add_up_to_the_time_in_any_call(own) -> None:
    nest = _nest(own)
    assert nest.own.sum() == len({moment for a, b in own for moment in range(a, b)})
    assert (nest.own >= 0).all()


@given(calls(), st.integers(0, MOST), st.integers(0, MOST))
def test_pieces_cut_a_window_without_a_gap(own, begin, end) -> None:
    nest = _nest(own)
    begins, ends, rows = nest.pieces(0, begin, max(begin, end))
    assert (ends - begins).sum() == max(0, end - begin)
    for a, b, row in zip(begins.tolist(), ends.tolist(), rows.tolist(), strict=True):
        for moment in range(a, b):
            assert nest.innermost(np.array([0]), np.array([moment])).tolist() == [row]


def test_parents_by_hand() -> None:
    nest = _nest([(0, 10), (1, 4), (2, 3), (5, 9), (12, 14)])
    assert nest.parents.tolist() == [-1, 0, 1, 0, -1]
    assert nest.own.tolist() == [3, 2, 1, 4, 2]
    assert nest.depth.tolist() == [0, 1, 2, 1, 0]
