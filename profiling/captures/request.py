"""What a `profile` command asks for (docs/develop/protocol.md, section 3), checked against the workers there are."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from profiling.config import MAX_SECONDS, MAX_STEPS, TOOLS, WHATS, What


class CannotRecord(ValueError):
    """The request cannot be met; `capture` is its id, "" if it has none that can be told."""

    def __init__(self, text: str, capture: str = "") -> None:
        self.capture = capture
        super().__init__(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureRequest:
    """Record `num_steps` steps from `first_step` (0: the next one) on `roles` and `ranks`; () for all.

    `what` is to be seen; `tool` is "" where it is to be selected for that, once the workers are there.
    With `seconds` it is recorded from now on, in the middle of whatever runs, for so long or until it is ended.
    """

    capture: str
    tool: str
    first_step: int
    num_steps: int
    roles: tuple[str, ...]
    ranks: tuple[int, ...]
    seconds: float = 0.0
    what: What = "none"

    @property
    def last_step(self) -> int:
        """The last step that is recorded."""
        return self.first_step + self.num_steps - 1

    @property
    def steps(self) -> str:
        """The steps, for a sentence."""
        if self.first_step == 0:
            return "the steps that were asked for"
        return f"step {self.first_step}" if self.num_steps == 1 else f"steps {self.first_step} to {self.last_step}"

    @property
    def are(self) -> str:
        """The verb after `steps`."""
        return "is" if self.num_steps == 1 and self.first_step else "are"

    def starting_at(self, step: int) -> "CaptureRequest":
        """Return the request with its first step known."""
        return replace(self, first_step=step)

    def ending_at(self, step: int) -> "CaptureRequest":
        """Return the request as it was met, if the run ended after `step`."""
        touched = max(1, step - self.first_step + 1)
        return replace(self, num_steps=touched if self.seconds else min(self.num_steps, touched))


def parse_request(payload: Mapping[str, Any]) -> CaptureRequest:
    """Return what the payload of a `profile` command asks for. Raises: CannotRecord."""
    capture = payload.get("capture")
    if not isinstance(capture, str) or not re.fullmatch(r"[A-Za-z0-9-]{1,16}", capture):
        raise CannotRecord(f"{capture!r} is not the id of a capture: up to 16 letters, digits and -.")
    tool, first_step, num_steps = payload.get("tool"), payload.get("first_step", 0), payload.get("num_steps", 1)
    asked = payload.get("what") or "none"
    what: What | None = next((known for known in ("none", *WHATS) if known == asked), None)
    if what is None:
        raise CannotRecord(f"There is no {asked!r} to see. Use {', '.join(WHATS[:-1])} or {WHATS[-1]}.", capture)
    if tool not in TOOLS and not (tool == "" and what != "none"):
        raise CannotRecord(f"There is no tool {tool!r}. Use {', '.join(TOOLS[:-1])} or {TOOLS[-1]}.", capture)
    if not _is_count(first_step, 0, 10**9):
        raise CannotRecord(f"first_step is {first_step!r}. Use a step from 1, or 0 for the next one.", capture)
    if not _is_count(num_steps, 1, MAX_STEPS):
        raise CannotRecord(f"num_steps is {num_steps!r}. Use 1 to {MAX_STEPS}.", capture)
    seconds = payload.get("seconds", 0)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= MAX_SECONDS:
        raise CannotRecord(f"seconds is {seconds!r}. Use up to {MAX_SECONDS:.0f}, or 0 for whole steps.", capture)
    roles, ranks = payload.get("roles") or [], payload.get("ranks") or []
    if not isinstance(roles, list) or not all(isinstance(role, str) for role in roles):
        raise CannotRecord(f"roles is {roles!r}. Use a list of roles, or [] for all.", capture)
    if not isinstance(ranks, list) or not all(_is_count(rank, 0, 10**6) for rank in ranks):
        raise CannotRecord(f"ranks is {ranks!r}. Use a list of ranks from 0, or [] for all.", capture)
    return CaptureRequest(
        capture=capture,
        tool=tool,
        first_step=0 if seconds else first_step,
        num_steps=num_steps,
        roles=tuple(roles),
        ranks=tuple(ranks),
        seconds=float(seconds),
        what=what,
    )


def within(request: CaptureRequest, workers: Mapping[str, int]) -> list[str]:
    """Return the workers (`policy-0`) that the request means, of a run with so many ranks of each role.

    Raises: CannotRecord, naming the role or rank that there is not.
    """
    present = {role: ranks for role, ranks in workers.items() if ranks}
    roles = request.roles or tuple(present)
    for role in roles:
        if role == "driver":
            text = "The driver has no recording of its own; its phases are always told."
            raise CannotRecord(f"{text} Use {', '.join(present)}.", request.capture)
        if role not in present:
            raise CannotRecord(f"This run has no role {role!r}. Use {', '.join(present)}.", request.capture)
    most = max(present[role] for role in roles)
    for rank in request.ranks:
        if rank >= most:
            text = f"There is no rank {rank} of {', '.join(roles)}. Use 0 to {most - 1}."
            raise CannotRecord(text, request.capture)
    chosen = request.ranks or range(most)
    return [f"{role}-{rank}" for role in roles for rank in chosen if rank < present[role]]


def _is_count(value: object, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
