"""How long to wait before the next try."""


class Backoff:
    """0.2 s, doubling to 5 s, back to 0.2 s after a success."""

    def __init__(self, *, first_seconds: float = 0.2, most_seconds: float = 5.0) -> None:
        self._first = first_seconds
        self._most = most_seconds
        self._next = first_seconds

    def wait_seconds(self) -> float:
        """Return the pause before the next try, and lengthen the one after it."""
        seconds = self._next
        self._next = min(self._most, seconds * 2)
        return seconds

    def reset(self) -> None:
        """Start again from the shortest pause."""
        self._next = self._first
