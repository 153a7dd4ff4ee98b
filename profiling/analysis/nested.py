"""Events that lie in each other on their lanes: parents, own time, and what is innermost at a moment."""

from functools import cached_property

import numpy as np

from profiling.analysis.intervals import Bools, Ints
from profiling.analysis.work import Events
from profiling.trace.nesting import Nesting


class Nest:
    """The nesting of some events. Rows are places in `events`, -1 stands for none."""

    def __init__(self, events: Events) -> None:
        self.events = events
        self.depth = np.zeros(len(events), np.int64)
        lanes, first = np.unique(events.lane, return_index=True)
        cuts = [*first.tolist(), len(events)]
        self._levels: dict[int, list[Ints]] = {}
        for i, lane in enumerate(lanes.tolist()):
            a, b = cuts[i], cuts[i + 1]
            depth = Nesting().depths(events.ts[a:b], events.dur[a:b])
            self.depth[a:b] = depth
            order = np.argsort(depth, kind="stable") + a
            bounds = np.searchsorted(depth[order - a], np.arange(int(depth.max()) + 2))
            self._levels[lane] = [order[bounds[d] : bounds[d + 1]] for d in range(len(bounds) - 1)]

    def innermost(self, lane: Ints, moments: Ints) -> Ints:
        """Return the row of the deepest event that is under way on a lane at a moment. All [m]."""
        event_rows = np.full(len(moments), -1, np.int64)
        for number, levels in self._levels.items():
            of_lane = np.flatnonzero(lane == number)
            if not len(of_lane):
                continue
            for rows in levels:
                at, is_there = self._under_way(rows, moments[of_lane])
                event_rows[of_lane[is_there]] = rows[at[is_there]]
        return event_rows

    def _under_way(self, rows: Ints, moments: Ints) -> tuple[Ints, Bools]:
        """Return the last event of a level that began by each moment, and whether it is under way."""
        starts = self.events.ts[rows]
        at = np.searchsorted(starts, moments, side="right") - 1
        is_there = (at >= 0) & (moments < starts[at] + self.events.dur[rows[at]])
        return at, is_there

    @cached_property
    def parents(self) -> Ints:
        """The row of the innermost event that holds each event whole [n]."""
        parent_rows = np.full(len(self.events), -1, np.int64)
        end = self.events.end
        for levels in self._levels.values():
            for depth in range(1, len(levels)):
                open_rows = levels[depth]
                for above in range(depth - 1, -1, -1):
                    if not len(open_rows):
                        break
                    rows = levels[above]
                    at, is_there = self._under_way(rows, self.events.ts[open_rows])
                    is_there &= end[rows[at]] >= end[open_rows]
                    parent_rows[open_rows[is_there]] = rows[at[is_there]]
                    open_rows = open_rows[~is_there]
        return parent_rows

    @cached_property
    def own(self) -> Ints:
        """The time of each event without that of its children [n]. [ns]"""
        parents = self.parents
        inner = np.zeros(len(self.events), np.int64)
        has = parents >= 0
        np.add.at(inner, parents[has], self.events.dur[has])
        return np.maximum(self.events.dur - inner, 0)

    def pieces(self, lane: int, begin: int, end: int) -> tuple[Ints, Ints, Ints]:
        """Cut [begin, end) of a lane where anything begins or ends: begins, ends and the innermost row of each [m]."""
        in_lane = self.events.lane == lane
        ts, until = self.events.ts[in_lane], self.events.end[in_lane]
        edges = np.unique(np.clip(np.concatenate([[begin, end], ts, until]), begin, end)).astype(np.int64)
        starts = edges[:-1]
        return starts, edges[1:], self.innermost(np.full(len(starts), lane, np.int64), starts)
