"""How deep each event lies in its lane, so that no two events of one row overlap.

Events that nest get the number of events that are open when they start. Where they cross (streams that run two kernels
at once, ranges that end elsewhere than they began) an event takes the lowest row that is free.
"""

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

MOST_DEPTHS = 256
"""Rows of a lane; what lies deeper shares the last one."""


class Nesting:
    """The sweep over one lane, block by block. Events come by start, longest first where starts are equal."""

    def __init__(self) -> None:
        self._open = np.empty(0, np.int64)  # ends of what is open, one per row that is taken
        self._rows = np.empty(0, np.int64)  # and the rows

    def depths(self, start: Ints, duration: Ints) -> Ints:
        """Return the depth of each event of the next block. All [n], in ns."""
        end = start + duration
        if len(start) == 0:
            return np.empty(0, np.int64)
        depth = self._counted(start, end, duration > 0)
        if depth is None or self._collides(depth, start, end):
            depth = self._first_free(start, end)
        depth = np.minimum(depth, MOST_DEPTHS - 1)
        self._carry(depth, end, int(start[-1]))
        return depth

    def _counted(self, start: Ints, end: Ints, lasts: npt.NDArray[np.bool_]) -> Ints | None:
        """Return how many events are open at each start; None where rows of earlier blocks are not just the lowest."""
        carried = self._open
        if len(carried) and not np.array_equal(np.sort(self._rows), np.arange(len(carried))):
            return None
        if len(carried) > 1 and not bool((np.diff(carried[np.argsort(self._rows)]) <= 0).all()):
            return None  # the deeper one ends later: they cross
        begun: Ints = np.cumsum(lasts) - lasts  # events that last, before each one
        over = np.searchsorted(np.sort(end[lasts]), start, side="right")
        over_carried = np.searchsorted(np.sort(carried), start, side="right")
        return np.asarray(begun - over + len(carried) - over_carried, np.int64)

    def _collides(self, depth: Ints, start: Ints, end: Ints) -> bool:
        """Return True if two events of one row overlap."""
        order = np.argsort(depth, kind="stable")
        row, first, last = depth[order], start[order], end[order]
        same = row[1:] == row[:-1]
        if bool((same & (first[1:] < last[:-1])).any()):
            return True
        for taken, until in zip(self._rows, self._open, strict=True):
            at = np.searchsorted(row, taken)
            if at < len(row) and row[at] == taken and first[at] < until:
                return True
        return False

    def _first_free(self, start: Ints, end: Ints) -> Ints:
        """Return the lowest free row of each event, one by one."""
        ends = [0] * (int(self._rows.max()) + 1 if len(self._rows) else 0)
        for row, until in zip(self._rows.tolist(), self._open.tolist(), strict=True):
            ends[row] = until
        rows = np.empty(len(start), np.int64)
        for i, (first, last) in enumerate(zip(start.tolist(), end.tolist(), strict=True)):
            row = 0
            for until in ends:
                if until <= first:
                    break
                row += 1
            if row == len(ends) and row < MOST_DEPTHS:
                ends.append(last)
            elif row < MOST_DEPTHS:
                ends[row] = last
            rows[i] = row
        return rows

    def _carry(self, depth: Ints, end: Ints, now: int) -> None:
        """Keep what is still open at the last start, for the next block."""
        rows = np.concatenate([self._rows, depth])
        ends = np.concatenate([self._open, end])
        is_open = ends > now
        rows, ends = rows[is_open], ends[is_open]
        self._rows, first = np.unique(rows, return_inverse=True)
        self._open = np.zeros(len(self._rows), np.int64)
        np.maximum.at(self._open, first, ends)
