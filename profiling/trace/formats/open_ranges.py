"""Ranges of threads in a Chrome trace that are told by a begin and an end, `B` and `E`."""

from profiling.trace.formats.torch_event import TorchEvent

_MOST_OPEN = 100_000
"""What a hostile trace has more of is left out."""
_MOST_CROSSED = 100
"""Open ranges of a thread among which that of an end is looked for."""


class OpenRanges:
    """What has begun and not ended while a trace is read."""

    def __init__(self) -> None:
        self._opened: dict[int, list[TorchEvent]] = {}
        self.num_open = 0
        self.num_stray = 0
        """Ends without a beginning."""
        self.num_crossed = 0
        """Ends of another range than began last in the thread."""

    def begin(self, lane: int, event: TorchEvent) -> None:
        """Keep a range that begins. Raises: OverflowError where far too many are open."""
        if self.num_open >= _MOST_OPEN:
            raise OverflowError
        self.num_open += 1
        self._opened.setdefault(lane, []).append(event)

    def end(self, lane: int, name: str | None) -> TorchEvent | None:
        """Return the begin of what ends: the last one of its lane, of those of the end's name where there are any; None
        for an end that has no begin.
        """
        opened = self._opened.get(lane)
        if not opened:
            self.num_stray += 1
            return None
        at = len(opened) - 1
        if name and name != opened[at]["name"]:
            self.num_crossed += 1
            least = max(at - _MOST_CROSSED, -1)
            at = next((i for i in range(at, least, -1) if opened[i]["name"] == name), at)
        self.num_open -= 1
        return opened.pop(at)
