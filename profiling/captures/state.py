"""The custody of a capture: the states it goes through, in words and in order. What moves it stands with the movers."""

from typing import Literal

State = Literal["armed", "recording", "stopping", "writing", "importing", "ready", "failed", "withdrawn"]

STATES: tuple[State, ...] = ("armed", "recording", "stopping", "writing", "importing", "ready")
"""In order; `failed` can follow each but the last, `withdrawn` only the first.

armed: the trainer knows of it; recording: from the first asked step on; stopping: after the last one; writing: files
are being made on the nodes; importing: they are on their way to the console; ready: all are there, checksums right.
"""

ENDED: tuple[State, ...] = ("ready", "failed", "withdrawn")
"""Nothing follows these. withdrawn: somebody took it back before its first step; nothing was recorded."""


def may_follow(state: str, previous: str) -> bool:
    """Return True if custody may go from `previous` to `state`: forward only, and to `failed` from any but the end."""
    if previous in ENDED:
        return False
    if state == "failed":
        return True
    if state == "withdrawn":
        return previous == "armed"
    return state in STATES and STATES.index(state) > STATES.index(previous)
