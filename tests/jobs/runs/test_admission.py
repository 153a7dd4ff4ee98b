"""The queue: first come, first served, with a reason for whoever waits."""

from typing import Any

import pytest

from jobs.catalog.spec.parse import parse_spec
from jobs.cluster.ray_api import ClusterState, Node
from jobs.models import Attempt, Run
from jobs.runs import admission
from jobs.runs.admission import Ask, ResourceHolder, decide
from tests.rows import NOW, make_run

SPLIT = {"layout": "split"}


def cluster(*, cpus: float = 8, gpus: float = 0, num_nodes: int = 1) -> ClusterState:
    nodes = tuple(
        Node(
            id=f"n{i}",
            address="10.0.0.1",
            is_head=i == 0,
            cpus=cpus / num_nodes,
            gpus=gpus / num_nodes,
            memory_bytes=1e9,
            accelerator="",
        )
        for i in range(num_nodes)
    )
    return ClusterState(is_reachable=True, problem="", away_since=None, nodes=nodes, cpus_total=cpus, gpus_total=gpus)


def ask(name: str, cpus: float, gpus: float = 0, **more: Any) -> Ask:
    return Ask(run_id=name, attempt=1, cpus=cpus, gpus=gpus, **more)


def test_what_fits_is_admitted_until_the_cluster_is_full() -> None:
    verdicts = decide([ask("r-1", 4), ask("r-2", 4), ask("r-3", 4)], [], cluster(cpus=8))

    assert [v.is_admitted for v in verdicts] == [True, True, False]
    assert verdicts[2].reason == "Needs 4 CPUs, 0 of 8 are free; r-2 holds 4, r-1 holds 4"


def test_a_waiting_run_is_told_who_holds_what() -> None:
    (verdict,) = decide([ask("r-2", 4)], [ResourceHolder(label="r-12ab", cpus=6, gpus=0)], cluster(cpus=8))

    assert not verdict.is_admitted
    assert verdict.reason == "Needs 4 CPUs, 2 of 8 are free; r-12ab holds 6"


def test_nobody_overtakes_who_came_first() -> None:
    verdicts = decide([ask("r-1", 6), ask("r-2", 1)], [ResourceHolder(label="r-0", cpus=4, gpus=0)], cluster(cpus=8))

    assert [v.is_admitted for v in verdicts] == [False, False]
    assert verdicts[1].reason == "Waits behind r-1, which came first"


def test_a_run_that_never_fits_lets_others_pass() -> None:
    verdicts = decide([ask("r-big", 16), ask("r-2", 4)], [], cluster(cpus=8))

    assert [v.is_admitted for v in verdicts] == [False, True]
    assert not verdicts[0].fits
    assert verdicts[0].reason == "Needs 16 CPUs, the cluster has 8: lower policy ranks, engines or CPUs per worker."


def test_gpus_are_counted_like_cpus() -> None:
    waits, never = decide(
        [ask("r-1", 4, gpus=4), ask("r-2", 4, gpus=16)],
        [ResourceHolder(label="r-0", cpus=1, gpus=6)],
        cluster(cpus=64, gpus=8),
    )

    assert waits.reason == "Needs 4 GPUs, 2 of 8 are free; r-0 holds 6"
    assert never.reason == "Needs 16 GPUs, the cluster has 8: lower policy ranks or rollout engines."


def test_a_worker_has_to_fit_on_one_node() -> None:
    (verdict,) = decide([ask("r-1", 12, cpus_per_worker=6)], [], cluster(cpus=16, num_nodes=4))

    assert verdict.reason == "One worker needs 6 CPUs, the largest node has 4: lower CPUs per worker."


@pytest.mark.parametrize(
    ("spec", "device", "expected"),
    [
        ({"algorithm": "sft"}, "cpu", (2.0, 0.0)),
        ({"algorithm": "sft", "hardware": {"cpus_per_worker": 3}}, "cpu", (6.0, 0.0)),
        ({"algorithm": "sft"}, "cuda", (2.0, 2.0)),
        ({}, "cpu", (2.0, 0.0)),
        ({"hardware": SPLIT, "knobs": {"algorithm.kl_coefficient": 0}}, "cpu", (3.0, 0.0)),
        ({"hardware": SPLIT, "knobs": {"algorithm.kl_coefficient": 0.01}}, "cuda", (4.0, 4.0)),
    ],
)
def test_demand_counts_every_worker(spec: dict[str, Any], device: str, expected: tuple[float, float]) -> None:
    assert admission.demand(parse_spec(spec), device=device) == expected


@pytest.mark.django_db
def test_admission_takes_runs_in_the_order_they_came_and_writes_why_others_wait() -> None:
    first, second = make_run(), make_run()
    need = Attempt.objects.get(run=first).num_cpus

    admitted = admission.admit_waiting(state=cluster(cpus=need + 1), now=NOW)

    second.refresh_from_db()
    assert admitted == [(first.pk, 1)]
    assert second.state == "queued"
    assert second.wait_reason == f"Needs {need:g} CPUs, 1 of {need + 1:g} are free; {first.pk} holds {need:g}"


@pytest.mark.django_db
def test_a_run_that_leaves_the_device_open_takes_gpus_where_there_are_some() -> None:
    run = make_run()

    admission.admit_waiting(state=cluster(cpus=64, gpus=8), now=NOW)

    attempt = Attempt.objects.get(run=run)
    assert attempt.state == "starting"
    assert attempt.num_gpus == parse_spec(run.spec).num_workers


@pytest.mark.django_db
def test_a_spec_that_an_upgrade_no_longer_reads_fails_with_the_reason() -> None:
    run = make_run()
    other = make_run()
    Run.objects.filter(pk=run.pk).update(spec={**run.spec, "knobs": {"gone.knob": {"value": 1}}})
    assert [ask.run_id for ask in admission.waiting(device="cpu")] == [other.pk]

    admitted = admission.admit_waiting(state=cluster(), now=NOW)

    run.refresh_from_db()
    assert run.state == "failed"
    assert "gone.knob" in run.cause["text"]
    assert admitted == [(other.pk, 1)]
