"""Where the time of a window goes by what was called within what: a tree for a flame graph, names with their callers.

Events of one thread that lie in each other are one path; equal paths of all threads and times are one node. `total` is
their time inside the window, `own` that without the nodes below. Frames inside frames of a framework count as well.
"""

import itertools
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from profiling.analysis.intervals import Bools, Ints
from profiling.analysis.too_many import TooManyEvents
from profiling.trace.category import Category
from profiling.trace.nesting import Nesting
from profiling.trace.store import Store

By = Literal["operators", "frames", "ranges"]

MOST_EVENTS = 2_000_000
"""Events of a window; more would take seconds."""
MOST_NODES = 1_500
MOST_NAMES = 200
MOST_CALLERS = 8

_RANGES = (Category.STEP, Category.PHASE, Category.RANGE, Category.BATCH)
_CATEGORIES: dict[By, tuple[Category, ...]] = {
    "operators": (*_RANGES, Category.OPERATOR, Category.RUNTIME, Category.SYNC, Category.COMMUNICATION),
    "frames": (Category.PYTHON, Category.NATIVE),
    "ranges": _RANGES,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FlameNode:
    """Equal paths: `parent` is the place of the node above among the nodes, -1 for none. Times in ns."""

    name: str
    category: int
    parent: int
    depth: int
    count: int
    total: int
    own: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """What events of a name were called from ("": nothing), and their own time when they were. [ns]"""

    name: str
    own: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NameTime:
    """All events of one name: `total` counts those inside another of the name once. Times in ns."""

    name: str
    category: int
    count: int
    total: int
    own: int
    callers: tuple[Caller, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Flame:
    """`nodes` with the most time, parents before children; `names` by own time; `total` of all roots [ns].

    `left_out` nodes were too small; what they took is in their parents.
    """

    total: int
    events: int
    nodes: tuple[FlameNode, ...]
    names: tuple[NameTime, ...]
    left_out: int


def flame(store: Store, *, begin: int, end: int, by: By) -> Flame:
    """Return where the time of [begin, end) (Unix ns) goes on all threads together. Raises: TooManyEvents."""
    tree, category = _read(store, begin, end, by)
    return tree.summed(store, category, begin, end)


def own_times(store: Store, *, begin: int, end: int, by: By) -> dict[str, int]:
    """Return how long each name was the innermost in [begin, end) (Unix ns), on all threads together [ns].

    Raises: TooManyEvents.
    """
    tree, _ = _read(store, begin, end, by)
    _, own = tree.times(begin, end)
    sums = np.bincount(np.array(tree.name_of, np.int64), weights=own, minlength=len(store.names))
    return {store.names[number]: int(sums[number]) for number in np.flatnonzero(sums).tolist()}


def _read(store: Store, begin: int, end: int, by: By) -> tuple["_Tree", Ints]:
    """Return the paths of a window and the category of each event of theirs, in their order. Raises: TooManyEvents."""
    lanes = [lane.id for lane in store.lanes if lane.kind == "thread" or (by == "ranges" and lane.kind == "phase")]
    categories = [int(one) for one in _CATEGORIES[by]]
    rows = store.sql(
        "SELECT count(*) AS n FROM ev WHERE list_contains(?, lane) AND list_contains(?, cat) AND ts < ? "
        "AND ts + dur > ?",
        [lanes, categories, end, begin],
    )
    count = int(rows["n"][0])
    if count > MOST_EVENTS:
        raise TooManyEvents(
            f"The window holds {count:,} of these events; {MOST_EVENTS:,} are summed up at most. Choose a shorter one."
        )
    events = store.events(
        lanes=lanes, categories=categories, begin=begin, end=end, columns=("lane", "ts", "dur", "name", "cat")
    )
    thread_of = _threads(store)
    thread = thread_of[events["lane"]] if count else np.empty(0, np.int64)
    tree = _Tree(thread, events["ts"].astype(np.int64), events["dur"].astype(np.int64), events["name"].astype(np.int64))
    return tree, events["cat"][tree.order].astype(np.int64)


def _threads(store: Store) -> Ints:
    """Return the number of the thread of each lane [lanes]: frames have lanes beside what they call."""
    keys = {(lane.process, lane.pid, lane.tid, lane.kind): i for i, lane in enumerate(store.lanes)}
    return np.array([keys[lane.process, lane.pid, lane.tid, lane.kind] for lane in store.lanes], np.int64)


class _Tree:
    """The paths of events that are sorted by thread and start. Nodes are numbered level by level."""

    def __init__(self, thread: Ints, ts: Ints, dur: Ints, name: Ints) -> None:
        self.order = np.lexsort((-dur, ts, thread))
        thread, self.ts, self.dur, self.name = (
            thread[self.order], ts[self.order], dur[self.order], name[self.order]
        )  # fmt: skip
        self.depth = np.zeros(len(ts), np.int64)
        cuts = [0, *(np.flatnonzero(np.diff(thread)) + 1).tolist(), len(ts)]
        for a, b in itertools.pairwise(cuts):
            self.depth[a:b] = Nesting().depths(self.ts[a:b], self.dur[a:b])
        self.node = np.full(len(ts), -1, np.int64)
        self.parent_of: list[int] = []
        self.name_of: list[int] = []
        self.depth_of: list[int] = []
        self._number()

    def _number(self) -> None:
        """Give each event the node of its path."""
        above: Ints = np.empty(0, np.int64)
        order = np.argsort(self.depth, kind="stable")
        bounds = np.searchsorted(self.depth[order], np.arange(int(self.depth.max(initial=-1)) + 2))
        for level in range(len(bounds) - 1):
            rows = order[bounds[level] : bounds[level + 1]]
            parent = np.full(len(rows), -1, np.int64)
            if len(above):
                at = above[np.maximum(np.searchsorted(above, rows) - 1, 0)]
                is_inside = (at < rows) & (self.ts[at] + self.dur[at] > self.ts[rows]) & (self.ts[at] <= self.ts[rows])
                parent[is_inside] = self.node[at[is_inside]]
            keys, first, node = np.unique((parent + 1) << 24 | self.name[rows], return_index=True, return_inverse=True)
            self.node[rows] = len(self.parent_of) + node
            self.parent_of += parent[first].tolist()
            self.name_of += self.name[rows[first]].tolist()
            self.depth_of += [level] * len(keys)
            above = rows

    def times(self, begin: int, end: int) -> tuple[Ints, Ints]:
        """Return the time of each node in [begin, end), and that without the nodes below [nodes]. [ns]"""
        n = len(self.parent_of)
        parent = np.array(self.parent_of, np.int64)
        length = np.minimum(self.ts + self.dur, end) - np.maximum(self.ts, begin)
        total = np.bincount(self.node, weights=length, minlength=n).astype(np.int64)
        inner = np.bincount(parent[parent >= 0], weights=total[parent >= 0], minlength=n).astype(np.int64)
        return total, np.maximum(total - inner, 0)

    def summed(self, store: Store, category: Ints, begin: int, end: int) -> Flame:
        n = len(self.parent_of)
        parent, name = np.array(self.parent_of, np.int64), np.array(self.name_of, np.int64)
        total, own = self.times(begin, end)
        count = np.bincount(self.node, minlength=n)
        kind = np.zeros(n, np.int64)
        kind[self.node] = category
        largest = _largest(parent, total)
        place = np.cumsum(largest) - 1
        nodes = tuple(
            FlameNode(
                name=store.names[name[i]],
                category=int(kind[i]),
                parent=int(place[parent[i]]) if parent[i] >= 0 else -1,
                depth=self.depth_of[i],
                count=int(count[i]),
                total=int(total[i]),
                own=int(own[i]),
            )
            for i in np.flatnonzero(largest).tolist()
        )
        return Flame(
            total=int(total[parent < 0].sum()),
            events=len(self.ts),
            nodes=nodes,
            names=_by_name(store, parent, name, kind, count, total, own),
            left_out=n - len(nodes),
        )


def _largest(parent: Ints, total: Ints) -> Bools:
    """Return which nodes have the most time. A parent has as much as its child, and comes first if they are equal."""
    largest = np.zeros(len(total), np.bool_)
    largest[np.argsort(-total, kind="stable")[:MOST_NODES]] = True
    largest &= total > 0
    for i in np.flatnonzero(largest).tolist():  # crossing events may be longer than what they are in
        if parent[i] >= 0 and not largest[parent[i]]:
            largest[i] = False
    return largest


def _by_name(
    store: Store, parent: Ints, name: Ints, kind: Ints, count: npt.NDArray[np.int64], total: Ints, own: Ints
) -> tuple[NameTime, ...]:
    """Return the names by their own time, with what they were called from."""
    size = len(store.names)
    own_of = np.bincount(name, weights=own, minlength=size)
    calls = np.bincount(name, weights=count, minlength=size)
    outermost = ~_is_inside_itself(parent, name)
    total_of = np.bincount(name[outermost], weights=total[outermost], minlength=size)
    chosen = [int(i) for i in np.argsort(-own_of, kind="stable")[:MOST_NAMES] if calls[i]]
    names = []
    for number in chosen:
        rows = np.flatnonzero(name == number)
        above = np.where(parent[rows] >= 0, name[np.maximum(parent[rows], 0)], -1)
        callers, which = np.unique(above, return_inverse=True)
        shares = np.bincount(which, weights=own[rows])
        most = np.argsort(-shares, kind="stable")[:MOST_CALLERS].tolist()
        names.append(
            NameTime(
                name=store.names[number],
                category=int(kind[rows[0]]),
                count=int(calls[number]),
                total=int(total_of[number]),
                own=int(own_of[number]),
                callers=tuple(
                    Caller(name=store.names[callers[i]] if callers[i] >= 0 else "", own=int(shares[i])) for i in most
                ),
            )
        )
    return tuple(names)


def _is_inside_itself(parent: Ints, name: Ints) -> Bools:
    """Return which nodes have one of their own name somewhere above."""
    inside = np.zeros(len(parent), np.bool_)
    at = parent.copy()
    while (at >= 0).any():
        has = at >= 0
        inside[has] |= name[at[has]] == name[has]
        at[has] = parent[at[has]]
    return inside
