"""The states of a capture, what moves it, and where to: one table for engine, runner and console.

The engine and the runner hold each capture as a `TrackedCapture`, the console as a row, which it moves by the states
that are reported.
"""

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from profiling.captures.request import CaptureRequest

State = Literal["armed", "starting", "recording", "stopping", "writing", "importing", "ready", "failed", "withdrawn"]

Event = Literal["start", "record", "stop", "write", "collect", "complete", "fail", "withdraw"]

STATES: tuple[State, ...] = ("armed", "recording", "stopping", "writing", "importing", "ready")
"""As they are stored and sent, in order; `failed` takes the place of any but the last, `withdrawn` of the first.

armed: the trainer knows of it; recording: from its first step on; stopping: after its last one; writing: files are
being made on the nodes; importing: they are on their way to the console; ready: all are there, checksums right.
Between the first two it is `starting` while workers begin, which is not reported.
"""

OPEN: tuple[State, ...] = ("armed", "starting", "recording", "stopping", "writing", "importing")
ENDED: tuple[State, ...] = ("ready", "failed", "withdrawn")
"""Nothing follows these. withdrawn: somebody took it back before its first step; nothing was recorded."""

REPORTED: tuple[State, ...] = ("armed", "recording", "stopping", "writing", "importing", "failed", "withdrawn")
"""What a trainer or its runner may report. `ready` is the console's own: it alone knows what has arrived."""

BUSY: tuple[State, ...] = ("starting", "recording", "stopping")
"""Workers record, or are about to begin or end: a process takes one profiler at a time, so another capture waits."""

UNFINISHED: tuple[State, ...] = ("recording", "stopping", "writing")
"""Workers may have left files of such a capture when they are gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """Where an event leads, and from where. An event that was not reported is made up for by the next one."""

    before: tuple[State, ...]
    after: State


TRANSITIONS: Mapping[Event, Transition] = {
    "start": Transition(before=("armed",), after="starting"),
    "record": Transition(before=("armed", "starting"), after="recording"),
    "stop": Transition(before=("armed", "starting", "recording"), after="stopping"),
    "write": Transition(before=("armed", "starting", "recording", "stopping"), after="writing"),
    "collect": Transition(before=("armed", "starting", "recording", "stopping", "writing"), after="importing"),
    "complete": Transition(before=("importing",), after="ready"),
    "fail": Transition(before=OPEN, after="failed"),
    "withdraw": Transition(before=("armed",), after="withdrawn"),
}

_BY_STATE: Mapping[str, Event] = {transition.after: event for event, transition in TRANSITIONS.items()}


def next_state(state: str, event: Event) -> State | None:
    """Return the state after the event, None where it cannot follow: it came twice, late, or never should have."""
    transition = TRANSITIONS[event]
    return transition.after if state in transition.before else None


def event_of(reported: str) -> Event | None:
    """Return the event behind a reported state, None for `armed`, which is where a capture begins, and other words."""
    return _BY_STATE.get(reported)


class CaptureReport(Protocol):
    """Where a trainer's side reports captures and their files: the event log of the attempt."""

    def capture(self, capture: str, state: State, *, step: int, text: str = "", **meta: Any) -> object:
        """Report that a capture has moved on; `text` is the reason where it has failed."""

    def artifact(self, name: str, *, artifact: str, path: str, step: int, size: int, **meta: Any) -> object:
        """Report that a file is whole (profiling.captures.files.announcement)."""


class TrackedCapture:
    """One capture on a trainer's side, armed at first. `move` is the only way from state to state, and reports each."""

    def __init__(self, request: CaptureRequest, *, report: CaptureReport, step: int, **meta: Any) -> None:
        self.request, self.report = request, report
        self.state: State = "armed"
        self.lock = threading.RLock()
        report.capture(request.capture, self.state, step=step, **meta)

    def move(self, event: Event, *, step: int = -1, text: str = "", **meta: Any) -> bool:
        """Follow an event; False, and nothing has happened, where it cannot follow: another thread was faster."""
        with self.lock:  # what is reported comes in the order of the states
            after = next_state(self.state, event)
            if after is None:
                return False
            self.state = after
            if after in REPORTED:
                self.report.capture(self.request.capture, after, step=step, text=text, **meta)
            return True

    @property
    def is_over(self) -> bool:
        """True once nothing more is to be done for it on this side."""
        return self.state == "importing" or self.state in ENDED
