"""How many websockets a person has open here, and how many follow one thing: each asks the database now and then."""

from collections import Counter
from collections.abc import Mapping


class OpenSockets:
    """Counts by name. For one event loop."""

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()

    def enter(self, most: Mapping[str, int]) -> bool:
        """Count a socket under each of the names; False, and nothing is counted, where one has as many as it may."""
        if any(self._open[name] >= limit for name, limit in most.items()):
            return False
        self._open.update(most.keys())
        return True

    def leave(self, names: Mapping[str, int]) -> None:
        """Count it no more."""
        self._open.subtract(names.keys())
        self._open += Counter()  # drops what is at nought


open_sockets = OpenSockets()
