"""Which call of CANN started which of the device's tasks in Ascend's traces for Chrome.

A task has a `connection_id`. The call that started it need not have the same one: an arrow of kind `HostToDevice`,
whose number is `connection_id << 32 | context`, begins in it. Arrows stand before or after what they join, so calls and
tasks are kept until all are known. A call may start several tasks: these take the number of its first arrow.

Source: msprof, analysis/viewer/trace_view and its test of `add_connect_line`, and a real trace of torch_npu.
"""

from array import array

import numpy as np
import numpy.typing as npt

from profiling.trace.writer import StoreWriter

_COLUMNS = ("lane", "ts", "dur", "name", "cat", "link", "info")
_LINK = _COLUMNS.index("link")
_MOST = 1_000_000
"""Events or arrows that are kept; with more of them, what came so far is joined and put into the store."""
_MOST_NESTED = 20
"""Calls that began before an arrow and have ended, among which the one around it is looked for."""

_Rows = npt.NDArray[np.int64]


class AscendLaunches:
    """Calls and tasks that wait for the arrows between them."""

    def __init__(self, writer: StoreWriter) -> None:
        self._writer = writer
        self._calls, self._tasks, self._arrows = array("q"), array("q"), array("q")

    def call(self, *, lane: int, ts: int, dur: int, name: int, cat: int, link: int, info: int) -> None:
        """Keep a call."""
        self._keep(self._calls, lane, ts, dur, name, cat, link, info)

    def task(self, *, lane: int, ts: int, dur: int, name: int, cat: int, link: int, info: int) -> None:
        """Keep a task."""
        self._keep(self._tasks, lane, ts, dur, name, cat, link, info)

    def arrow(self, lane: int, at: int, number: int) -> None:
        """Keep where an arrow begins: at a time [Unix ns] in the lane of a thread."""
        self._keep(self._arrows, lane, at, number >> 32)

    def finish(self) -> None:
        """Put what is kept into the store."""
        calls, tasks = (np.array(rows, np.int64).reshape(-1, len(_COLUMNS)) for rows in (self._calls, self._tasks))
        leaders = _join(calls, np.array(self._arrows, np.int64).reshape(-1, 3))
        if leaders:
            tasks[:, _LINK] = [leaders.get(link, link) for link in tasks[:, _LINK].tolist()]
        for rows in (calls, tasks):
            self._writer.add_many(dict(zip(_COLUMNS, rows.T, strict=True)))
        self._calls, self._tasks, self._arrows = array("q"), array("q"), array("q")

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
