"""Starting an ended run again: from which checkpoint, with what changed, and never twice."""

from datetime import timedelta
from typing import Any

import pytest

from jobs.ingest.store import AttemptCache, StoreResult, store
from jobs.models import Artifact, Attempt, AuditEvent, Capture, Command, Run, RunEvent
from jobs.runs import admission, launch, lifecycle
from jobs.runs.checkpoints import list_checkpoints
from jobs.runs.header import run_header
from jobs.runs.resume import ResumeRefused, resume_run
from jobs.telemetry.attempt_spec import latest_spec_json, spec_json
from tests.attempts import begin_training, end, saved, train
from tests.batches import delivery, metric
from tests.jobs.fake_ray import FakeRay
from tests.rows import NOW, make_project, make_run, make_user

pytestmark = pytest.mark.django_db

LATER = NOW + timedelta(minutes=5)


def failed_run(**fields: Any) -> Run:
    """Return a run of 60 steps that died at step 57 with checkpoints of 20 and 40."""
    run = make_run(state="running", **fields)
    train(run, range(1, 58))
    end(run)
    run.refresh_from_db()
    return run


def again(run: Run, step: int | None, **about: Any) -> Attempt:
    return resume_run(**{"run_id": run.pk, "step": step, "hardware": {}, "user": None, "now": LATER} | about)


def test_a_failed_run_goes_back_to_the_queue_at_its_checkpoint() -> None:
    run = failed_run()
    ada = make_user("ada")

    attempt = again(run, 40, user=ada)

    run.refresh_from_db()
    assert (attempt.number, attempt.submission_id) == (2, f"run-{run.pk}-a2")
    assert (attempt.resume_attempt, attempt.resume_step, attempt.is_automatic) == (1, 40, False)
    assert (run.state, run.latest_attempt, run.step, run.cause) == ("queued", 2, 40, {})
    assert (run.ended_at, run.is_stop_requested, run.wait_reason, run.phase, run.activity) == (None, False, "", "", "")
    assert run.latest_values == {"reward/mean": 0.4}  # of step 40; that of step 57 is in the dead branch
    event = RunEvent.objects.filter(run=run).latest("pk")
    assert (event.verb, event.attempt, event.text, event.actor) == ("queued", 2, "Resumed from checkpoint 40", ada)
    audit = AuditEvent.objects.get(verb="run.resume")
    assert (audit.object_id, audit.actor, audit.after["checkpoint"]) == (run.pk, ada, [1, 40])
    old = Attempt.objects.get(run=run, number=1)
    assert (old.state, old.step, old.cause["text"]) == ("failed", 57, "policy rank 1 was killed")


def test_a_run_whose_data_decide_its_steps_goes_on_from_any_checkpoint() -> None:
    run = failed_run(spec={"trainer": {"name": "openrlhf"}, "algorithm": "sft"})

    assert again(run, 40).resume_step == 40


def test_the_resumed_attempt_moves_the_run_and_the_old_one_no_longer_can() -> None:
    run = failed_run()
    again(run, 40)
    begin_training(run, 2)
    begun = Attempt.objects.get(run=run, number=1).durable_batch

    late = store(
        [delivery(run.pk, begun + 1, [metric(58, attempt=1, **{"reward/mean": 9.0})])], memory=AttemptCache(), now=NOW
    )
    assert late == StoreResult()
    assert not lifecycle.finish(run_id=run.pk, attempt=1, state="finished", cause={}, cleanup={}, now=NOW)
    assert not lifecycle.mark_running(run_id=run.pk, attempt=1, now=NOW)
    train(run, [41], attempt=2, reward=1)

    run.refresh_from_db()
    assert (run.state, run.step, run.latest_values) == ("running", 41, {"reward/mean": 1.41})
    header = run_header(run, now=NOW)
    assert [(a.number, a.state, a.step, a.visible_through) for a in header.attempts] == [
        (1, "failed", 57, 40),
        (2, "running", 41, None),
    ]


def test_a_restart_from_the_start_leaves_nothing_of_what_was() -> None:
    run = failed_run()

    attempt = again(run, None)

    run.refresh_from_db()
    assert (attempt.resume_attempt, attempt.resume_step) == (None, 0)
    assert (run.step, run.latest_values) == (0, {})
    assert RunEvent.objects.filter(run=run).latest("pk").text == "Restarted from the start"
    assert [a.visible_through for a in run_header(run).attempts] == [-1, None]


def test_another_number_of_ranks_is_checked_and_is_what_the_queue_and_the_runner_get() -> None:
    run = failed_run()

    attempt = again(run, 40, hardware={"policy_ranks": 1.0})

    (ask,) = admission.waiting(device="cpu")
    assert attempt.overrides == {"hardware": {"policy_ranks": 1}}
    assert spec_json(attempt)["hardware"] == {**run.spec["hardware"], "policy_ranks": 1}
    assert latest_spec_json(Run.objects.get(pk=run.pk)) == spec_json(attempt)
    assert ask.cpus == attempt.num_cpus == Attempt.objects.get(run=run, number=1).num_cpus - 1
    run.refresh_from_db()
    assert run.spec["hardware"]["policy_ranks"] == 2  # the run's own spec stays what was launched


def test_what_a_resume_leaves_out_stays_as_in_the_attempt_before() -> None:
    run = failed_run()
    again(run, 40, hardware={"policy_ranks": 1}, num_steps=80)
    begin_training(run, 2)
    end(run, attempt=2)

    third = again(run, 40)
    run.refresh_from_db()
    assert spec_json(third)["hardware"]["policy_ranks"] == 1
    assert run.num_steps == 80
    begin_training(run, 3)
    end(run, attempt=3)

    assert again(run, 40, hardware={"policy_ranks": 2}, num_steps=60).overrides == {}


def test_a_finished_run_trains_on_with_more_steps() -> None:
    run = make_run(state="running")
    train(run, range(1, 61))
    end(run, "finished")

    with pytest.raises(ResumeRefused, match="step 60 is the end of 60 steps: nothing is left to train"):
        again(run, 60)
    attempt = again(run, 60, num_steps=90)

    run.refresh_from_db()
    assert run.num_steps == 90
    assert attempt.overrides == {"knobs": {"train.num_steps": {"value": 90, "origin": "you"}}}


def test_one_that_died_after_its_last_step_ends_from_the_last_checkpoint() -> None:
    run = make_run(state="running")
    train(run, range(1, 61))
    end(run, "failed")

    assert again(run, 60).resume_step == 60


@pytest.mark.parametrize(
    ("about", "field", "said"),
    [
        ({"step": 50}, "step", r"no checkpoint of step 50\. Use one of 40, 20, or restart from the start"),
        ({"step": 40, "attempt": 7}, "step", r"Attempt 7 has no checkpoint of step 40"),
        (
            {"step": 40, "hardware": {"policy_ranks": 3}},
            "knobs.rollout.prompts_per_step",
            r"do not divide by 3 .*clone",
        ),
        ({"step": 40, "hardware": {"policy_ranks": 0}}, "hardware.policy_ranks", r"0 is not allowed\. Use a whole"),
        ({"step": 40, "hardware": {"rank": 1}}, "hardware.rank", r"no field 'rank'\. Did you mean"),
        ({"step": 40, "num_steps": 30}, "num_steps", r"end of 30 steps|nothing is left"),
        ({"step": 40, "num_steps": 0}, "num_steps", "is not allowed|not"),
    ],
)
def test_what_cannot_be_is_refused_with_its_field(about: dict[str, Any], field: str, said: str) -> None:
    run = failed_run()

    with pytest.raises(ResumeRefused, match=said) as caught:
        again(run, **about)

    assert caught.value.field == field
    assert not caught.value.is_conflict
    assert Attempt.objects.filter(run=run).count() == 1
    assert Run.objects.get(pk=run.pk).state == "failed"


@pytest.mark.parametrize("state", ["queued", "starting", "running", "stopping"])
def test_a_run_that_has_not_ended_is_not_resumed(state: str) -> None:
    run = make_run(state=state)

    with pytest.raises(ResumeRefused, match=f"is {state}: attempt 1 is under way") as caught:
        again(run, None)

    assert caught.value.is_conflict


def test_the_second_of_two_clicks_is_told_of_the_first() -> None:
    run = failed_run()
    again(run, 40)

    with pytest.raises(ResumeRefused, match="is queued: attempt 2 is under way"):
        again(run, 40)

    assert Attempt.objects.filter(run=run).count() == 2


def test_an_attempt_that_may_still_be_alive_is_waited_for() -> None:
    run = make_run(state="running")
    lifecycle.finish(run_id=run.pk, attempt=1, state="failed", cause={"side": "cluster"}, cleanup={}, now=NOW)

    with pytest.raises(ResumeRefused, match=r"attempt 1 is being cleaned up\. Try again in 40 s at most"):
        again(run, None, now=NOW + timedelta(seconds=20))
    lifecycle.record_cleanup(run_id=run.pk, attempt=1, cleanup={"processes_left": 0}, now=NOW)

    assert again(run, None, now=NOW + timedelta(seconds=21)).number == 2


def test_an_attempt_without_proof_is_waited_for_a_minute() -> None:
    run = make_run(state="running")
    lifecycle.finish(run_id=run.pk, attempt=1, state="failed", cause={"side": "cluster"}, cleanup={}, now=NOW)

    assert again(run, None, now=NOW + timedelta(seconds=60)).number == 2


def test_an_archived_run_is_not_resumed() -> None:
    run = failed_run(archived_at=NOW)

    with pytest.raises(ResumeRefused, match="archived"):
        again(run, 40)


def test_checkpoints_tell_branch_score_and_size_and_leave_out_deleted_ones() -> None:
    run = failed_run()
    done = Attempt.objects.get(run=run, number=1).durable_batch
    Run.objects.filter(pk=run.pk).update(state="running")
    store([delivery(run.pk, done + 1, [saved(20, removed=True), saved(50)])], memory=AttemptCache(), now=NOW)
    Run.objects.filter(pk=run.pk).update(state="failed")
    again(run, 40)
    begin_training(run, 2)
    train(run, range(41, 51), attempt=2, every=50, reward=1)
    end(run, attempt=2)

    found = list_checkpoints(run)

    assert [(c.step, c.attempt, c.is_visible, c.score, c.size) for c in found] == [
        (50, 2, True, 1.5, 1050),
        (50, 1, False, 0.5, 1050),
        (40, 1, True, 0.4, 1040),
    ]
    assert {c.score_name for c in found} == {"reward/mean"}
    assert Artifact.objects.filter(run=run, type="checkpoint").count() == 4


def test_a_dead_branch_can_be_taken_up_again() -> None:
    run = make_run(state="running")
    train(run, range(1, 58))
    end(run)
    again(run, 20)
    begin_training(run, 2)
    train(run, range(21, 41), attempt=2, reward=1)
    end(run, attempt=2)

    third = again(run, 40, attempt=1)

    run.refresh_from_db()
    assert (third.resume_attempt, third.resume_step) == (1, 40)
    assert [a.visible_through for a in run_header(run).attempts] == [40, -1, None]
    assert run.latest_values == {"reward/mean": 0.4}


def test_a_capture_asked_for_at_launch_is_asked_for_again_with_what_is_left_of_it() -> None:
    spec = {"profile": {"tool": "torch", "first_step": 39, "num_steps": 4}}
    run = make_run(make_project(), state="running", spec=spec)
    train(run, range(1, 58))
    end(run)

    attempt = again(run, 40)

    capture = Capture.objects.get(run=run, attempt=2)
    assert (capture.first_step, capture.num_steps) == (41, 2)
    assert Command.objects.get(attempt=attempt).payload["capture"] == capture.pk


def test_the_queue_admits_a_resumed_run_and_ray_gets_the_new_job(ray: FakeRay) -> None:
    run = failed_run()
    again(run, 40)

    launch.submit(run_id=run.pk, now=LATER)

    assert [job["submission_id"] for job in ray.submitted] == [f"run-{run.pk}-a2"]
    assert ray.submitted[0]["runtime_env"]["env_vars"]["PITWALL_ATTEMPT"] == "2"


def test_a_capture_of_a_rank_that_is_gone_does_not_stand_in_the_way() -> None:
    spec = {"profile": {"tool": "torch", "first_step": 50, "num_steps": 2, "ranks": "1", "roles": "policy"}}
    run = make_run(make_project(), state="running", spec=spec)
    train(run, range(1, 48))
    end(run)

    attempt = again(run, 40, hardware={"policy_ranks": 1})

    assert attempt.overrides == {"hardware": {"policy_ranks": 1}, "profile": {"what": "none", "tool": "none"}}
    assert not Capture.objects.filter(run=run, attempt=2).exists()
