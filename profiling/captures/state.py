"""The life of a capture: its states, what moves it, and where to. Written once, for engine, runner and console.

The console moves its rows by the states that are reported, the runner asks which captures it may still collect.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

State = Literal["armed", "recording", "stopping", "writing", "importing", "ready", "failed", "withdrawn"]
"""As they are stored and sent."""

Event = Literal["record", "stop", "write", "collect", "complete", "fail", "withdraw"]

STATES: tuple[State, ...] = ("armed", "recording", "stopping", "writing", "importing", "ready")
"""In order; `failed` takes the place of any but the last, `withdrawn` of the first.

armed: the trainer knows of it; recording: from its first step on; stopping: after its last one; writing: files are
being made on the nodes; importing: they are on their way to the console; ready: all are there, checksums right.
"""

OPEN: tuple[State, ...] = ("armed", "recording", "stopping", "writing", "importing")
ENDED: tuple[State, ...] = ("ready", "failed", "withdrawn")
"""Nothing follows these. withdrawn: somebody took it back before its first step; nothing was recorded."""

REPORTED: tuple[State, ...] = ("armed", "recording", "stopping", "writing", "importing", "failed", "withdrawn")
"""What a trainer or its runner may report. `ready` is the console's own: it alone knows what has arrived."""

UNFINISHED: tuple[State, ...] = ("recording", "stopping", "writing")
"""Workers may have left files of such a capture when they are gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """Where an event leads, and from where. An event that was not reported is made up for by the next one."""

    before: tuple[State, ...]
    after: State


TRANSITIONS: Mapping[Event, Transition] = {
    "record": Transition(before=("armed",), after="recording"),
    "stop": Transition(before=("armed", "recording"), after="stopping"),
    "write": Transition(before=("armed", "recording", "stopping"), after="writing"),
    "collect": Transition(before=("armed", "recording", "stopping", "writing"), after="importing"),
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
