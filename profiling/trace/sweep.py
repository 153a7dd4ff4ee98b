"""How deep each event of a sorted trace lies in others of its lane, and on which lane it is drawn."""

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from profiling.trace.frames import Ints, Packages, Runs
from profiling.trace.lanes import Lanes
from profiling.trace.nesting import MOST_DEPTHS, Nesting

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_BLOCK = 100_000  # rows per insert: below one row group of DuckDB, so that their order is kept
_SWEEP = 200_000  # events per block


def fill_depths(connection: "DuckDBPyConnection", lanes: Lanes, names: Sequence[str]) -> bool:
    """Fill the table `depths` with a row for each of `sorted`, lane by lane, in blocks.

    Returns True where events lie deeper than a store tells apart.
    """
    run = connection.execute
    sweep = _Sweep(lanes, names if lanes.have_frames else [])
    (total,) = run("SELECT count(*) FROM sorted").fetchall()[0]
    for first in range(0, total, _SWEEP):
        block = run(
            "SELECT lane, ts, dur, name FROM sorted WHERE rowid BETWEEN ? AND ? ORDER BY rowid",
            [first, first + _SWEEP - 1],
        ).fetchnumpy()
        cuts = [0, *(np.flatnonzero(np.diff(block["lane"])) + 1).tolist(), len(block["lane"])]
        drawn, depths = zip(
            *(
                sweep.part(int(block["lane"][a]), block["ts"][a:b], block["dur"][a:b], block["name"][a:b])
                for a, b in itertools.pairwise(cuts)
            ),
            strict=True,
        )
        lane, depth = np.concatenate(drawn).astype(np.int32), np.concatenate(depths).astype(np.int16)
        for a in range(0, len(depth), _BLOCK):
            piece = {"lane": lane[a : a + _BLOCK], "depth": depth[a : a + _BLOCK]}  # noqa: F841  (read below)
            run("INSERT INTO depths SELECT * FROM piece")
    return sweep.deepest == MOST_DEPTHS - 1


class _Sweep:
    """Depths, lane by lane; they come one after the other."""

    def __init__(self, lanes: Lanes, names: Sequence[str]) -> None:
        self._lanes = lanes
        self._package = Packages().numbers(names)
        self._lane = -1
        self.deepest = 0

    def part(self, lane: int, ts: Ints, dur: Ints, name: Ints) -> tuple[Ints, Ints]:
        """Return on which lane and how deep each event of the next part of a lane is drawn. All [n]."""
        if lane != self._lane:
            self._lane = lane
            self._nesting, self._outer, self._inner = Nesting(), Nesting(), Nesting()
            self._runs = Runs()
        lanes = np.full(len(ts), lane, np.int64)
        depth = self._nesting.depths(ts, dur)
        self.deepest = max(self.deepest, int(depth.max()))
        if not self._lanes.holds_frames(lane):
            return lanes, depth
        is_inner = self._runs.inner(depth, self._package[name])
        beside = self._lanes.beside(lane, is_needed=bool(is_inner.any()))
        if beside == lane:
            return lanes, depth
        depth[~is_inner] = self._outer.depths(ts[~is_inner], dur[~is_inner])
        depth[is_inner] = self._inner.depths(ts[is_inner], dur[is_inner])
        lanes[is_inner] = beside
        return lanes, depth
