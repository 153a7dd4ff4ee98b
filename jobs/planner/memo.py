"""Parts of an answer that several layouts share, estimated once: the key is the very object, not what it is equal to.

With each part is kept which constants it was made of, so that an answer can say what it rests on.
"""

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from jobs.planner.constant import Constants

Made = TypeVar("Made")


class TrackedConstants(Constants):
    """Constants that note which of them were used: `names` since it was set, `seen` ever."""

    def __init__(self, k: Constants) -> None:
        super().__init__({constant.name: constant for constant in k.all()})
        self.names: set[str] = set()
        self.seen: set[str] = set()

    def __getitem__(self, name: str) -> float:
        self.names.add(name)
        self.seen.add(name)
        return super().__getitem__(name)


class Memo:
    """Results by what made them. Objects that are keys are kept, so that no other takes their place in memory."""

    def __init__(self, k: TrackedConstants) -> None:
        self._k = k
        self._known: dict[Hashable, tuple[Any, frozenset[str]]] = {}
        self._kept: dict[int, object] = {}

    def keep(self, part: object) -> None:
        """Keep an object whose identity is a further value of a key."""
        self._kept[id(part)] = part

    def without(self, name: str, k: TrackedConstants) -> "Memo":
        """Return a copy for other constants `k`, which differ in one: it has the parts that do not rest on that."""
        made = Memo(k)
        made._known = {key: entry for key, entry in self._known.items() if name not in entry[1]}
        made._kept = dict(self._kept)
        return made

    def of(self, name: str, part: object, make: Callable[[], Made], *more: Hashable) -> Made:
        """Return what `make` makes of `part`, made once for the same object and the same further values."""
        key = (name, id(part), *more)
        if key not in self._known:
            outer, self._k.names = self._k.names, set()
            try:
                value = make()
            finally:
                used, self._k.names = frozenset(self._k.names), outer | self._k.names
            self._known[key] = (value, used)
            self.keep(part)
            return value
        found: Made
        found, used = self._known[key]
        self._k.names |= used
        return found
