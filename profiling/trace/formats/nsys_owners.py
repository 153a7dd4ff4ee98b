"""Whose a row of an export of nsys is, where the row itself does not tell or tells wrongly."""

from collections import Counter
from typing import Any

_THREAD_BITS = 0xFFFFFF
_NO_STREAM = 0xFFFFFFFF
"""What waits for a whole context have in place of a stream."""
_MOST = 5_000_000


class Owners:
    """Which process launched a row that names none: stripped and early exports have rows without `globalPid`.

    Calls have to be told of before the rows of devices are asked for. `is_needed`: some rows may name none.
    """

    def __init__(self, processes: frozenset[int], *, is_needed: bool) -> None:
        self._known = processes
        self._is_needed = is_needed
        self._callers: set[int] = set()
        self._by_correlation: dict[int, int] = {}  # 0: several processes have it

    def called(self, tid: Any, correlation: Any) -> None:
        """Take a call of the device's interface on a thread."""
        if not self._is_needed or type(tid) is not int or type(correlation) is not int:
            return
        if len(self._by_correlation) >= _MOST:
            return
        pid = tid & ~_THREAD_BITS
        self._callers.add(pid)
        if self._by_correlation.setdefault(correlation, pid) != pid:
            self._by_correlation[correlation] = 0

    def of(self, pid: Any, correlation: Any) -> Any:
        """Return the process of a row: its own, the only one of the report, or the only one with its correlation."""
        if isinstance(pid, int):
            return pid
        candidates = self._callers or self._known
        if len(candidates) == 1:
            return next(iter(candidates))
        return (self._by_correlation.get(correlation) or None) if type(correlation) is int else None


class Devices:
    """Which device a context and a stream of a process are on, by its kernels: rows of waits say 0 for all."""

    def __init__(self) -> None:
        self._by_context: dict[tuple[int, int], Counter[int]] = {}
        self._by_stream: dict[tuple[int, int], Counter[int]] = {}

    def add(self, pid: Any, context: Any, device: Any, stream: Any) -> None:
        """Take a kernel."""
        if type(pid) is not int or type(device) is not int:
            return
        for table, key in ((self._by_context, context), (self._by_stream, stream)):
            if (type(key) is int and (pid, key) in table) or (len(table) < _MOST and type(key) is int):
                table.setdefault((pid, key), Counter())[device] += 1

    def of_wait(self, pid: Any, context: Any, device: Any, stream: Any) -> tuple[Any, Any]:
        """Return the device and stream (-1: of none) of a wait, as the kernels of its context or stream have them."""
        counts = self._by_context.get((pid, context)) or self._by_stream.get((pid, stream))
        number = counts.most_common(1)[0][0] if counts else device
        return number, -1 if stream == _NO_STREAM else stream
