"""Sets of moments: unions of half-open intervals [begin, end) in ns, and arithmetic on them."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Ints: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Intervals:
    """A set of moments: sorted intervals [n] that neither overlap nor touch, none of them empty. Made by `union`."""

    begin: Ints
    end: Ints

    def __len__(self) -> int:
        return len(self.begin)

    @property
    def lengths(self) -> Ints:
        """How long each one is [n]."""
        return self.end - self.begin

    def contains(self, moments: Ints) -> Bools:
        """Return which moments [m] lie in the set."""
        at = np.searchsorted(self.begin, moments, side="right") - 1
        inside = at >= 0
        inside[inside] = moments[inside] < self.end[at[inside]]
        return inside


EMPTY = Intervals(np.empty(0, np.int64), np.empty(0, np.int64))


def interval(begin: int, end: int) -> Intervals:
    """Return the set of one interval, empty unless it begins before it ends."""
    if begin >= end:
        return EMPTY
    return Intervals(np.array([begin], np.int64), np.array([end], np.int64))


def union(begin: Ints, end: Ints) -> Intervals:
    """Return all moments that lie in any of the intervals [n], given in any order; empty ones count for nothing."""
    keep = end > begin
    begin, end = begin[keep], end[keep]
    if not len(begin):
        return EMPTY
    if len(begin) > 1 and not bool((begin[1:] >= begin[:-1]).all()):
        order = np.argsort(begin, kind="stable")
        begin, end = begin[order], end[order]
    until = np.maximum.accumulate(end)
    first = np.empty(len(begin), bool)
    first[0] = True
    first[1:] = begin[1:] > until[:-1]
    starts = np.flatnonzero(first)
    last = np.append(starts[1:] - 1, len(begin) - 1)
    return Intervals(begin[starts].astype(np.int64), until[last].astype(np.int64))


def joined(*sets: Intervals) -> Intervals:
    """Return the moments that lie in any of the sets."""
    filled = [one for one in sets if len(one)]
    if len(filled) < 2:
        return filled[0] if filled else EMPTY
    return union(np.concatenate([one.begin for one in filled]), np.concatenate([one.end for one in filled]))


def difference(one: Intervals, other: Intervals) -> Intervals:
    """Return the moments of one set that do not lie in the other."""
    if not len(one) or not len(other):
        return one
    return intersection(one, gaps(other, int(one.begin[0]), int(one.end[-1])))


def intersection(one: Intervals, other: Intervals) -> Intervals:
    """Return the moments that lie in both sets."""
    if not len(one) or not len(other):
        return EMPTY
    first = np.searchsorted(other.end, one.begin, side="right")
    last = np.searchsorted(other.begin, one.end, side="left")
    counts = np.maximum(last - first, 0)
    own_rows = np.repeat(np.arange(len(one)), counts)
    starts = np.cumsum(counts) - counts
    theirs = np.arange(int(counts.sum())) - np.repeat(starts, counts) + np.repeat(first, counts)
    begin = np.maximum(one.begin[own_rows], other.begin[theirs])
    end = np.minimum(one.end[own_rows], other.end[theirs])
    return Intervals(begin, end)


def clipped(one: Intervals, begin: int, end: int) -> Intervals:
    """Return the part of a set that lies in [begin, end)."""
    return intersection(one, interval(begin, end))


def gaps(one: Intervals, begin: int, end: int) -> Intervals:
    """Return the moments of [begin, end) that do not lie in the set."""
    if begin >= end:
        return EMPTY
    inner = clipped(one, begin, end)
    starts = np.concatenate([np.array([begin], np.int64), inner.end])
    ends = np.concatenate([inner.begin, np.array([end], np.int64)])
    keep = ends > starts
    return Intervals(starts[keep], ends[keep])


def total(one: Intervals) -> int:
    """Return how long a set is. [ns]"""
    return int((one.end - one.begin).sum())


def covered(begin: Ints, end: Ints, by: Intervals) -> Ints:
    """Return how much of each interval [n] (they may overlap) lies in a set. [ns]"""
    if not len(by):
        return np.zeros(len(begin), np.int64)
    return np.maximum(_before(end, by) - _before(begin, by), 0)


def _before(moments: Ints, by: Intervals) -> Ints:
    """Return how much of a set lies before each moment."""
    lengths = by.lengths
    sums = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    at = np.searchsorted(by.begin, moments, side="right")
    inside = np.zeros(len(moments), np.int64)
    some = at > 0
    inside[some] = np.minimum(moments[some], by.end[at[some] - 1]) - by.begin[at[some] - 1]
    return np.asarray(np.where(some, sums[np.maximum(at - 1, 0)] + inside, 0), np.int64)


def owned(begin: Ints, end: Ints) -> Ints:
    """Return how much of each interval [n] is its own: each moment belongs to the first that began, until its end.

    The intervals come sorted by begin. The sum is the length of their union.
    """
    if not len(begin):
        return np.empty(0, np.int64)
    until = np.maximum.accumulate(end)
    earlier = np.concatenate([begin[:1], until[:-1]])
    return np.asarray(np.maximum(end - np.maximum(begin, earlier), 0), np.int64)


Claim: TypeAlias = tuple[str, Intervals]


def partition(whole: Intervals, claims: Iterable[Claim], rest: str) -> dict[str, Intervals]:
    """Share out a set: each claim gets what none before it has taken, `rest` what is left.

    The parts are disjoint and make up the whole exactly. Claims of one name are joined; empty parts are left out.
    """
    parts: dict[str, list[Intervals]] = {}
    left = whole
    for key, wanted in claims:
        claimed = intersection(left, wanted)
        if len(claimed):
            parts.setdefault(key, []).append(claimed)
            left = difference(left, claimed)
    parts.setdefault(rest, []).append(left)
    shared = {key: joined(*claimed) for key, claimed in parts.items()}
    return {key: claimed for key, claimed in shared.items() if len(claimed)}
