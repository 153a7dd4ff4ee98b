"""Which event may follow which state of a capture: all pairs, against the promises in words."""

import itertools

import pytest

from profiling.captures.state import ENDED, OPEN, REPORTED, STATES, TRANSITIONS, Event, State, event_of, next_state

ALL_STATES: tuple[State, ...] = (*OPEN, *ENDED)
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
        assert STATES.index(after) > STATES.index(state), "never back, never twice"
    else:
        assert STATES.index(TRANSITIONS[event].after) <= STATES.index(state), "what was not reported is made up for"


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


def test_a_trainer_reports_every_state_but_ready() -> None:
    assert set(REPORTED) == set(ALL_STATES) - {"ready"}
