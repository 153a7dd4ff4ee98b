"""What a file holds that cannot be read, counted, with the first few of it named."""

from collections.abc import Mapping

_TOLD = 3


class Unusable:
    """Rows or events that were left out; `what` they are called. False while there are none."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._count = 0
        self._first: list[str] = []

    def __bool__(self) -> bool:
        return self._count > 0

    def add(self, place: int, event: object, error: Exception) -> None:
        """Leave one out: that at a place of the file, from 0 on, for what was raised of it."""
        self._count += 1
        if len(self._first) < _TOLD:
            name = event.get("name") if isinstance(event, Mapping) else None
            called = f" ({name[:60]!r})" if isinstance(name, str) else ""
            self._first.append(f"number {place + 1:,}{called}: {_reason(event, error)}")

    @property
    def sentence(self) -> str:
        """How many were left out, and why the first ones."""
        more = "; ..." if self._count > len(self._first) else ""
        return (
            f"{self._count:,} {self._what} were left out, as a time or a name is missing or is none: "
            f"{'; '.join(self._first)}{more}."
        )


def _reason(event: object, error: Exception) -> str:
    if not isinstance(event, Mapping):
        return "it is no object"
    if isinstance(error, KeyError):
        return f"it has no {str(error.args[0])[:40]!r}" if error.args else "something is missing"
    times = ", ".join(f"{key} is {str(event[key])[:40]!r}" for key in ("ts", "dur") if key in event)
    if isinstance(error, TypeError | ValueError | OverflowError) and times:
        return times
    return str(error)[:80]
