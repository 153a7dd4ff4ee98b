"""What the runner tells of captures of a trainer that writes no events itself."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from profiling.captures.request import Request
from profiling.events import Event, capture
from profiling.events import artifact as announced


@dataclass(frozen=True, slots=True, kw_only=True)
class Teller:
    """Tells events of one attempt. `write` is called by one thread alone."""

    attempt: int
    write: Callable[[Event], None]

    def state(self, request: Request, state: str, *, step: int, text: str = "", **meta: Any) -> None:
        """Tell that a capture has moved on."""
        self.write(capture(request.capture, state, attempt=self.attempt, step=step, text=text, meta=meta))

    def file(self, name: str, *, artifact: str, path: str, step: int, size: int, **meta: Any) -> None:
        """Tell that a file of a capture is whole (profiling.captures.files.announcement)."""
        self.write(announced(name, artifact=artifact, path=path, attempt=self.attempt, step=step, size=size, meta=meta))


class Capture(Protocol):
    """One capture on its way through its states. Nothing of it is raised: what goes wrong is its own end."""

    request: Request

    @property
    def is_over(self) -> bool:
        """True once nothing more will be told of it."""
        ...

    @property
    def is_recording(self) -> bool:
        """True while processes record for it that this one can end."""
        ...

    def look(self, *, step: int, now: float) -> None:
        """Go on as far as is due; `step` is the last one that the log says is over, `now` monotonic seconds."""
        ...

    def withdraw(self, *, step: int) -> bool:
        """Take it back; False if it records already, and goes on."""
        ...

    def end(self) -> None:
        """End it at the next look, where somebody asked for that."""
        ...

    def finish(self, *, step: int) -> None:
        """The trainer has ended and `step` was its last: say how what is not told yet has ended."""
        ...
