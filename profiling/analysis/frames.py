"""Python frames of the leading thread in long idle gaps: which function of the program's own it was in, and how long.

Frames are many, so those of the gaps alone are read. A frame is named `module:function:line`, as the torch profiler
records it: "data/prep.py(12): shuffle" is `data.prep:shuffle:12`, with the line at which the function begins.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from profiling.analysis.intervals import EMPTY, Intervals, Ints, union
from profiling.trace.category import Category
from profiling.trace.nesting import Nesting

if TYPE_CHECKING:
    from profiling.trace.store import Lane, Store

MOST_GAPS = 1000
"""Gaps whose frames are read, the longest ones."""

_FRAME = re.compile(r"^(?P<file>[^()<>]+?)\.py\((?P<line>\d+)\): (?P<function>.+)$")
_FRAMEWORK = re.compile(
    r"(?:^|/)(?:torch|torchvision|accelerate|lightning|pytorch_lightning)/|(?:^|/)multiprocessing/|(?:^|/)importlib/"
    r"|(?:^|/)(?:threading|runpy|contextlib|functools)$|^frozen "
)
_PARTS = 3  # of a path, that name its module


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameTime:
    """How long gaps lay in a function, and in how many of them. [ns]"""

    name: str
    ns: int
    gaps: int


@dataclass(frozen=True, kw_only=True)
class Frames:
    """Frames of gaps as columns [n]: begin and end (Unix ns), name, and which gap each piece lies in, by begin."""

    begin: Ints
    end: Ints
    name: Sequence[str]
    gap: Ints

    @property
    def union(self) -> Intervals:
        """When any was under way."""
        return union(self.begin, self.end)

    def named(self, begin: int, end: int) -> str:
        """Return the function in which most of [begin, end) lay, "" for none."""
        totals: dict[str, int] = {}
        for i in np.flatnonzero((self.begin < end) & (self.end > begin)).tolist():
            inside = min(int(self.end[i]), end) - max(int(self.begin[i]), begin)
            totals[self.name[i]] = totals.get(self.name[i], 0) + inside
        return max(totals, key=lambda name: totals[name], default="")

    def within(self, moments: Intervals) -> tuple[FrameTime, ...]:
        """Return the functions by their time in some moments, the longest first."""
        times: dict[str, tuple[int, set[int]]] = {}
        for i, name in enumerate(self.name):
            inside = np.minimum(moments.end, self.end[i]) - np.maximum(moments.begin, self.begin[i])
            ns = int(np.maximum(inside, 0).sum())
            if ns:
                before, gaps = times.get(name, (0, set()))
                times[name] = before + ns, gaps | {int(self.gap[i])}
        unsorted = [FrameTime(name=name, ns=ns, gaps=len(gaps)) for name, (ns, gaps) in times.items()]
        return tuple(sorted(unsorted, key=lambda one: (-one.ns, one.name)))


NONE = Frames(begin=EMPTY.begin, end=EMPTY.begin, name=(), gap=EMPTY.begin)


def own_name(frame: str) -> str:
    """Return a frame as `module:function:line`; "" for one of the framework, or of no file (a built-in)."""
    match = _FRAME.match(frame)
    if match is None or _FRAMEWORK.search(match["file"]):
        return ""
    module = ".".join(match["file"].strip("/").split("/")[-_PARTS:])
    return f"{module}:{match['function']}:{match['line']}"


def frames_in(
    store: "Store",
    thread: "Lane",
    gaps: Intervals,
    *,
    category: Category = Category.PYTHON,
    name_of: Callable[[str], str] = own_name,
) -> Frames:
    """Return what of the program's own a thread was in during the gaps, the innermost function at each moment.

    Frames that `name_of` calls "" are passed over.
    """
    if len(gaps) > MOST_GAPS:
        rows = np.sort(np.argsort(-gaps.lengths, kind="stable")[:MOST_GAPS])
        gaps = Intervals(gaps.begin[rows], gaps.end[rows])
    names = {i: own for i, text in enumerate(store.names) if (own := name_of(text))}
    lanes = [lane.id for lane in store.lanes if (lane.pid, lane.tid) == (thread.pid, thread.tid)]
    if not names or not len(gaps):
        return NONE
    columns = store.sql(
        "SELECT g.n AS gap, greatest(e.ts, g.first) AS first, least(e.ts + e.dur, g.last) AS last, e.name FROM "
        "(SELECT unnest(range(len($begin))) AS n, unnest($begin) AS first, unnest($end) AS last) g JOIN "
        "(SELECT ts, dur, name FROM ev WHERE cat = $cat AND list_contains($lanes, lane)) e "
        "ON e.ts < g.last AND e.ts + e.dur > g.first ORDER BY gap, first, last DESC, e.ts",
        {"begin": gaps.begin.tolist(), "end": gaps.end.tolist(), "cat": int(category), "lanes": lanes},
    )
    keep = np.isin(columns["name"], list(names))
    return _innermost({key: values[keep] for key, values in columns.items()}, names)


def _innermost(rows: Mapping[str, Ints], names: Mapping[int, str]) -> Frames:
    """Cut frames, sorted by gap and begin with the longer first, so that each moment has the innermost one."""
    begins, ends, chosen, gaps = [], [], [], []
    for gap in np.unique(rows["gap"]).tolist():
        own = rows["gap"] == gap
        first, last, name = rows["first"][own], rows["last"][own], rows["name"][own]
        depth = Nesting().depths(first, last - first)
        edges = np.unique(np.concatenate([first, last]))
        deepest = np.full(len(edges) - 1, -1, np.int64)
        for row in np.argsort(depth, kind="stable").tolist():
            deepest[np.searchsorted(edges, first[row]) : np.searchsorted(edges, last[row])] = row
        for piece in np.flatnonzero(deepest >= 0).tolist():
            begins.append(int(edges[piece]))
            ends.append(int(edges[piece + 1]))
            chosen.append(names[int(name[deepest[piece]])])
            gaps.append(gap)
    as_ints = [np.array(values, np.int64) for values in (begins, ends, gaps)]
    return Frames(begin=as_ints[0], end=as_ints[1], name=chosen, gap=as_ints[2])
