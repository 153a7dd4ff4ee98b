"""Healing the making of models: they wait for room, run where the checkpoint is, and what became of them is said."""

from typing import Any

import pytest

from jobs.models import Attempt, Merge, Run
from jobs.runs import lifecycle
from jobs.runs.merges import MERGES, cancel_merge, merge_key
from tests.jobs.clock import Clock
from tests.jobs.fake_ray import FakeRay
from tests.rows import NOW, make_artifact, make_merge, make_run

pytestmark = pytest.mark.django_db


def state_of(merge: Merge) -> str:
    merge.refresh_from_db()
    return merge.state


def placed(run: Run, node: str, *, address: str = "") -> None:
    Attempt.objects.filter(run=run).update(ran_on={"nodes": [], "node": node, "address": address})


def test_a_merge_waits_for_a_cpu_and_runs_on_the_node_of_its_checkpoint(ray: FakeRay, clock: Clock) -> None:
    run, busy = make_run(state="finished"), make_run(state="running")
    Attempt.objects.filter(run=busy).update(num_cpus=8)
    placed(run, "n1")
    merge = make_merge(run)

    clock.step()
    assert state_of(merge) == "queued"
    lifecycle.finish(run_id=busy.pk, attempt=1, state="finished", cause={}, cleanup={"processes_left": 0}, now=NOW)
    clock.step(1)

    assert state_of(merge) == "starting"
    (job,) = ray.submitted
    environment = job["runtime_env"]["env_vars"]
    assert job["entrypoint"].endswith("-m jobs.runner.merge_checkpoint")
    assert job["entrypoint_resources"] == {"node:127.0.0.1": 0.001}
    assert environment["PITWALL_MERGE_KEY"] == merge_key(merge)
    told = {name: environment[f"PITWALL_{name}"] for name in ("MERGE", "STEP", "ARTIFACT", "ATTEMPT", "RUN")}
    own = {"MERGE": str(merge.pk), "STEP": "3", "ARTIFACT": "model-step-3.zip", "ATTEMPT": "1", "RUN": run.pk}
    assert told == own


def test_a_node_that_is_not_there_under_this_id_is_not_asked_for(ray: FakeRay, clock: Clock) -> None:
    merge = make_merge(make_run(state="finished"))
    placed(merge.run, "of-a-head-before")

    clock.step()

    assert state_of(merge) == "starting"
    assert "entrypoint_resources" not in ray.submitted[0]


def test_a_node_that_ray_counts_anew_is_known_by_its_address(ray: FakeRay, clock: Clock) -> None:
    merge = make_merge(make_run(state="finished"))
    placed(merge.run, "of-a-head-before", address="127.0.0.1")

    clock.step()

    assert ray.submitted[0]["entrypoint_resources"] == {"node:127.0.0.1": 0.001}


def test_two_merges_are_under_way_at_a_time_and_hold_a_cpu_each(ray: FakeRay, clock: Clock) -> None:
    merges = [make_merge(make_run(state="finished")) for _ in range(3)]
    busy = make_run(state="running")
    Attempt.objects.filter(run=busy).update(num_cpus=7)

    clock.step()
    assert list(map(state_of, merges)) == ["starting", "queued", "queued"]
    Attempt.objects.filter(run=busy).update(num_cpus=0)
    clock.step(1)
    assert list(map(state_of, merges)) == ["starting", "starting", "queued"]
    ray.end(merges[0].submission_id, "FAILED")
    clock.step(1)
    assert list(map(state_of, merges)) == ["failed", "starting", "starting"]


def test_a_run_that_waits_for_cpus_comes_before_a_merge(ray: FakeRay, clock: Clock) -> None:
    busy = make_run(state="running")
    Attempt.objects.filter(run=busy).update(num_cpus=7)
    waits = make_run(state="queued", spec={"hardware": {"policy_ranks": 2, "rollout_engines": 1}})
    merge = make_merge(make_run(state="finished"))

    clock.step()
    waits.refresh_from_db()
    assert "CPUs" in waits.wait_reason
    assert state_of(merge) == "queued"

    Attempt.objects.filter(run=waits).update(state="stopped")
    Run.objects.filter(pk=waits.pk).update(state="stopped")
    clock.step(1)
    assert state_of(merge) == "starting"


def test_a_job_that_was_killed_is_told_of_and_may_be_asked_for_again(ray: FakeRay, clock: Clock) -> None:
    merge = make_merge(make_run(state="finished"))
    clock.step()
    ray.end(merge.submission_id, "FAILED", "failed with exit code -9", -9)

    clock.step(1)

    assert state_of(merge) == "failed"
    assert "was killed (SIGKILL)" in merge.problem
    again = make_merge(merge.run)
    clock.step(1)
    assert state_of(again) == "starting"
    assert [job["submission_id"] for job in ray.submitted] == [merge.submission_id, again.submission_id]


def test_a_model_whose_jobs_report_was_lost_is_there(ray: FakeRay, clock: Clock) -> None:
    merge = make_merge(make_run(state="finished"))
    clock.step()
    file = make_artifact(merge.run, merge.file_name, step=3)
    ray.end(merge.submission_id, "SUCCEEDED")

    clock.step(1)

    assert state_of(merge) == "finished"
    assert merge.artifact_id == file.pk


def test_a_job_of_a_merge_that_was_called_off_while_ray_was_away_is_ended(
    settings: Any, ray: FakeRay, clock: Clock
) -> None:
    merge = make_merge(make_run(state="finished"))
    clock.step()
    address, settings.RAY_ADDRESS = settings.RAY_ADDRESS, "http://127.0.0.1:9"
    cancel_merge(merge=merge, user=None, now=clock.now)
    settings.RAY_ADDRESS = address

    clock.step(11)

    assert ray.stopped == [merge.submission_id]
    ray.end(merge.submission_id, "STOPPED")
    clock.step(1)
    assert ray.stopped == [merge.submission_id]
    assert state_of(merge) == "canceled"


def test_a_canceled_job_is_ended_at_once(ray: FakeRay, clock: Clock) -> None:
    merge = make_merge(make_run(state="finished"))
    clock.step()

    cancel_merge(merge=merge, user=None, now=clock.now)

    assert ray.stopped == [merge.submission_id]


def test_a_merge_that_ray_refuses_says_so(ray: FakeRay, clock: Clock) -> None:
    ray.refuse_submit = "no such package"
    merge = make_merge(make_run(state="finished"))

    clock.step()

    assert state_of(merge) == "failed"
    assert "no such package" in merge.problem


def test_a_merge_that_finds_no_room_for_a_day_is_given_up(settings: Any, clock: Clock) -> None:
    settings.RAY_ADDRESS = "http://127.0.0.1:9"
    merge = make_merge(make_run(state="finished"))

    clock.step()
    clock.step(86_401)

    assert state_of(merge) == "failed"
    assert "had no CPU free" in merge.problem


def test_a_submitted_merge_is_not_started_twice(ray: FakeRay, clock: Clock) -> None:
    merge = make_merge(make_run(state="finished"))

    MERGES.submit(merge.pk, now=NOW)
    MERGES.submit(merge.pk, now=NOW)
    clock.step()

    assert len(ray.submitted) == 1
