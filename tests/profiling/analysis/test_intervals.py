"""Interval arithmetic against an oracle that counts moments one by one."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from profiling.analysis import intervals as iv

MOST = 60
pairs = st.lists(st.tuples(st.integers(0, MOST), st.integers(0, MOST)), max_size=14)


def _arrays(found):
    begin = np.array([a for a, _ in found], np.int64)
    return begin, np.array([b for _, b in found], np.int64)


def _moments(found) -> set[int]:
    return {moment for a, b in found for moment in range(a, b)}


def _as_set(one: iv.Intervals) -> set[int]:
    """Return its moments, and see on the way that it is sorted, disjoint, and has no empty or touching parts."""
    assert (one.begin < one.end).all()
    assert (one.begin[1:] > one.end[:-1]).all()
    assert one.begin.dtype == one.end.dtype == np.int64
    return _moments(zip(one.begin.tolist(), one.end.tolist(), strict=True))


@given(pairs)
def test_a_union_holds_every_moment_once(found) -> None:
    one = iv.union(*_arrays(found))
    assert _as_set(one) == _moments(found)
    assert iv.total(one) == len(_moments(found))


@given(pairs, pairs)
def test_two_sets_meet_and_part_as_sets_do(found, other) -> None:
    a, b = iv.union(*_arrays(found)), iv.union(*_arrays(other))
    assert _as_set(iv.intersection(a, b)) == _moments(found) & _moments(other)
    assert _as_set(iv.difference(a, b)) == _moments(found) - _moments(other)
    assert _as_set(iv.joined(a, b)) == _moments(found) | _moments(other)


@given(pairs, st.integers(0, MOST), st.integers(0, MOST))
def test_gaps_and_the_part_inside_make_up_a_window(found, begin, end) -> None:
    one = iv.union(*_arrays(found))
    window = set(range(begin, end))
    assert _as_set(iv.gaps(one, begin, end)) == window - _moments(found)
    assert _as_set(iv.clipped(one, begin, end)) == window & _moments(found)


@given(pairs, pairs)
def test_covered_counts_for_each_interval_alone(found, by) -> None:
    counted = iv.covered(*_arrays(found), iv.union(*_arrays(by)))
    assert counted.tolist() == [len(_moments([one]) & _moments(by)) for one in found]


@given(pairs, st.lists(st.integers(-2, MOST + 2)))
def test_contains_is_membership(found, moments) -> None:
    inside = iv.union(*_arrays(found)).contains(np.array(moments, np.int64))
    assert inside.tolist() == [moment in _moments(found) for moment in moments]


@given(pairs)
def test_each_moment_is_owned_by_the_first_that_began(found) -> None:
    found = sorted(found)
    own, taken = [], set()
    for one in found:
        mine = _moments([one]) - taken
        taken |= mine
        own.append(len(mine))
    assert iv.owned(*_arrays(found)).tolist() == own
    assert sum(own) == len(_moments(found))


@given(pairs, st.lists(st.tuples(st.sampled_from("abc"), pairs), max_size=5))
def test_a_partition_gives_every_moment_to_the_first_who_claims_it(found, claims) -> None:
    whole = iv.union(*_arrays(found))
    parts = iv.partition(whole, [(key, iv.union(*_arrays(own))) for key, own in claims], "rest")
    wanted: dict[str, set[int]] = {}
    for moment in _moments(found):
        key = next((key for key, own in claims if moment in _moments(own)), "rest")
        wanted.setdefault(key, set()).add(moment)
    assert {key: _as_set(part) for key, part in parts.items()} == wanted
    assert sum(iv.total(part) for part in parts.values()) == iv.total(whole)
