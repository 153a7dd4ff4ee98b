"""The state machine: what may follow what, exactly once, whoever comes first."""

from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobs.models import ENDED, STATES, Attempt, AuditEvent, Command, Run, RunEvent
from jobs.runs import lifecycle
from tests.rows import NOW, make_run, make_user

pytestmark = pytest.mark.django_db

CAUSE = {"side": "trainer", "text": "loss is NaN"}


def finish(run: Run, state: str, attempt: int = 1, cause: dict[str, str] | None = None) -> bool:
    return lifecycle.finish(
        run_id=run.pk, attempt=attempt, state=state, cause=cause or {}, cleanup={"processes_left": 0}, now=NOW
    )


def states_of(run: Run) -> tuple[str, str]:
    run.refresh_from_db()
    return run.state, Attempt.objects.get(run=run, number=run.latest_attempt).state


def test_a_run_goes_from_queue_to_end_and_leaves_its_history() -> None:
    run = make_run()

    assert lifecycle.admit(run_id=run.pk, attempt=1, now=NOW)
    assert lifecycle.mark_running(run_id=run.pk, attempt=1, now=NOW + timedelta(seconds=3))
    assert finish(run, "finished")

    assert states_of(run) == ("finished", "finished")
    assert run.started_at == NOW + timedelta(seconds=3)
    assert run.ended_at == NOW
    assert list(run.events.order_by("pk").values_list("verb", flat=True)) == [
        "queued",
        "starting",
        "running",
        "finished",
    ]
    assert Attempt.objects.get(run=run).cleanup == {"processes_left": 0}


def test_transitions_name_every_state_and_ended_ones_lead_nowhere() -> None:
    assert set(lifecycle.TRANSITIONS) == set(STATES)
    assert all(not lifecycle.TRANSITIONS[state] for state in ENDED)


@pytest.mark.parametrize("state", STATES)
def test_only_allowed_changes_happen(state: str) -> None:
    for target in ENDED:
        run = make_run(state=state)
        assert finish(run, target) is (target in lifecycle.TRANSITIONS[state])
        assert states_of(run)[0] == (target if target in lifecycle.TRANSITIONS[state] else state)


def test_the_first_terminal_event_holds() -> None:
    run = make_run(state="running")

    assert finish(run, "failed", cause=CAUSE)
    assert not finish(run, "finished")
    assert not lifecycle.mark_running(run_id=run.pk, attempt=1, now=NOW)

    assert states_of(run) == ("failed", "failed")
    assert run.cause == CAUSE
    assert RunEvent.objects.filter(run=run, verb__in=ENDED).count() == 1


def test_an_old_attempt_changes_nothing() -> None:
    run = make_run(state="running")
    Attempt.objects.create(run=run, number=2, state="running", submission_id="second")
    Run.objects.filter(pk=run.pk).update(latest_attempt=2)

    assert not finish(run, "failed", attempt=1, cause=CAUSE)
    assert not lifecycle.mark_running(run_id=run.pk, attempt=1, now=NOW)

    assert states_of(run) == ("running", "running")


def test_an_unknown_attempt_changes_nothing() -> None:
    assert not finish(make_run(state="running"), "finished", attempt=7)


def test_a_word_that_is_no_end_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"'running' does not end a run. Use one of finished, failed, stopped"):
        finish(make_run(state="running"), "running")


def test_canceling_in_the_queue_stops_at_once_and_starts_nothing() -> None:
    user = make_user("ada")
    run = make_run()

    assert lifecycle.request_stop(run_id=run.pk, user=user, now=NOW)

    assert states_of(run) == ("stopped", "stopped")
    assert run.cause["side"] == "user"
    assert run.is_stop_requested
    assert not Command.objects.exists()
    assert not lifecycle.admit(run_id=run.pk, attempt=1, now=NOW)


@pytest.mark.parametrize("state", ["starting", "running"])
def test_stopping_a_live_run_sends_one_command_however_often_it_is_asked(state: str) -> None:
    run = make_run(state=state)

    assert lifecycle.request_stop(run_id=run.pk, user=make_user(), now=NOW)
    assert not lifecycle.request_stop(run_id=run.pk, user=None, now=NOW)

    assert states_of(run) == ("stopping", "stopping")
    assert Command.objects.filter(attempt__run=run, verb="stop").count() == 1
    assert AuditEvent.objects.filter(verb="run.stop", object_id=run.pk).count() == 1


def test_stopping_an_ended_run_changes_nothing() -> None:
    run = make_run(state="finished")

    assert not lifecycle.request_stop(run_id=run.pk, user=None, now=NOW)

    assert states_of(run) == ("finished", "finished")


def test_a_run_that_ends_by_itself_while_stopping_keeps_its_own_word() -> None:
    run = make_run(state="running")
    lifecycle.request_stop(run_id=run.pk, user=None, now=NOW)

    assert finish(run, "finished")

    assert states_of(run) == ("finished", "finished")


def test_checkpoints_are_asked_of_running_runs_only_and_once() -> None:
    run = make_run(state="running")

    assert lifecycle.request_checkpoint(run_id=run.pk, user=None, now=NOW)
    assert lifecycle.request_checkpoint(run_id=run.pk, user=None, now=NOW)

    assert Command.objects.filter(verb="checkpoint").count() == 1
    assert not lifecycle.request_checkpoint(run_id=make_run(state="starting").pk, user=None, now=NOW)


@pytest.mark.parametrize("state", ["starting", "running"])
def test_a_stop_with_a_grace_is_taken_back_until_the_runner_may_have_been_told(state: str) -> None:
    run, user = make_run(state=state), make_user("ada")
    version = Attempt.objects.get(run=run).version

    assert lifecycle.request_stop(run_id=run.pk, user=user, now=NOW, grace=lifecycle.STOP_GRACE)
    assert states_of(run) == ("stopping", "stopping")
    assert not lifecycle.mark_running(run_id=run.pk, attempt=1, now=NOW)
    assert not lifecycle.withdraw_stop(run_id=run.pk, user=user, now=NOW + lifecycle.STOP_GRACE)
    assert lifecycle.withdraw_stop(run_id=run.pk, user=user, now=NOW)
    assert not lifecycle.withdraw_stop(run_id=run.pk, user=user, now=NOW)

    assert states_of(run) == (state, state)
    assert not run.is_stop_requested
    assert not Command.objects.exists()
    assert Attempt.objects.get(run=run).version == version + 2
    assert AuditEvent.objects.filter(verb="run.withdraw_stop", object_id=run.pk).count() == 1


def test_a_second_request_without_a_grace_leaves_nothing_to_take_back() -> None:
    run = make_run(state="running")
    lifecycle.request_stop(run_id=run.pk, user=None, now=NOW, grace=lifecycle.STOP_GRACE)

    assert not lifecycle.request_stop(run_id=run.pk, user=None, now=NOW)

    assert not lifecycle.withdraw_stop(run_id=run.pk, user=None, now=NOW)
    assert states_of(run) == ("stopping", "stopping")


def test_a_late_proof_of_cleanup_is_kept_once() -> None:
    run = make_run(state="failed")
    Attempt.objects.update(cleanup={})

    assert lifecycle.record_cleanup(run_id=run.pk, attempt=1, cleanup={"processes_left": 0}, now=NOW)
    assert not lifecycle.record_cleanup(run_id=run.pk, attempt=1, cleanup={"processes_left": 5}, now=NOW)

    assert Attempt.objects.get(run=run).cleanup == {"processes_left": 0}


OPERATIONS = {
    "admit": lambda run: lifecycle.admit(run_id=run.pk, attempt=1, now=NOW),
    "run": lambda run: lifecycle.mark_running(run_id=run.pk, attempt=1, now=NOW),
    "stop": lambda run: lifecycle.request_stop(run_id=run.pk, user=None, now=NOW),
    "stop soon": lambda run: lifecycle.request_stop(run_id=run.pk, user=None, now=NOW, grace=lifecycle.STOP_GRACE),
    "withdraw": lambda run: lifecycle.withdraw_stop(run_id=run.pk, user=None, now=NOW),
    "checkpoint": lambda run: lifecycle.request_checkpoint(run_id=run.pk, user=None, now=NOW),
    "finished": lambda run: finish(run, "finished"),
    "failed": lambda run: finish(run, "failed", cause=CAUSE),
    "stopped": lambda run: finish(run, "stopped"),
    "old attempt": lambda run: finish(run, "failed", attempt=2),
}


@given(st.lists(st.sampled_from(sorted(OPERATIONS)), max_size=12))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_order_of_operations_leaves_a_legal_state_and_at_most_one_end(names: list[str]) -> None:
    run = make_run()

    for name in names:
        before = states_of(run)[0]
        changed = OPERATIONS[name](run)
        after, mirrored = states_of(run)
        assert after == mirrored
        assert after == before or (changed and after in lifecycle.TRANSITIONS[before])

    path = list(run.events.filter(verb__in=STATES).order_by("pk").values_list("verb", flat=True))
    assert path[0] == "queued"
    assert all(b in lifecycle.TRANSITIONS[a] for a, b in pairwise(path))
    assert sum(verb in ENDED for verb in path) == (run.state in ENDED)
    assert Attempt.objects.get(run=run).version == len(path) - 1
    assert Command.objects.filter(attempt__run=run, verb="stop").count() <= 1


class OvertakenTransitions(dict[str, frozenset[str]]):
    """The table of transitions, with somebody else changing the run right after it was read for the first time."""

    def __init__(self, meanwhile: Callable[[], bool]) -> None:
        super().__init__(lifecycle.TRANSITIONS)
        self.meanwhile: Callable[[], bool] | None = meanwhile

    def __getitem__(self, state: str) -> frozenset[str]:
        meanwhile, self.meanwhile = self.meanwhile, None
        assert meanwhile is None or meanwhile()
        return super().__getitem__(state)


def test_a_change_between_reading_and_writing_is_seen_and_judged_again(monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(state="running")
    monkeypatch.setattr(lifecycle, "TRANSITIONS", OvertakenTransitions(lambda: finish(run, "failed", cause=CAUSE)))

    assert not finish(run, "finished")

    assert states_of(run) == ("failed", "failed")
    assert RunEvent.objects.filter(run=run, verb__in=ENDED).count() == 1


def test_a_stop_that_loses_a_race_to_the_start_still_stops_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(state="queued")
    lifecycle.admit(run_id=run.pk, attempt=1, now=NOW)
    started = OvertakenTransitions(lambda: lifecycle.mark_running(run_id=run.pk, attempt=1, now=NOW))
    monkeypatch.setattr(lifecycle, "TRANSITIONS", started)

    assert lifecycle.request_stop(run_id=run.pk, user=None, now=NOW)

    assert states_of(run) == ("stopping", "stopping")
    assert list(run.events.order_by("pk").values_list("verb", flat=True)) == [
        "queued",
        "starting",
        "running",
        "stopping",
    ]
    assert Command.objects.filter(verb="stop").count() == 1


def test_a_cause_is_kept_without_secrets() -> None:
    run = make_run(state="running")
    cause = {"side": "trainer", "text": "cannot reach postgres://me:open-sesame@db/x", "log_line": "hf_" + "aB3" * 11}

    lifecycle.finish(run_id=run.pk, attempt=1, state="failed", cause=cause, cleanup={}, now=NOW)

    run.refresh_from_db()
    assert (run.cause["text"], run.cause["log_line"]) == ("cannot reach postgres://me:***@db/x", "***")
    assert "open-sesame" not in RunEvent.objects.get(run=run, verb="failed").text
