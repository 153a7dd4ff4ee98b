"""Healing: what is lost on the way to Ray, on it, or with it."""

from typing import Any

import pytest

from jobs.cluster import ray_api as cluster
from jobs.models import Attempt, Run, RunEvent
from jobs.runs import launch, lifecycle
from tests.jobs.clock import Clock
from tests.jobs.fake_ray import FakeRay
from tests.rows import NOW, make_run, make_user

pytestmark = pytest.mark.django_db


def state_of(run: Run) -> str:
    run.refresh_from_db()
    return run.state


def attempt_of(run: Run) -> Attempt:
    return Attempt.objects.get(run=run, number=run.latest_attempt)


def live_run(ray: FakeRay, state: str = "running") -> tuple[Run, str]:
    """Return a run in `state` with its job running on the fake Ray."""
    run = make_run(state=state)
    name = attempt_of(run).submission_id
    ray.jobs[name] = {"submission_id": name, "status": "RUNNING", "message": "", "driver_exit_code": None}
    return run, name


def test_a_queued_run_that_celery_lost_is_started(ray: FakeRay, clock: Clock) -> None:
    run = make_run()

    clock.step()

    assert state_of(run) == "starting"
    assert [job["submission_id"] for job in ray.submitted] == [f"run-{run.pk}-a1"]
    assert attempt_of(run).submitted_at == NOW


def test_a_run_admitted_by_a_worker_that_died_is_handed_over(ray: FakeRay, clock: Clock) -> None:
    run = make_run()
    lifecycle.admit(run_id=run.pk, attempt=1, now=NOW)

    clock.step(1)
    assert ray.submitted == []  # the worker may still be at it
    clock.step(5)

    assert len(ray.submitted) == 1
    assert attempt_of(run).submitted_at is not None


def test_a_run_admitted_before_the_console_was_down_for_long_is_handed_over(ray: FakeRay, clock: Clock) -> None:
    run = make_run()
    lifecycle.admit(run_id=run.pk, attempt=1, now=NOW)

    clock.step(3600)

    assert state_of(run) == "starting"
    assert len(ray.submitted) == 1


def test_a_run_that_ray_does_not_take_for_five_minutes_fails(ray: FakeRay, clock: Clock) -> None:
    run = make_run()
    ray.break_submit = "no agent"

    clock.step()
    clock.step(299)
    assert state_of(run) == "starting"
    clock.step(1)

    assert state_of(run) == "failed"
    assert run.cause["text"] == "Ray did not take its job for five minutes"


def test_a_run_that_ray_took_before_the_worker_died_is_not_started_twice(ray: FakeRay, clock: Clock) -> None:
    run = make_run()
    launch.submit(run_id=run.pk, now=NOW)
    Attempt.objects.filter(run=run).update(submitted_at=None)

    clock.step(6)

    assert len(ray.submitted) == 1
    assert attempt_of(run).submitted_at is not None


def test_the_next_run_starts_when_room_comes_free(ray: FakeRay, clock: Clock) -> None:
    ray.nodes[0]["resources_total"]["CPU"] = 2.0
    first, second = make_run(), make_run()
    clock.step()
    assert (state_of(first), state_of(second)) == ("starting", "queued")
    assert f"{first.pk} holds" in second.wait_reason

    lifecycle.finish(run_id=first.pk, attempt=1, state="finished", cause={}, cleanup={"processes_left": 0}, now=NOW)
    clock.step(1)

    assert state_of(second) == "starting"
    assert second.wait_reason == ""


def test_a_canceled_run_never_reaches_ray(ray: FakeRay, clock: Clock) -> None:
    run = make_run()
    lifecycle.request_stop(run_id=run.pk, user=None, now=NOW)

    clock.step()
    clock.step(60)

    assert state_of(run) == "stopped"
    assert ray.submitted == []


def test_ray_being_away_changes_nothing_and_is_said(settings: Any, clock: Clock) -> None:
    settings.RAY_ADDRESS = "http://127.0.0.1:9"
    queued, running = make_run(), make_run(state="running")

    clock.step()
    assert (state_of(queued), queued.wait_reason) == ("queued", "Ray is starting")
    clock.step(3600)

    assert (state_of(queued), state_of(running)) == ("queued", "running")
    assert queued.wait_reason.startswith("Ray has not responded since 12:00:00 UTC: Ray does not answer at")


def test_a_failed_job_gets_time_for_its_own_word_then_fails_with_the_cause(ray: FakeRay, clock: Clock) -> None:
    run, name = live_run(ray)
    log = "(truncated to 20,000 chars):\n2026 INFO job_manager.py:581 -- Runtime env is set up\nMemoryError: no room\n"
    ray.end(name, "FAILED", f"Job entrypoint command failed with exit code 1, last available logs {log}", 1)

    clock.step()
    clock.step(9)
    assert state_of(run) == "running"
    clock.step(2)

    assert state_of(run) == "failed"
    assert run.cause == {
        "side": "pitwall",
        "text": "its runner ended with exit code 1",
        "log_line": "MemoryError: no room",
        "exit_code": 1,
    }


def test_the_runners_own_word_wins_over_rays(ray: FakeRay, clock: Clock) -> None:
    run, name = live_run(ray)
    ray.end(name, "SUCCEEDED")
    clock.step()
    cause = {"side": "trainer", "text": "loss is NaN"}
    lifecycle.finish(
        run_id=run.pk, attempt=1, state="failed", cause=cause, cleanup={"processes_left": 0}, now=clock.now
    )

    clock.step(60)

    assert state_of(run) == "failed"
    assert run.cause == cause
    assert ray.submitted == []  # it proved its clean-up itself


@pytest.mark.parametrize(
    ("status", "message", "code", "side", "words"),
    [
        (
            "FAILED",
            "Job entrypoint command failed with exit code 137, last available logs:\n",
            137,
            "cluster",
            "killed",
        ),
        ("FAILED", "runtime_env setup failed: disk full", None, "cluster", "could not prepare its environment"),
        ("FAILED", "The node died", None, "cluster", "Ray ended its job: The node died"),
        ("STOPPED", "Job was intentionally stopped.", None, "cluster", "stopped from outside"),
        ("SUCCEEDED", "Job finished successfully.", 0, "pitwall", "without a final report"),
    ],
)
def test_each_way_to_die_has_its_sentence(
    ray: FakeRay, clock: Clock, status: str, message: str, code: int | None, side: str, words: str
) -> None:
    run, name = live_run(ray)
    ray.end(name, status, message, code)

    clock.step()
    clock.step(11)

    assert state_of(run) == "failed"
    assert run.cause["side"] == side
    assert words in run.cause["text"]


def test_a_killed_runner_is_cleaned_up_after_once(ray: FakeRay, clock: Clock) -> None:
    run, name = live_run(ray)
    ray.end(name, "FAILED", "exit code 137", 137)

    clock.step()
    clock.step(11)
    clock.step(1)
    clock.step(1)

    (job,) = ray.submitted
    assert job["submission_id"] == f"{name}-cleanup"
    assert job["entrypoint"].endswith("-m jobs.runner.cleanup")
    assert job["runtime_env"]["env_vars"]["PITWALL_RUN"] == run.pk


def test_what_a_killed_run_held_is_free_once_its_cleanup_is_proved(ray: FakeRay, clock: Clock) -> None:
    ray.nodes[0]["resources_total"]["CPU"] = 2.0
    run, name = live_run(ray)
    waiting = make_run()
    ray.end(name, "FAILED", "exit code 137", 137)
    clock.step()
    clock.step(11)
    clock.step(1)
    assert (state_of(run), state_of(waiting)) == ("failed", "queued")
    assert f"{run.pk} (cleaning up) holds" in waiting.wait_reason

    lifecycle.record_cleanup(run_id=run.pk, attempt=1, cleanup={"processes_left": 0}, now=clock.now)
    clock.step(1)

    assert state_of(waiting) == "starting"


def test_a_cleanup_that_never_reports_holds_nothing_for_long(ray: FakeRay, clock: Clock) -> None:
    ray.nodes[0]["resources_total"]["CPU"] = 2.0
    _run, name = live_run(ray)
    waiting = make_run()
    ray.end(name, "FAILED", "exit code 137", 137)
    clock.step()
    clock.step(11)

    clock.step(61)

    assert state_of(waiting) == "starting"


def test_a_job_that_ray_forgot_is_a_lost_cluster_only_after_ten_seconds(ray: FakeRay, clock: Clock) -> None:
    run, name = live_run(ray)
    job = ray.jobs.pop(name)

    clock.step()
    ray.jobs[name] = job  # it was only slow to list it
    clock.step(11)
    assert state_of(run) == "running"
    assert attempt_of(run).missing_at is None
    del ray.jobs[name]
    clock.step(1)
    clock.step(9)
    assert state_of(run) == "running"
    clock.step(2)

    assert state_of(run) == "failed"
    assert run.cause["side"] == "cluster"
    assert "cluster lost" in run.cause["text"]


def test_a_job_is_not_missed_while_ray_is_away(ray: FakeRay, clock: Clock, settings: Any) -> None:
    run, _name = live_run(ray)
    settings.RAY_ADDRESS = "http://127.0.0.1:9"
    clock.step()
    clock.step(600)
    settings.RAY_ADDRESS = ray.address
    clock.step(1)

    assert state_of(run) == "running"
    assert attempt_of(run).missing_at is None


def test_a_stop_is_left_to_the_runner_then_enforced(ray: FakeRay, clock: Clock) -> None:
    run, name = live_run(ray)
    lifecycle.request_stop(run_id=run.pk, user=make_user(), now=NOW)

    clock.step(89)
    assert ray.stopped == []
    clock.step(2)
    clock.step(1)
    assert ray.stopped == [name]
    assert RunEvent.objects.filter(run=run, verb="stop_forced").count() == 1
    clock.step(31)
    assert ray.stopped == [name, name]
    ray.end(name, "STOPPED", "Job was intentionally stopped.")
    clock.step(1)
    clock.step(11)

    assert state_of(run) == "stopped"
    assert run.cause["side"] == "user"


def test_a_run_with_long_steps_gets_two_of_them_to_stop(ray: FakeRay, clock: Clock) -> None:
    run, _name = live_run(ray)
    Run.objects.filter(pk=run.pk).update(latest_values={"time/step_seconds": 300.0})
    lifecycle.request_stop(run_id=run.pk, user=None, now=NOW)

    clock.step(599)
    assert ray.stopped == []
    clock.step(2)

    assert len(ray.stopped) == 1


def test_a_start_that_is_stopped_before_ray_has_it_ends_as_stopped(ray: FakeRay, clock: Clock) -> None:
    run = make_run()
    lifecycle.admit(run_id=run.pk, attempt=1, now=NOW)
    lifecycle.request_stop(run_id=run.pk, user=None, now=NOW)

    clock.step()
    clock.step(11)

    assert state_of(run) == "stopped"
    assert run.cause["text"] == "stopped before it started"
    assert ray.submitted == []


def test_a_job_that_ray_refuses_fails_the_run_with_rays_words(ray: FakeRay, clock: Clock) -> None:
    ray.refuse_submit = "ValueError: submission_id may not contain spaces"
    run = make_run()

    clock.step()

    assert state_of(run) == "failed"
    assert "may not contain spaces" in run.cause["text"]


def test_a_job_that_ray_cannot_take_is_tried_for_five_minutes(ray: FakeRay, clock: Clock) -> None:
    ray.break_submit = "No available agent to submit job, please try again later."
    run = make_run()

    clock.step()
    clock.step(200)
    assert state_of(run) == "starting"
    clock.step(101)

    assert state_of(run) == "failed"
    assert run.cause["side"] == "cluster"


def test_a_slow_start_says_what_it_waits_for(ray: FakeRay, clock: Clock) -> None:
    run, name = live_run(ray, state="starting")
    ray.jobs[name]["status"] = "PENDING"
    clock.step(25)
    run.refresh_from_db()
    assert run.activity == "Ray prepares its environment"
    ray.jobs[name]["status"] = "RUNNING"

    clock.step(1)

    run.refresh_from_db()
    assert run.activity.startswith("Its runner has not reached the console at http://127.0.0.1:")


def test_steps_ask_ray_nothing_when_nothing_is_live(ray: FakeRay, clock: Clock) -> None:
    make_run(state="finished")

    clock.step()

    assert ray.requests == [("GET", "/api/v0/nodes")]


def test_the_jobs_of_all_runs_are_asked_for_once_a_step(ray: FakeRay, clock: Clock) -> None:
    for _ in range(3):
        live_run(ray)

    clock.step()

    assert [r for r in ray.requests if "jobs" in r[1]] == [("GET", "/api/jobs/")]


def test_celery_and_reconciler_at_once_start_a_run_once(ray: FakeRay, clock: Clock) -> None:
    run = make_run()

    clock.step()
    launch.submit(run_id=run.pk, now=clock.now)
    clock.step(1)

    assert len(ray.submitted) == 1
    assert cluster.list_jobs().keys() == {f"run-{run.pk}-a1"}
