"""Which call of CANN, and which operator, started which of the device's tasks in Ascend's traces for Chrome.

A task has a `connection_id`, and so have the parts of a collective. The call that started it need not have the same
one: an arrow of kind `HostToDevice` begins in it and ends where the task begins. One from an operator ends there, too.
Arrows stand before or after what they join, so calls and tasks are kept until all are known. A call may start several
tasks: these take the number of its first arrow.

Source: msprof, analysis/viewer/trace_view and its test of `add_connect_line`, and real traces of torch_npu.
"""

from array import array
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from profiling.trace.writer import StoreWriter

_COLUMNS = ("lane", "ts", "dur", "name", "cat", "link", "info")
_LINK = _COLUMNS.index("link")
_PLACE_AND_LINK = [*map(_COLUMNS.index, ("lane", "ts", "link"))]
_MOST = 1_000_000
"""Events or arrows that are kept; with more of them, what came so far is joined and put into the store."""
_MOST_NESTED = 20
"""Calls that began before an arrow and have ended, among which the one around it is looked for."""

_Rows = npt.NDArray[np.int64]
_Place = tuple[int, int]
"""A lane and a time in it [Unix ns]."""


class AscendLaunches:
    """Calls and tasks that wait for the arrows between them."""

    def __init__(self, writer: StoreWriter) -> None:
        self._writer = writer
        self._calls, self._tasks, self._operators = array("q"), array("q"), array("q")
        self._begins: dict[str, _Place] = {}
        self._ends: dict[str, _Place] = {}

    def call(self, *, lane: int, ts: int, dur: int, name: int, cat: int, link: int, info: int) -> None:
        """Keep a call."""
        self._keep(self._calls, lane, ts, dur, name, cat, link, info)

    def task(self, *, lane: int, ts: int, dur: int, name: int, cat: int, link: int, info: int) -> None:
        """Keep a task."""
        self._keep(self._tasks, lane, ts, dur, name, cat, link, info)

    def arrow(self, number: str, lane: int, at: int, *, is_end: bool) -> None:
        """Keep one end of an arrow from a call to a task, on `lane`, at a time [Unix ns]."""
        ends = self._ends if is_end else self._begins
        if len(ends) < _MOST:
            ends[number] = lane, at

    def operator(self, number: int, lane: int, at: int) -> None:
        """Keep that the operator of a number started the task that begins on `lane` at a time [Unix ns]."""
        self._keep(self._operators, number, lane, at)

    def finish(self) -> None:
        """Put what is kept into the store."""
        calls, tasks = (np.array(rows, np.int64).reshape(-1, len(_COLUMNS)) for rows in (self._calls, self._tasks))
        connections = {(lane, at): link for lane, at, link in tasks[:, _PLACE_AND_LINK].tolist() if link}
        arrows = [
            (*begin, connections[end])
            for number, begin in self._begins.items()
            if (end := self._ends.get(number)) in connections
        ]
        self._join_operators(tasks, connections)
        leaders = _join(calls, np.array(arrows, np.int64).reshape(-1, 3))
        if leaders:
            tasks[:, _LINK] = [leaders.get(link, link) for link in tasks[:, _LINK].tolist()]
        for rows in (calls, tasks):
            self._writer.add_many(dict(zip(_COLUMNS, rows.T, strict=True)))
        self._calls, self._tasks, self._operators = array("q"), array("q"), array("q")
        self._begins, self._ends = {}, {}

    def _join_operators(self, tasks: _Rows, connections: Mapping[_Place, int]) -> None:
        """Join operators with their tasks, and with all that has the connection of one: parts of a collective."""
        of_connections: dict[int, int] = {}
        for number, lane, at in np.array(self._operators, np.int64).reshape(-1, 3).tolist():
            self._writer.join(number, lane, at)
            of_connections[connections.get((lane, at), 0)] = number
        for lane, at, link in tasks[:, _PLACE_AND_LINK].tolist():
            if link and link in of_connections:
                self._writer.join(of_connections[link], lane, at)

    def _keep(self, rows: "array[int]", *values: int) -> None:
        """Keep one row; values that int64 does not hold raise OverflowError before any is kept."""
        rows.extend(array("q", values))
        if len(rows) >= _MOST * len(values):
            self.finish()


def _join(calls: _Rows, arrows: _Rows) -> dict[int, int]:
    """Give each call the number of its first arrow; return the number that stands for each arrow's."""
    calls_order = np.lexsort((-calls[:, 2], calls[:, 1], calls[:, 0]))
    lanes, begins, lengths = calls[calls_order, :3].T
    ends = (begins + lengths).tolist()
    leaders: dict[int, int] = {}
    of_calls: dict[int, int] = {}
    first = stop = 0
    in_lane, own_begins = -1, begins[:0]
    for lane, at, number in arrows[np.lexsort((arrows[:, 1], arrows[:, 0]))].tolist():
        if lane != in_lane:
            first, stop = np.searchsorted(lanes, [lane, lane + 1]).tolist()
            in_lane, own_begins = lane, begins[first:stop]
        last = first + int(np.searchsorted(own_begins, at, "right")) - 1
        around = next((i for i in range(last, max(last - _MOST_NESTED, first - 1), -1) if ends[i] >= at), None)
        if around is not None and number not in leaders:
            leaders[number] = of_calls.setdefault(around, number)
    calls[calls_order[list(of_calls)], _LINK] = list(of_calls.values())
    return leaders
