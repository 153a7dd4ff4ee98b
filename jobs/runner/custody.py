"""What the runner tells of captures of a trainer that writes no events itself."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from profiling.capture_request import Request
from profiling.events import Event, artifact, capture


@dataclass(frozen=True, slots=True, kw_only=True)
class Teller:
    """Tells events of one attempt. `write` is called by one thread alone."""

    attempt: int
    write: Callable[[Event], None]

    def state(self, request: Request, state: str, *, step: int, text: str = "", **meta: Any) -> None:
        """Tell that a capture has moved on."""
        self.write(capture(request.capture, state, attempt=self.attempt, step=step, text=text, meta=meta))

    def file(
        self, request: Request, name: str, *, path: str, step: int, size: int, sha256: str = "", **meta: Any
    ) -> None:
        """Tell that a file of a capture is whole at `path` below the run directory."""
        self.write(
            artifact(
                f"{request.capture}-{name}",
                artifact="trace",
                path=path,
                attempt=self.attempt,
                step=step,
                size=size,
                sha256=sha256,
                meta={"capture": request.capture, "tool": request.tool, **meta},
            )
        )


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

    def finish(self, *, step: int, why: str) -> None:
        """The trainer has ended: keep what is there, and say how the capture ended."""
        ...


def sentence(problems: Mapping[str, str]) -> str:
    """Return each different reason once, with who has it."""
    by_reason: dict[str, list[str]] = {}
    for name, problem in sorted(problems.items()):
        by_reason.setdefault(problem, []).append(name)
    return " ".join(f"{', '.join(names)}: {reason}" for reason, names in by_reason.items())
