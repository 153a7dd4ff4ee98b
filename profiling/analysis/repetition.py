"""Steps where nothing marks them, found by what repeats: the kernels of a device.

A kernel that comes round once an iteration, at nearly equal distances counted in kernels, with nearly the same kernels
between, is an anchor: an iteration goes from one of its beginnings to the next. Of several the one that comes least
often is taken, which has the longest iteration. What is found is a guess and has to be called one wherever it is shown.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from profiling.analysis.intervals import Ints
from profiling.evidence import Step
from profiling.trace.category import DEVICE, Category

if TYPE_CHECKING:
    from profiling.trace.store import Lane, Store

LEAST, MOST = 3, 10_000
"""How often an anchor occurs."""
SPREAD = 0.02
"""By so much of their mean the distances of an anchor vary at most (standard deviation)."""
COVERED = 0.90
"""The share of all kernels that lie in the iterations of an anchor, with those that the recording cut."""
ALIKE = 0.95
"""The share of kernels that neighbouring iterations have in common, by name and number."""
HELD = 0.50
"""The share of the device's time that iterations hold at least, with one that the recording cut at either end: numbers
of less are not those of the program."""


def found_steps(store: "Store", lanes: Iterable["Lane"]) -> tuple[Step, ...]:
    """Return the iterations of the worker that has these lanes of a store, numbered from 1 on; () if none repeat.

    Of its streams the one with most time in kernels that compute is looked at: collectives last as long as they wait
    for other ranks, and come several times an iteration. A single kernel again and again is no iteration where the
    device has other kernels, nor is a collective.
    """
    streams = [lane.id for lane in lanes if lane.kind == "stream"]
    kernels = [int(Category.KERNEL), int(Category.COMMUNICATION)]
    busiest = store.sql(
        "SELECT lane FROM ev WHERE list_contains(?, lane) AND list_contains(?, cat) GROUP BY lane "
        "ORDER BY sum(dur) FILTER (WHERE cat = ?) DESC NULLS LAST, sum(dur) DESC, lane LIMIT 1",
        [streams, kernels, int(Category.KERNEL)],
    )["lane"]
    if not len(busiest):
        return ()
    rows = store.sql(
        "SELECT ts, name FROM ev WHERE lane = ? AND list_contains(?, cat) ORDER BY ts, rowid",
        [int(busiest[0]), kernels],
    )
    begins = rows["ts"].astype(np.int64, copy=False)
    places = repeated(rows["name"].astype(np.int64, copy=False))
    if len(places) and int(places[-1] - places[0]) == len(places) - 1:
        others = store.sql(
            "SELECT 1 AS one FROM ev WHERE list_contains(?, lane) AND list_contains(?, cat) AND (name != ? OR cat = ?) "
            "LIMIT 1",
            [streams, kernels, int(rows["name"][places[0]]), int(Category.COMMUNICATION)],
        )["one"]
        if len(others):
            return ()
    if len(places) and not _holds_most(store, streams, int(begins[places[0]]), int(begins[places[-1]]), len(places)):
        return ()
    bounds = zip(begins[places[:-1]].tolist(), begins[places[1:]].tolist(), strict=True)
    return tuple(Step(number=i, begin=a, end=b) for i, (a, b) in enumerate(bounds, 1) if b > a)


def _holds_most(store: "Store", streams: Sequence[int], begin: int, end: int, num_anchors: int) -> bool:
    """Return True if iterations from the first to the last anchor hold most of what the streams did."""
    (before,), (inside,), (after,) = store.sql(
        "SELECT coalesce(sum(dur) FILTER (WHERE ts < ?), 0)::DOUBLE AS before, "
        "coalesce(sum(dur) FILTER (WHERE ts >= ? AND ts < ?), 0)::DOUBLE AS inside, "
        "coalesce(sum(dur) FILTER (WHERE ts >= ?), 0)::DOUBLE AS after "
        "FROM ev WHERE list_contains(?, lane) AND list_contains(?, cat)",
        [begin, begin, end, end, list(streams), [int(one) for one in DEVICE]],
    ).values()
    mean = inside / (num_anchors - 1)
    return bool(inside + min(before, mean) + min(after, mean) >= HELD * (before + inside + after))


def repeated(names: Ints) -> Ints:
    """Return the places [m] of the anchor in a sequence of kernels by name [n]; none if there is no anchor.

    The first iteration may differ from the others, and is left out then: gradients and the state of an optimizer are
    made in it, and libraries look for their fastest kernel.
    """
    if len(names) < LEAST:
        return np.empty(0, np.int64)
    keys, where, counts = np.unique(names, return_inverse=True, return_counts=True)
    order = np.argsort(where, kind="stable")  # the places of each name, one name after the other
    first = np.cumsum(counts) - counts
    candidates = np.flatnonzero((counts >= LEAST) & (counts <= MOST))
    candidates = candidates[np.lexsort((order[first[candidates]], counts[candidates]))]
    for one in candidates.tolist():
        every = order[first[one] : first[one] + counts[one]]
        for places in (every, every[1:]) if len(every) > LEAST else (every,):
            if _is_even(places, len(names)) and _is_alike(where, places, len(keys)):
                return np.asarray(places, np.int64)
    return np.empty(0, np.int64)


def _is_even(places: Ints, num_kernels: int) -> bool:
    """Return True if an anchor's distances are nearly equal and cover the sequence.

    Before its first and after its last up to one more iteration may lie that the recording cut.
    """
    distances = np.diff(places)
    mean = float(distances.mean())
    ends = min(float(places[0]), mean) + min(float(num_kernels - places[-1]), mean)
    covered = float(places[-1] - places[0]) + ends
    return covered >= COVERED * num_kernels and float(distances.std()) < SPREAD * mean


def _is_alike(where: Ints, places: Ints, num_names: int) -> bool:
    """Return True if each iteration has nearly the kernels of the one before."""
    last: Ints | None = None
    for a, b in zip(places[:-1].tolist(), places[1:].tolist(), strict=True):
        held = np.bincount(where[a:b], minlength=num_names)
        if last is not None and np.minimum(last, held).sum() < ALIKE * max(int(last.sum()), int(held.sum())):
            return False
        last = held
    return True


def common(sides: Sequence[tuple[Step, ...]]) -> tuple[Step, ...]:
    """Return the iterations of several workers together, each from the first that begins it to the last that ends it.

    Where they have different numbers of iterations nothing tells which are the same: those of the first worker count.
    """
    filled = [steps for steps in sides if steps]
    if not filled:
        return ()
    if len({len(steps) for steps in filled}) > 1:
        return filled[0]
    steps: list[Step] = []
    for same in zip(*filled, strict=True):
        begin = max(min(step.begin for step in same), steps[-1].end if steps else 0)
        end = max(step.end for step in same)
        if end > begin:
            steps.append(Step(number=same[0].number, begin=begin, end=end))
    return tuple(steps)
