"""What an attempt ran on is kept when its job is handed over, and tells its devices when the cluster has others."""

from typing import Any

import pytest

from jobs.cluster.nodes import PlaceUnknown, cluster_of, keep_cluster
from jobs.models import Attempt, Run, RunEvent
from jobs.runs import launch, lifecycle
from jobs.runs.header import run_header
from tests.jobs.clock import Clock
from tests.jobs.fake_ray import FakeRay
from tests.rows import NOW, make_run
from tests.waiting import wait_until

pytestmark = pytest.mark.django_db

ON_A_CHILD = {"algorithm": "sft", "trainer": {"name": "verl", "version": "0.9.1"}}


def attempt_of(run: Run) -> Attempt:
    return Attempt.objects.get(run=run)


def kind(name: str, gpus: int, *ids: str, memory: float = 1e12) -> dict[str, Any]:
    return {
        "accelerator": name,
        "gpus": gpus,
        "cpus": 64,
        "memory_bytes": memory,
        "count": len(ids),
        "ids": list(ids),
    }


def mixed(run: Run, **more: Any) -> Attempt:
    """Return the run's attempt, which found two nodes of H200, one of L4 and one without devices."""
    nodes = [kind("H200", 8, "h1", "h2"), kind("L4", 4, "l1"), {**kind("", 0), "count": 1}]
    Attempt.objects.filter(run=run).update(num_gpus=8, ran_on={"nodes": nodes, **more})
    return attempt_of(run)


def devices(attempt: Attempt) -> list[tuple[str, float]]:
    state = cluster_of(attempt)
    assert state is not None
    return [(node.accelerator, node.gpus) for node in state.nodes]


def test_the_cluster_is_kept_when_the_job_is_handed_over_and_outlives_it(ray: FakeRay, clock: Clock) -> None:
    ray.set_gpus(8)
    run = make_run()
    assert attempt_of(run).ran_on == {}

    clock.step()
    ray.set_gpus(2)
    clock.step()

    row = {"accelerator": "H200", "gpus": 8.0, "cpus": 64.0, "memory_bytes": 16e9, "count": 1, "ids": []}
    assert attempt_of(run).ran_on == {"nodes": [row]}
    assert devices(attempt_of(run)) == [("H200", 8.0)]


def test_the_node_of_its_runner_is_kept_when_ray_says_it(ray: FakeRay, clock: Clock) -> None:
    run = make_run()
    clock.step()
    ray.jobs[attempt_of(run).submission_id]["driver_node_id"] = "n1"
    clock.step()

    assert attempt_of(run).ran_on["node"] == "n1"
    wait_until(lambda: clock.step() or attempt_of(run).ran_on["address"] == "127.0.0.1", 5)  # a pass may find Ray away
    assert attempt_of(run).ran_on["nodes"][0]["accelerator"] == ""


def test_handing_over_again_keeps_what_is_known(ray: FakeRay) -> None:
    run = make_run()
    lifecycle.admit(run_id=run.pk, attempt=1, now=NOW)
    launch.submit(run_id=run.pk, now=NOW)
    before = attempt_of(run)
    ray.set_gpus(8)

    keep_cluster(before, launch.cluster.read_state())

    assert attempt_of(run).ran_on == before.ran_on != {}


def test_an_attempt_that_was_not_handed_over_has_no_cluster() -> None:
    assert cluster_of(attempt_of(make_run())) is None


def test_workers_tell_their_nodes() -> None:
    attempt = mixed(make_run())
    told = {"nodes": [{"node": "l1", "index": 0, "workers": ["policy-0"]}]}
    RunEvent.objects.create(run=attempt.run, attempt=1, at=NOW, verb="note", text="Workers", data=told)

    assert devices(attempt) == [("L4", 4)]


@pytest.mark.parametrize(
    ("spec", "node", "found"),
    [
        ({}, "h2", [("H200", 8)]),  # all workers of the built-in trainer are with its driver, or it says where
        (ON_A_CHILD, "l1", [("L4", 4)]),  # the runner holds the devices
    ],
)
def test_without_a_word_it_is_the_runners_node(spec: dict[str, Any], node: str, found: list[tuple[str, float]]) -> None:
    assert devices(mixed(make_run(spec=spec), node=node)) == found


@pytest.mark.parametrize("said", [{"nodes": "h1"}, {"nodes": [7, {"node": None}]}])
def test_what_cannot_be_known_is_not_guessed(said: dict[str, Any]) -> None:
    spec = {"algorithm": "grpo", "trainer": {"name": "verl", "version": "0.9.1"}}
    attempt = mixed(make_run(spec=spec), node="h1")  # its Ray workers may be anywhere
    RunEvent.objects.create(run=attempt.run, attempt=1, at=NOW, verb="note", text="Workers", data=said)

    with pytest.raises(PlaceUnknown) as caught:
        cluster_of(attempt)

    assert caught.value.kinds == ("H200", "L4")


def test_a_run_on_the_cpu_needs_no_word_on_devices() -> None:
    attempt = mixed(make_run())
    attempt.num_gpus = 0

    assert ("", 0) in devices(attempt)


def test_the_header_of_a_run_tells_the_devices_of_each_attempt() -> None:
    run = make_run()
    assert run_header(run).attempts[0].devices == ""

    attempt = mixed(run)
    assert run_header(run).attempts[0].devices == "8 × H200 / L4"
    Attempt.objects.filter(pk=attempt.pk).update(ran_on={"nodes": [kind("H200", 8, "h1")]})
    assert run_header(run).attempts[0].devices == "8 × H200"
    Attempt.objects.filter(pk=attempt.pk).update(num_gpus=0)
    assert run_header(run).attempts[0].devices == "CPU"
