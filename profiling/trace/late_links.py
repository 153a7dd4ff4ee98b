"""What belongs together in a trace and is told apart from the events themselves, as arrows, often before or after them.

Ends are kept as they come and are joined with events by lane and time, in the database, once all events are there.
"""

import struct
from typing import TYPE_CHECKING

import numpy as np

from profiling.trace import schema
from profiling.trace.category import DEVICE, Category

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

MOST_ARROWS = 1_000_000
_BLOCK = 100_000  # arrows per insert
_ARROW = struct.Struct("=4q")
_JOINT = struct.Struct("=3q")
_LAUNCH = struct.Struct("=5q")


class LateLinks:
    """Three kinds of them: arrows to draw, numbers of operators, and launches. Those beyond MOST_ARROWS are left out:
    then the method that takes one returns False.
    """

    def __init__(self) -> None:
        self._arrows = bytearray()
        self._joints = bytearray()
        self._launches = bytearray()

    def arrow(self, number: int, lane: int, time: int, *, is_end: bool) -> bool:
        """Keep one end of an arrow: on `lane`, at `time` [Unix ns]. The other end has the same number."""
        if len(self._arrows) >= MOST_ARROWS * _ARROW.size:
            return False
        if 0 <= time < schema.LATEST and abs(number) < schema.LATEST:
            self._arrows += _ARROW.pack(number, lane, time, is_end)
        return True

    def join(self, number: int, lane: int, time: int) -> bool:
        """Keep the number of an operator, or of what a device did for it, that begins on `lane` at `time` [Unix ns]."""
        if len(self._joints) >= MOST_ARROWS * _JOINT.size:
            return False
        self._joints += _JOINT.pack(number, lane, time)
        return True

    def launch(self, calling: int, call: int, lane: int, begin: int, last: int) -> bool:
        """Keep that the last call on the lane `calling` which begins until `call` launched what a device began on
        `lane` from `begin` to `last` [Unix ns].
        """
        if len(self._launches) >= MOST_ARROWS * _LAUNCH.size:
            return False
        self._launches += _LAUNCH.pack(calling, call, lane, begin, last)
        return True

    def give_numbers(self, connection: "DuckDBPyConnection") -> None:
        """Give the events in the table `raw` the numbers that were told of them."""
        self._number_operators(connection)
        self._number_launches(connection)

    def _number_operators(self, connection: "DuckDBPyConnection") -> None:
        if not self._joints:
            return
        table = np.frombuffer(self._joints, np.int64).reshape(-1, 3)
        joints = dict(zip(("number", "lane", "ts"), map(np.ascontiguousarray, table.T), strict=True))  # noqa: F841
        connection.execute(
            'UPDATE raw SET "outer" = j.number FROM joints j '
            "WHERE raw.lane = j.lane AND raw.ts = j.ts AND list_contains(?, raw.cat::INTEGER)",
            [[int(Category.OPERATOR), *(int(one) for one in DEVICE)]],
        )

    def _number_launches(self, connection: "DuckDBPyConnection") -> None:
        """Link calls and what they launched: all work of a call has the number of its first arrow."""
        if not self._launches:
            return
        table = np.frombuffer(self._launches, np.int64).reshape(-1, 5)
        columns = (np.arange(1, len(table) + 1), *table.T)
        keys = ("number", "calling", "call", "lane", "first", "last")
        drawn = dict(zip(keys, map(np.ascontiguousarray, columns), strict=True))  # noqa: F841
        connection.execute(
            "CREATE TEMP TABLE launched AS SELECT c.at AS caller, w.at AS work, "
            "min(t.number) OVER (PARTITION BY c.at) AS number FROM drawn t ASOF JOIN "
            "(SELECT rowid AS at, lane, ts FROM raw WHERE list_contains($calls, cat::INTEGER)) c "
            "ON c.lane = t.calling AND c.ts <= t.call ASOF JOIN "
            "(SELECT rowid AS at, lane, ts FROM raw WHERE list_contains($device, cat::INTEGER) AND link = 0) w "
            "ON w.lane = t.lane AND w.ts >= t.first WHERE w.ts <= t.last",
            {
                "calls": [int(Category.RUNTIME), int(Category.SYNC)],
                "device": [int(one) for one in DEVICE],
            },
        )
        for column in ("caller", "work"):
            connection.execute(
                f"UPDATE raw SET link = l.number FROM (SELECT DISTINCT {column} AS at, number FROM launched) l "  # noqa: S608
                "WHERE raw.rowid = l.at"
            )
        connection.execute("DROP TABLE launched")

    def insert_arrows(self, connection: "DuckDBPyConnection", *, offset: int) -> None:
        """Fill the table `arrows`; their times move by an offset [ns]."""
        table = np.frombuffer(self._arrows, np.int64).reshape(-1, 4)
        for first in range(0, len(table), _BLOCK):
            piece = table[first : first + _BLOCK]
            rows = {"number": piece[:, 0], "lane": piece[:, 1], "ts": piece[:, 2] + offset, "end": piece[:, 3]}
            columns = {key: np.ascontiguousarray(values) for key, values in rows.items()}  # noqa: F841  (read below)
            connection.execute("INSERT INTO arrows SELECT * FROM columns")
