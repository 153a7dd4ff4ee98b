"""Events that a file holds twice, as files do that were merged or written one behind the other.

Kernels at one moment on one stream, and events that share a number of their tool, are one event. Of others, which have
no number, two may be at one moment where the clock is coarse: they count as one only in a file that holds some of the
former, or half of whose events come twice.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from profiling.trace.category import DEVICE

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_BLOCK = 500_000
_HALF = 0.4
"""From this share of all events on that come twice, a file is taken to hold everything twice."""
_KEYS = ("lane", "ts", "dur", "name", "link", "outer", "bytes", "info")

Columns = dict[str, npt.NDArray[Any]]


def drop_repeated(connection: "DuckDBPyConnection", note: Callable[[Literal["warning"], str], None]) -> None:
    """Leave out of the table `sorted` (by lane, ts and dur) what comes again, and say how much that was."""
    (total,) = connection.execute("SELECT count(*) FROM sorted").fetchall()[0]
    sure, unsure = _found(connection, total)
    rows = np.concatenate([sure, unsure]) if len(sure) or len(unsure) >= _HALF * total else sure
    if not len(rows):
        return
    again = {"row": np.unique(rows)}  # noqa: F841  (the statement below reads it)
    connection.execute(
        "CREATE TEMP TABLE once AS SELECT s.* FROM sorted s ANTI JOIN again a ON s.rowid = a.row ORDER BY s.rowid; "
        "DROP TABLE sorted; ALTER TABLE once RENAME TO sorted"
    )
    note(
        "warning",
        f"{len(rows):,} events were in the file twice, equal in all that is known: one of each counts.",
    )


def _found(connection: "DuckDBPyConnection", total: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the rows that come again: those that surely are one event, and the others."""
    sure, unsure = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for rows in _candidates(connection, total):
        order = np.lexsort((rows["row"], *(rows[key] for key in reversed(_KEYS))))
        again = np.ones(len(order) - 1, np.bool_)
        for key in _KEYS:
            again &= rows[key][order[1:]] == rows[key][order[:-1]]
        places = order[1:][again]
        has_number = (rows["link"][places] != 0) | (rows["outer"][places] != 0)
        on_device = np.isin(rows["cat"][places], [int(one) for one in DEVICE]) & (rows["dur"][places] > 0)
        is_sure = has_number | on_device
        sure.append(rows["row"][places[is_sure]])
        unsure.append(rows["row"][places[~is_sure]])
    return np.concatenate(sure), np.concatenate(unsure)


def _candidates(connection: "DuckDBPyConnection", total: int) -> Iterator[Columns]:
    """Yield, block by block, the rows that have lane, begin and length of a neighbour."""
    for first in range(0, total, _BLOCK):
        # one row more on either side, so that no pair is torn; a larger group at a border is seen in parts
        between = [max(first - 1, 0), first + _BLOCK - 1]
        block = connection.execute(
            "SELECT rowid AS row, lane, ts, dur FROM sorted WHERE rowid BETWEEN ? AND ? ORDER BY rowid", between
        ).fetchnumpy()
        same = np.ones(max(len(block["row"]) - 1, 0), np.bool_)
        for key in ("ts", "dur", "lane"):
            same &= block[key][1:] == block[key][:-1]
        if not same.any():
            continue
        wanted = {"row": block["row"][np.append(same, False) | np.insert(same, 0, False)]}  # noqa: F841
        yield connection.execute(
            "SELECT s.rowid AS row, s.* FROM sorted s SEMI JOIN wanted w ON s.rowid = w.row ORDER BY s.rowid"
        ).fetchnumpy()
