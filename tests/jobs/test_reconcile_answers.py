"""Healing prompts: they wait for room, and what became of their job is said."""

from typing import Any

import pytest

from jobs.models import Answer, Attempt, Run
from jobs.runs import lifecycle
from jobs.runs import prompt_model as answer
from tests.jobs.clock import Clock
from tests.jobs.fake_ray import FakeRay
from tests.rows import NOW, make_artifact, make_run

pytestmark = pytest.mark.django_db


def ask(run: Run) -> Answer:
    return answer.ask(artifact=make_artifact(run), prompt="1+1?", user=None, now=NOW)


def test_a_prompt_waits_for_room_and_is_then_submitted(ray: FakeRay, clock: Clock) -> None:
    run = make_run(state="finished")
    busy = make_run(state="running")
    Attempt.objects.filter(run=busy).update(num_cpus=8)
    asked = ask(run)

    clock.step()
    assert Answer.objects.get(pk=asked.pk).state == "queued"
    lifecycle.finish(run_id=busy.pk, attempt=1, state="finished", cause={}, cleanup={"processes_left": 0}, now=NOW)
    clock.step(1)

    assert Answer.objects.get(pk=asked.pk).state == "starting"
    (job,) = ray.submitted
    environment = job["runtime_env"]["env_vars"]
    assert job["entrypoint"].endswith("-m jobs.runner.prompt_model")
    assert (environment["PITWALL_PROMPT"], environment["PITWALL_ANSWER"]) == ("1+1?", str(asked.pk))
    assert (environment["PITWALL_ARTIFACT"], environment["PITWALL_DEVICE"]) == ("model/final", "cpu")


def test_a_prompt_whose_job_died_says_why(ray: FakeRay, clock: Clock) -> None:
    asked = ask(make_run(state="finished"))
    clock.step()
    ray.end(asked.submission_id, "FAILED", "failed with exit code 1, last available logs:\nOSError: no model\n", 1)

    clock.step(1)

    settled = Answer.objects.get(pk=asked.pk)
    assert settled.state == "failed"
    assert "OSError: no model" in settled.problem


def test_a_prompt_whose_worker_died_before_ray_had_it_is_submitted_once(ray: FakeRay, clock: Clock) -> None:
    asked = ask(make_run(state="finished"))
    Answer.objects.filter(pk=asked.pk).update(state="starting")  # the worker's last deed

    clock.step()
    clock.step(1)

    assert [job["submission_id"] for job in ray.submitted] == [asked.submission_id]
    assert Answer.objects.get(pk=asked.pk).state == "starting"


def test_a_prompt_that_finds_no_room_gives_up_with_a_sentence(settings: Any, clock: Clock) -> None:
    settings.RAY_ADDRESS = "http://127.0.0.1:9"
    asked = ask(make_run(state="finished"))

    clock.step()
    clock.step(301)

    settled = Answer.objects.get(pk=asked.pk)
    assert settled.state == "failed"
    assert "No resources became free" in settled.problem
