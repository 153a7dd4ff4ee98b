"""Which event may follow which state of a capture: all pairs, against the promises in words."""

import itertools
from typing import Any

import pytest

from profiling.captures.capture import (
    ENDED,
    OPEN,
    REPORTED,
    STATES,
    TRANSITIONS,
    CaptureRequest,
    Event,
    State,
    TrackedCapture,
    event_of,
    next_state,
)

ALL_STATES: tuple[State, ...] = (*OPEN, *ENDED)
ORDER: tuple[State, ...] = (*OPEN, "ready")
PAIRS = list(itertools.product(ALL_STATES, TRANSITIONS))


@pytest.mark.parametrize(("state", "event"), PAIRS)
def test_an_event_moves_a_capture_forward_or_is_refused(state: State, event: Event) -> None:
    after = next_state(state, event)
    if state in ENDED:
        assert after is None, "nothing follows an end"
    elif event == "fail":
        assert after == "failed", "any open capture can fail"
    elif event == "withdraw":
        assert after == ("withdrawn" if state == "armed" else None), "only what has not begun to record is withdrawn"
    elif event == "complete":
        assert after == ("ready" if state == "importing" else None), "only what is on its way can arrive"
    elif after is not None:
        assert ORDER.index(after) > ORDER.index(state), "never back, never twice"
    else:
        assert ORDER.index(TRANSITIONS[event].after) <= ORDER.index(state), "what was not reported is made up for"


@pytest.mark.parametrize("state", ALL_STATES)
def test_the_event_of_a_reported_state_leads_to_it(state: State) -> None:
    event = event_of(state)
    if state == "armed":
        assert event is None, "a capture begins there, nothing leads there"
    else:
        assert event is not None
        assert TRANSITIONS[event].after == state


def test_a_state_that_nobody_knows_has_no_event() -> None:
    assert event_of("thinking") is None


def test_a_trainer_reports_every_state_that_is_stored_but_ready() -> None:
    assert set(REPORTED) == {*STATES, *ENDED} - {"ready"}


class Reported:
    """Keeps what is reported: state, step, text."""

    def __init__(self) -> None:
        self.states: list[tuple[str, int, str]] = []

    def capture(self, capture: str, state: State, *, step: int, text: str = "", **meta: Any) -> None:
        self.states.append((state, step, text))

    def artifact(self, name: str, **about: Any) -> None: ...


def test_a_tracked_capture_reports_each_state_once_and_none_that_cannot_follow() -> None:
    reported = Reported()
    request = CaptureRequest(capture="c", tool="torch", first_step=3, num_steps=1, roles=(), ranks=())
    capture = TrackedCapture(request, report=reported, step=1)

    assert capture.move("start")
    assert not capture.move("withdraw"), "its workers have begun"
    assert capture.move("record", step=3)
    assert not capture.move("record", step=4)
    assert not capture.is_over
    assert capture.move("fail", step=4, text="why")
    assert capture.is_over

    assert reported.states == [("armed", 1, ""), ("recording", 3, ""), ("failed", 4, "why")]
