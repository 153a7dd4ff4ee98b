"""Asynchronous events of Chrome traces: a begin and an end of one id, which belong to no thread and overlap freely.

    {"ph": "b", "cat": "request", "name": "generate", "id": "0x7", "pid": 1, "tid": 2, "ts": 10}
    {"ph": "e", "cat": "request", "name": "generate", "id": "0x7", "pid": 1, "tid": 5, "ts": 25}

Those of one process and category share rows: an id has the first row that is free when it begins, and what it begins
before it ends lies inside. `S` and `F` are what older traces write for `b` and `e`.

Source: the trace event format, "Async events".
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from profiling.trace.formats.torch_event import text_of
from profiling.trace.writer import StoreWriter

BEGINS, ENDS = frozenset("bS"), frozenset("eF")
_MOST_ROWS = 200
"""Of a process and category; what is beyond them shares the last one."""
_MOST_OPEN = 100_000


@dataclass(slots=True)
class _AsyncRows:
    """Rows of a process and category: how many events are open in each, and in which row each open id is."""

    lanes: list[int] = field(default_factory=list)
    open: list[int] = field(default_factory=list)


class AsyncEvents:
    """What has begun and not ended while a trace is read."""

    def __init__(self, writer: StoreWriter) -> None:
        self._writer = writer
        self._rows: dict[tuple[Any, str], _AsyncRows] = {}
        self._opened: dict[tuple[Any, ...], tuple[int, list[tuple[str, int]]]] = {}
        self.num_stray = 0
        """Ends without a begin."""

    @property
    def num_open(self) -> int:
        """Return how many have begun and not ended."""
        return sum(len(opened) for _, opened in self._opened.values())

    def begin(self, event: Mapping[str, Any], at: int) -> None:
        """Keep what begins at a time [Unix ns]. Raises: OverflowError where far too much is open."""
        if len(self._opened) >= _MOST_OPEN:
            raise OverflowError
        key = _key(event)
        if key not in self._opened:
            self._opened[key] = (self._take_row(event), [])
        row, opened = self._opened[key]
        self._rows[key[0], key[1]].open[row] += 1
        opened.append((event["name"], at))

    def end(self, event: Mapping[str, Any]) -> tuple[int, str, int] | None:
        """Return lane, name and begin of what ends; None of an end that has no begin."""
        key = _key(event)
        row, opened = self._opened.get(key, (0, []))
        if not opened:
            self.num_stray += 1
            return None
        name = event.get("name")
        place = next((i for i in reversed(range(len(opened))) if opened[i][0] == name), len(opened) - 1)
        begun, at = opened.pop(place)
        rows = self._rows[key[0], key[1]]
        rows.open[row] -= 1
        if not opened:
            del self._opened[key]
        return rows.lanes[row], begun, at

    def _take_row(self, event: Mapping[str, Any]) -> int:
        """Return the first row that is free for an id that begins."""
        pid, category, *_ = _key(event)
        rows = self._rows.setdefault((pid, category), _AsyncRows())
        row = next((row for row, num_open in enumerate(rows.open) if not num_open), len(rows.open))
        if row == len(rows.open) and row < _MOST_ROWS:
            title = f"{category or 'asynchronous'} {row + 1}"
            lane = self._writer.lane("thread", process=text_of(pid), pid=_number(pid), thread=title, title=title)
            rows.lanes.append(lane)
            rows.open.append(0)
        return min(row, _MOST_ROWS - 1)


def _key(event: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what begin and end have in common: the process, the category, and the id with its scope."""
    more = event.get("id2") or {}
    number = event.get("id", more.get("local", more.get("global")))
    return event.get("pid"), str(event.get("cat") or "")[:100], event.get("scope"), str(number)


def _number(value: object) -> int:
    return value if isinstance(value, int) and abs(value) < 1 << 31 else -1
