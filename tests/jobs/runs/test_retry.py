"""Runs that start again by themselves: after which cause, from which checkpoint, when, and how often."""

from datetime import timedelta
from typing import Any

import pytest

from jobs.models import Attempt, AuditEvent, Run, RunEvent, Study
from jobs.runs import lifecycle
from jobs.runs.checkpoints import list_checkpoints
from jobs.runs.header import run_header
from jobs.runs.resume import resume_run
from jobs.runs.retry_policy import decide, delay
from tests.attempts import begin_training, end, lose_checkpoint, train
from tests.jobs.clock import Clock
from tests.jobs.fake_ray import FakeRay
from tests.rows import NOW, make_run, make_user

pytestmark = pytest.mark.django_db


def training_run(retries: int = 2, retry_on: str = "cluster", steps: int = 45) -> Run:
    """Return a running run of 60 steps with that policy, so many steps done, a checkpoint each 20."""
    policy = {"retries": retries, "retry_on": retry_on}
    run = make_run(state="running", spec={"policy": policy} if retries else {})
    train(run, range(1, steps + 1))
    return run


def attempts(run: Run) -> list[tuple[int, str, int | None, int]]:
    rows = Attempt.objects.filter(run=run).order_by("number")
    return [(a.number, a.state, a.resume_attempt, a.resume_step) for a in rows]


def state_of(run: Run) -> str:
    run.refresh_from_db()
    return run.state


def test_a_lost_run_is_queued_again_from_its_newest_checkpoint_after_its_time(ray: FakeRay, clock: Clock) -> None:
    run = training_run()
    end(run, side="cluster")

    clock.step(1)
    run.refresh_from_db()
    assert attempts(run) == [(1, "failed", None, 0), (2, "queued", 1, 40)]
    said = "Retries at 12:00:05 UTC from checkpoint 40, attempt 2 of 3: policy rank 1 was killed"
    assert run.wait_reason == said
    header = run_header(run, now=clock.now)
    assert header.retry is not None
    assert (header.retry.number, header.retry.most, header.retry.at) == (2, 3, "2026-11-20T12:00:05+00:00")
    assert header.attempts[1].is_automatic
    audit = AuditEvent.objects.get(verb="run.retry")
    assert (audit.actor, audit.after["checkpoint"]) == (None, [1, 40])

    clock.step(3)
    assert (state_of(run), run.wait_reason, ray.submitted) == ("queued", said, [])
    clock.step(1)
    assert state_of(run) == "starting"
    assert [job["submission_id"] for job in ray.submitted] == [f"run-{run.pk}-a2"]


def test_a_run_without_a_checkpoint_starts_from_the_start(ray: FakeRay, clock: Clock) -> None:
    run = training_run(steps=5)
    end(run, side="cluster")

    clock.step()

    assert attempts(run)[1:] == [(2, "queued", None, 0)]
    assert "from the start, attempt 2 of 3" in Run.objects.get(pk=run.pk).wait_reason


@pytest.mark.parametrize(
    ("side", "retry_on", "is_retried"),
    [
        ("cluster", "cluster", True),
        ("pitwall", "cluster", True),
        ("trainer", "cluster", False),
        ("cluster", "any", True),
        ("trainer", "any", True),
        ("user", "any", False),
    ],
)
def test_the_side_of_the_cause_decides(ray: FakeRay, clock: Clock, side: str, retry_on: str, is_retried: bool) -> None:
    run = training_run(retry_on=retry_on)
    end(run, side=side)
    clock.step()

    run.refresh_from_db()
    header = run_header(run, now=clock.now)
    assert (run.state == "queued") is is_retried
    assert header.retry is not None
    assert bool(header.retry.why_not) is not is_retried


def test_a_failure_of_the_day_before_yesterday_is_left_alone(ray: FakeRay, clock: Clock) -> None:
    run = training_run()
    end(run, side="cluster")
    clock.step(2 * 86_400)

    assert state_of(run) == "failed"
    header = run_header(run, now=clock.now)
    assert header.retry is not None
    assert header.retry.why_not.startswith("Not retried: it failed more than a day ago")


@pytest.mark.parametrize("state", ["finished", "stopped"])
def test_what_did_not_fail_is_left_alone(ray: FakeRay, clock: Clock, state: str) -> None:
    run = training_run(retry_on="any")
    end(run, state)
    clock.step(300)

    assert state_of(run) == state
    assert run_header(run).retry is None


def test_a_run_without_a_policy_stays_failed(ray: FakeRay, clock: Clock) -> None:
    run = training_run(retries=0)
    end(run, side="cluster")
    clock.step(300)

    assert state_of(run) == "failed"
    assert run_header(run).retry is None


def test_a_trainer_that_got_no_further_is_not_started_again(ray: FakeRay, clock: Clock) -> None:
    run = training_run(retries=5, retry_on="any")
    end(run, side="trainer")
    clock.step(10)
    begin_training(run, 2)
    train(run, range(41, 46), attempt=2)
    end(run, attempt=2, side="trainer")
    clock.step(10)

    assert state_of(run) == "failed"
    said = "Not retried: the trainer failed at step 45 and got no further than before, so it would again."
    header = run_header(run, now=clock.now)
    assert header.retry is not None
    assert (header.retry.why_not, header.retry.at) == (said, None)


def test_a_trainer_that_got_further_is_started_again_until_no_retry_is_left(ray: FakeRay, clock: Clock) -> None:
    run = training_run(retries=2, retry_on="any")
    end(run, side="trainer")
    for number, last in [(2, 50), (3, 55)]:
        clock.step(10)
        clock.step(10)
        assert attempts(run)[-1][0] == number
        begin_training(run, number)
        train(run, range(41, last + 1), attempt=number)
        end(run, attempt=number, side="trainer")
    clock.step(300)

    assert state_of(run) == "failed"
    header = run_header(run, now=clock.now)
    assert header.retry is not None
    assert header.retry.why_not == "Not retried: all 2 retries are used up."


def test_a_trainer_that_never_did_a_step_is_not_started_again(ray: FakeRay, clock: Clock) -> None:
    run = training_run(retry_on="any", steps=0)
    end(run, side="trainer")
    clock.step(300)

    assert state_of(run) == "failed"


def test_the_wait_doubles_and_is_capped() -> None:
    assert [delay(n).total_seconds() for n in range(7)] == [5, 10, 20, 40, 80, 120, 120]


def test_a_killed_runner_is_cleaned_up_after_before_its_run_starts_again(ray: FakeRay, clock: Clock) -> None:
    run = training_run()
    name = f"run-{run.pk}-a1"
    ray.jobs[name] = {"submission_id": name, "status": "RUNNING", "message": "", "driver_exit_code": None}
    ray.end(name, "FAILED", "exit code 137", 137)
    clock.step()
    clock.step(11)  # buried
    clock.step(20)
    assert state_of(run) == "failed"
    assert [job["submission_id"] for job in ray.submitted] == [f"{name}-cleanup"]
    header = run_header(run, now=clock.now)
    assert header.retry is not None
    assert not header.retry.why_not

    lifecycle.record_cleanup(run_id=run.pk, attempt=1, cleanup={"processes_left": 0}, now=clock.now)
    clock.step(1)

    assert state_of(run) == "starting"  # its five seconds have passed meanwhile
    assert ray.submitted[-1]["submission_id"] == f"run-{run.pk}-a2"


@pytest.mark.parametrize("proof", [{}, {"processes_left": 2}])
def test_without_a_good_proof_the_next_attempt_waits_a_minute(
    ray: FakeRay, clock: Clock, proof: dict[str, Any]
) -> None:
    run = training_run()
    Attempt.objects.filter(run=run).update(submitted_at=NOW)
    cause = {"side": "cluster", "text": "a node was lost"}
    lifecycle.finish(run_id=run.pk, attempt=1, state="failed", cause=cause, cleanup=proof, now=NOW)

    clock.step(59)
    assert state_of(run) == "failed"
    clock.step(1)

    assert state_of(run) == "starting"


def test_a_retry_holds_up_nobody(ray: FakeRay, clock: Clock) -> None:
    ray.nodes[0]["resources_total"]["CPU"] = 4.0
    run, other = training_run(), make_run()
    end(run, side="cluster")
    Run.objects.filter(pk=other.pk).update(state="stopped")
    Attempt.objects.filter(run=other).update(state="stopped")
    clock.step()
    late = make_run()
    clock.step(1)

    assert (state_of(run), state_of(late)) == ("queued", "starting")


def test_stopping_a_waiting_retry_keeps_the_run_stopped(ray: FakeRay, clock: Clock) -> None:
    run = training_run()
    end(run, side="cluster")
    clock.step()
    assert lifecycle.request_stop(run_id=run.pk, user=make_user("ada"), now=clock.now)
    clock.step(300)

    assert state_of(run) == "stopped"
    assert "ada" in run.cause["text"]
    assert len(attempts(run)) == 2


def test_a_failed_run_about_to_retry_can_be_kept_from_it(ray: FakeRay, clock: Clock) -> None:
    run = training_run()
    end(run, side="cluster")

    assert lifecycle.request_stop(run_id=run.pk, user=None, now=NOW)
    assert not lifecycle.request_stop(run_id=run.pk, user=None, now=NOW)
    clock.step(300)

    assert state_of(run) == "failed"
    assert RunEvent.objects.filter(run=run, verb="retry_canceled").count() == 1
    assert len(attempts(run)) == 1


def test_a_run_that_failed_while_it_was_stopping_stays_ended(ray: FakeRay, clock: Clock) -> None:
    run = training_run(retry_on="any")
    lifecycle.request_stop(run_id=run.pk, user=None, now=NOW)
    end(run, side="cluster")
    clock.step(300)

    assert state_of(run) == "failed"


def test_a_spec_that_an_upgraded_console_refuses_is_not_tried_again(ray: FakeRay, clock: Clock) -> None:
    run = training_run()
    end(run, side="cluster")
    Run.objects.filter(pk=run.pk).update(spec={**run.spec, "gone": True})
    for _ in range(3):
        clock.step(1)

    assert state_of(run) == "failed"
    assert RunEvent.objects.filter(run=run, verb="retry_canceled").count() == 1


def test_a_lost_checkpoint_is_passed_over_until_the_start_is_reached(ray: FakeRay, clock: Clock) -> None:
    run = training_run(retries=1)
    end(run, side="cluster")
    clock.step(5)
    assert attempts(run)[-1] == (2, "starting", 1, 40)

    first = lose_checkpoint(run, 2, now=clock.now)
    clock.step(1)
    run.refresh_from_db()
    assert attempts(run)[-1] == (3, "queued", 1, 20)
    assert run.wait_reason == f"Retries at 12:00:10 UTC from checkpoint 20 instead of 40, attempt 3: {first}"
    assert (run.step, run.latest_values) == (20, {"reward/mean": 0.2})
    clock.step(4)

    second = lose_checkpoint(run, 3, now=clock.now, said="is not whole: its file policy-0-0.safetensors is missing")
    clock.step(1)
    run.refresh_from_db()
    assert attempts(run)[-1] == (4, "queued", None, 0)
    assert run.wait_reason == f"Retries at 12:00:15 UTC from the start instead of checkpoint 20, attempt 4: {second}"
    header = run_header(run, now=clock.now)
    assert header.retry is not None
    assert (header.retry.number, header.retry.most) == (4, 4)
    assert [a.visible_through for a in header.attempts] == [-1, -1, -1, None]


def test_looking_for_a_checkpoint_uses_up_no_retry_but_training_does(ray: FakeRay, clock: Clock) -> None:
    run = training_run(retries=1)
    end(run, side="cluster")
    clock.step(5)
    lose_checkpoint(run, 2, now=clock.now)
    clock.step(10)
    begin_training(run, 3)
    train(run, range(21, 30), attempt=3)
    end(run, attempt=3, side="cluster", now=clock.now)
    clock.step(300)

    assert state_of(run) == "failed"
    header = run_header(run, now=clock.now)
    assert header.retry is not None
    assert header.retry.why_not == "Not retried: its 1 retry is used up."


def test_a_policy_that_never_retries_does_not_for_a_lost_checkpoint(ray: FakeRay, clock: Clock) -> None:
    run = training_run(retries=0)
    end(run, side="cluster")
    resume_run(run_id=run.pk, step=40, hardware={}, user=None, now=NOW)
    lose_checkpoint(run, 2)
    clock.step(300)

    assert (state_of(run), len(attempts(run))) == ("failed", 2)


def test_who_lost_its_checkpoint_has_not_got_as_far_as_that(ray: FakeRay, clock: Clock) -> None:
    run = training_run(retries=3, retry_on="any")
    end(run)
    Attempt.objects.filter(run=run).update(ended_at=NOW - timedelta(days=2))  # only a person starts it again
    resume_run(run_id=run.pk, step=40, hardware={}, user=None, now=NOW)
    lose_checkpoint(run, 2)
    clock.step(6)
    begin_training(run, 3)
    train(run, range(21, 31), attempt=3)
    end(run, attempt=3, side="trainer", now=clock.now)
    clock.step(1)

    # It failed at step 30, before the 40 that attempt 2 was to start from: yet none since the person's start did more.
    assert attempts(run)[-1] == (4, "queued", 1, 20)


def test_a_lost_checkpoint_is_listed_as_such_until_an_attempt_finds_it(ray: FakeRay, clock: Clock) -> None:
    run = training_run(retries=0)
    end(run, side="cluster")

    def listed() -> list[tuple[int, str]]:
        return [(c.step, c.problem) for c in list_checkpoints(run, with_scores=False)]

    resume_run(run_id=run.pk, step=40, hardware={}, user=None, now=NOW)
    why = lose_checkpoint(run, 2)
    assert listed() == [(40, why), (20, "")]

    resume_run(run_id=run.pk, step=40, hardware={}, user=None, now=NOW)  # who knows that the node is back
    lifecycle.request_stop(run_id=run.pk, user=None, now=NOW)
    assert listed() == [(40, why), (20, "")]  # canceled before anybody looked

    resume_run(run_id=run.pk, step=40, hardware={}, user=None, now=NOW)
    begin_training(run, 4)
    end(run, attempt=4, side="cluster")
    assert listed() == [(40, ""), (20, "")]


def test_a_spec_that_somebody_must_put_right_is_not_said_to_be_stopped(ray: FakeRay, clock: Clock) -> None:
    run = training_run(retry_on="any")
    end(run, side="user")
    clock.step(300)

    header = run_header(Run.objects.get(pk=run.pk), now=clock.now)
    assert header.retry is not None
    assert header.retry.why_not.startswith("Not retried: it would fail again until the cause is fixed")


def test_a_run_of_a_stopped_sweep_stays_failed(ray: FakeRay, clock: Clock) -> None:
    run = training_run()
    about = {"spec": {}, "knobs": [], "method": "grid", "num_runs": 1, "is_stop_requested": True}
    Run.objects.filter(pk=run.pk).update(study=Study.objects.create(project=run.project, name="rates", **about))
    end(run, side="cluster")
    clock.step(300)

    assert state_of(run) == "failed"
    header = run_header(run, now=clock.now)
    assert header.retry is not None
    assert header.retry.why_not == "Not retried: its sweep was stopped."


def test_whoever_resumes_gives_all_retries_anew() -> None:
    run = training_run(retries=1)
    end(run, side="cluster")
    run.refresh_from_db()
    about = {"run": run, "cause": {"side": "cluster"}, "state": "failed", "submitted_at": NOW, "ended_at": NOW}
    second = Attempt(number=2, is_automatic=True, **about)
    third = Attempt(number=3, **about)
    first = Attempt.objects.get(run=run)

    run.latest_attempt = 2
    used_up = decide(run, [first, second], now=NOW)
    run.latest_attempt = 3
    anew = decide(run, [first, second, third], now=NOW)

    assert used_up is not None
    assert anew is not None
    assert (used_up.most, used_up.at) == (2, None)
    assert (anew.number, anew.most, anew.at) == (4, 4, NOW + timedelta(seconds=5))
