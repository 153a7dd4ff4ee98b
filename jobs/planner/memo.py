"""Parts of an answer that several layouts share, estimated once: the key is the very object, not what it is equal to.

With each part is kept which constants it was made of, so that an answer can say what it rests on.
"""

from collections.abc import Callable, Hashable, Mapping
from typing import Any, TypeVar

from jobs.planner.constant import FULL_NAMES, GROUPS, Constants, Evidence

Made = TypeVar("Made")


class _NotingGroup:
    """The constants of one file; it notes which of them is read."""

    __slots__ = ("_full", "_tracked", "_values")

    def __init__(self, group: str, values: Any, tracked: "TrackedConstants") -> None:
        self._full = FULL_NAMES[group]
        self._values, self._tracked = values, tracked

    def __getattr__(self, name: str) -> object:
        full, tracked = self._full[name], self._tracked
        tracked.names.add(full)
        tracked.seen.add(full)
        return getattr(self._values, name)


class TrackedConstants(Constants):
    """Constants that note which of them were used: `names` since it was set, `seen` ever. `plain` are they themselves,
    which note nothing."""

    def __init__(self, constants: Constants) -> None:
        self.plain: Constants = constants.plain if isinstance(constants, TrackedConstants) else constants
        self._constants = self.plain._constants
        self.names: set[str] = set()
        self.seen: set[str] = set()
        for group in GROUPS:
            setattr(self, group, _NotingGroup(group, getattr(self.plain, group), self))

    def _with(self, values: Mapping[str, object], evidence: Evidence, source: str, spread: float = 1.0) -> Constants:
        return self.plain._with(values, evidence, source, spread)

    def value(self, name: str) -> float:
        """See Constants."""
        self.note(name)
        return super().value(name)

    def note(self, name: str) -> None:
        """Note that a constant is used."""
        self.names.add(name)
        self.seen.add(name)


class Memo:
    """Results by what made them. Objects that are keys are kept, so that no other takes their place in memory."""

    def __init__(self, constants: TrackedConstants) -> None:
        self._constants = constants
        self._made: dict[Hashable, tuple[Any, frozenset[str]]] = {}
        self._parts: dict[int, object] = {}

    def without(self, name: str, constants: TrackedConstants) -> "Memo":
        """Return a copy for other constants, which differ in one: it has the parts that do not rest on that."""
        made = Memo(constants)
        made._made = {key: entry for key, entry in self._made.items() if name not in entry[1]}
        made._parts = dict(self._parts)
        return made

    def of(self, name: str, parts: tuple[object, ...], make: Callable[[], Made], *more: Hashable) -> Made:
        """Return what `make` makes of `parts`, made once for the same objects and the same further values."""
        key = (name, *map(id, parts), *more)
        if key not in self._made:
            outer, self._constants.names = self._constants.names, set()
            try:
                value = make()
            finally:
                used, self._constants.names = frozenset(self._constants.names), outer | self._constants.names
            self._made[key] = (value, used)
            self._parts.update((id(part), part) for part in parts)
            return value
        made: Made
        made, used = self._made[key]
        self._constants.names |= used
        return made
