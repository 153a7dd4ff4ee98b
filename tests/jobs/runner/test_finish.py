"""How an attempt ends, and the way from a polite stop to SIGKILL, on a clock of the test's own."""

from pathlib import Path

import pytest

from jobs.runner.finish import outcome
from jobs.runner.reporting.trainer_progress import TrainerProgress
from jobs.runner.trainer import Escalation, Exit


def escalate(escalation: Escalation, *times: float) -> list[str]:
    """Let time pass and return what was sent."""
    sent: list[str] = []
    for now in times:
        escalation.act(now, terminate=lambda: sent.append("SIGTERM"), kill=lambda: sent.append("SIGKILL"))
    return sent


def test_nothing_is_sent_unasked() -> None:
    assert escalate(Escalation(grace_seconds=0, term_seconds=0), 0, 1e6) == []


def test_a_stop_waits_for_its_grace_then_for_sigterm() -> None:
    escalation = Escalation(grace_seconds=300, term_seconds=15)
    escalation.ask(100)
    escalation.ask(390)  # asking again does not begin anew

    assert escalate(escalation, 399.9) == []
    assert escalate(escalation, 400, 414.9) == ["SIGTERM"]
    assert escalate(escalation, 415, 500) == ["SIGKILL"]


def test_a_cluster_in_a_hurry_shortens_the_waits() -> None:
    escalation = Escalation(grace_seconds=300, term_seconds=15)
    escalation.ask(0)
    escalation.hasten(10)

    assert escalate(escalation, 17.9) == []
    assert escalate(escalation, 18, 22.9) == ["SIGTERM"]
    assert escalate(escalation, 23) == ["SIGKILL"]


def test_an_attempt_that_does_not_count_any_more_gets_no_grace() -> None:
    escalation = Escalation(grace_seconds=300, term_seconds=15)
    escalation.at_once(10)

    assert escalate(escalation, 10, 15) == ["SIGTERM", "SIGKILL"]


@pytest.mark.parametrize(
    ("code", "asked", "fast", "level", "state", "expected"),
    [
        (0, False, False, 0, "done", ("finished", None)),
        (0, True, False, 1, "done", ("finished", None)),
        (10, True, False, 1, "training", ("stopped", "user")),
        (10, True, True, 1, "training", ("stopped", "cluster")),
        (-15, True, False, 2, "training", ("stopped", "user")),
        (-9, True, True, 3, "training", ("stopped", "cluster")),
        (1, True, False, 1, "training", ("failed", "trainer")),
        (-9, False, False, 0, "training", ("failed", "trainer")),
    ],
)
def test_exit_code_and_stop_decide_the_state(
    tmp_path: Path, code: int, asked: bool, fast: bool, level: int, state: str, expected: tuple[str, str | None]
) -> None:
    escalation = Escalation(grace_seconds=1, term_seconds=1)
    if asked:
        escalation.ask(0)
    if fast:
        escalation.hasten(0)
    escalation.level = level

    ended, cause = outcome(
        Exit(code=code),
        escalation=escalation,
        progress=TrainerProgress(path=tmp_path, step=3, state=state),
        find_cause=lambda: {"side": "trainer"},
    )

    assert (ended, cause.get("side")) == expected


@pytest.mark.parametrize(
    ("state", "was_asked", "expected"),
    [("done", False, "finished"), ("done", True, "stopped"), ("failed", False, "failed"), ("failed", True, "failed")],
)
def test_a_trainer_that_hangs_after_its_terminal_event_is_ended_and_judged_by_it(
    tmp_path: Path, state: str, was_asked: bool, expected: str
) -> None:
    escalation = Escalation(grace_seconds=300, term_seconds=15)
    if was_asked:
        escalation.ask(50)
    escalation.overdue(100)

    sent = escalate(escalation, 100, 115)
    ended, _ = outcome(
        Exit(code=-9),
        escalation=escalation,
        progress=TrainerProgress(path=tmp_path, step=3, state=state),
        find_cause=lambda: {"side": "trainer"},
    )

    assert sent == ["SIGTERM", "SIGKILL"]
    assert ended == expected


@pytest.mark.parametrize(
    ("step", "text"), [(3, "after step 3, with a checkpoint"), (0, "before the first step was done, nothing to save")]
)
def test_a_stop_tells_of_a_checkpoint_only_where_there_is_one(tmp_path: Path, step: int, text: str) -> None:
    escalation = Escalation(grace_seconds=1, term_seconds=1)
    escalation.ask(0)

    _, cause = outcome(
        Exit(code=10),
        escalation=escalation,
        progress=TrainerProgress(path=tmp_path, step=step, state="training"),
        find_cause=dict,
    )

    assert cause["text"] == text
