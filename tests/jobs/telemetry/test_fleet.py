"""Nodes, devices and processes on one grid of times, and the bands over many of them."""

import numpy as np
import pytest
from django.test import Client

from jobs.ingest.store import AttemptCache, store
from jobs.models import Run
from jobs.telemetry.fleet import FleetLane, read_fleet
from profiling import events as make
from tests.batches import T0, delivery
from tests.rows import NOW, make_run, make_user

pytestmark = pytest.mark.django_db
SECOND = 1_000_000_000


def reported(run: Run, *, seconds: int = 20) -> Run:
    """Two nodes with two devices each, a policy rank on each; node 1 falls silent after its first reading."""
    nodes = [
        {"node": "a", "index": index, "address": f"10.0.0.{index}", "name": f"n{index}", "workers": [f"policy-{index}"]}
        for index in (0, 1)
    ]
    told = [make.note("Workers: two", attempt=1, step=0, meta={"nodes": nodes})]
    for second in range(0, seconds, 2):
        for role, rank in [("runner", 0), ("node", 1)] if second == 0 else [("runner", 0)]:
            values = {"cpu_percent": 10.0 + second, "memory_used_bytes": 4e9, "memory_total_bytes": 16e9}
            for device in (0, 1):
                values |= {f"gpu{device}_busy_percent": 50.0 * device, f"gpu{device}_memory_used_bytes": 2e9}
                values[f"gpu{device}_memory_total_bytes"] = 8e9
            told.append(make.system(values, attempt=1, step=1, role=role, rank=rank, t=T0 + second * SECOND))
        own = {"memory_bytes": 1e9 * (second + 1)}
        told.append(make.system(own, attempt=1, step=1, role="policy", rank=1, t=T0 + second * SECOND))
    store([delivery(run.pk, 1, told)], memory=AttemptCache(), now=NOW)
    return run


def test_lanes_stand_by_node_with_their_newest_readings() -> None:
    fleet = read_fleet(reported(make_run(state="running")))

    lanes = {lane: row for row, lane in enumerate(fleet.lanes)}
    assert [(lane.node, lane.kind, lane.device) for lane in fleet.lanes] == [
        *((0, "device", 0), (0, "device", 1), (0, "node", -1)),
        *((1, "device", 0), (1, "device", 1), (1, "node", -1), (1, "process", -1)),
    ]
    assert fleet.node_names == {0: "n0", 1: "n1"}
    here, policy = (
        lanes[FleetLane(node=0, kind="node")],
        lanes[FleetLane(node=1, kind="process", role="policy", rank=1)],
    )
    assert (fleet.utilization[here, 0], fleet.utilization[here, -1]) == pytest.approx((0.10, 0.28))
    assert fleet.memory_share[here, -1] == pytest.approx(0.25)
    assert (fleet.memory_bytes[policy, -1], fleet.memory_share[policy, 0]) == pytest.approx((19e9, 1 / 16))
    device = fleet.bands(fleet.utilization)[1]
    assert (device.kind, device.low[-1], device.middle[-1], device.high[-1]) == ("device", 0.0, 0.25, 0.5)


def test_processes_of_a_trainer_that_tells_no_places_are_on_its_runner_s_node() -> None:
    run = make_run(state="running")
    about = {"node": "a", "address": "10.0.0.1", "name": "n"}
    nodes = [{**about, "index": 0, "workers": []}, {**about, "index": 1, "workers": ["WorkerDict-0"]}]
    own = make.system({"memory_bytes": 1e9}, attempt=1, step=1, role="policy", rank=0, t=T0)
    store(
        [delivery(run.pk, 1, [make.note("", attempt=1, step=0, meta={"nodes": nodes}), own])],
        memory=AttemptCache(),
        now=NOW,
    )

    assert [(lane.kind, lane.node) for lane in read_fleet(run).lanes] == [("process", 0)]


def test_a_node_that_fell_silent_has_no_reading_any_more() -> None:
    fleet = read_fleet(reported(make_run(state="running"), seconds=120))

    row = next(row for row, lane in enumerate(fleet.lanes) if lane.node == 1 and lane.kind == "node")
    assert fleet.utilization[row, 0] == pytest.approx(0.1)
    assert np.isnan(fleet.utilization[row, -1])


def test_a_run_without_readings_has_no_lanes_and_the_api_says_the_same(client: Client) -> None:
    run = make_run(state="running")
    client.force_login(make_user(project=run.project, role="viewer"))

    assert client.get(f"/api/runs/{run.pk}/system").json() == {"times": [], "node_names": {}, "lanes": [], "bands": []}
    answer = client.get(f"/api/runs/{reported(run).pk}/system").json()
    assert len(answer["times"]) == len(answer["lanes"][0]["memory_share"]) > 10
    assert answer["lanes"][1]["utilization"][-1] == 0.5
    assert {(band["kind"], band["measure"]) for band in answer["bands"]} > {("process", "memory_share")}
