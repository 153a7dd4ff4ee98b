"""Seconds of weight syncs: each transport by hand, and how sure each is."""

from dataclasses import replace

import pytest

from jobs.planner.constant import shipped_constants
from jobs.planner.job import Job, Layout, SyncTransport, Training
from jobs.planner.shapes.known import shape_of
from jobs.planner.time.weight_sync import matrices, sync_seconds, transport_of, weight_sync_seconds
from tests.jobs.planner.hardware import H100, fleet

K = shipped_constants()
N = K.network
DENSE = Training(model=shape_of("qwen2.5-7b"), layout=Layout(num_devices=8, shards=3), family="fsdp")
MIXED = Training(model=shape_of("qwen3-30b-a3b"), layout=Layout(num_devices=8, expert=8, shards=1), family="megatron")
JOB = Job(algorithm="grpo", fleet=fleet(16), policy=DENSE, placement="split", engine_devices=8)


def seconds(training: Training, transport: SyncTransport, devices: int = 16) -> float:
    return weight_sync_seconds(training, fleet(devices), K, transport=transport, engine_devices=8)


def test_each_way_has_its_own_start_price_and_rate_between_nodes() -> None:
    size, tensors = 2 * MIXED.model.parameters, matrices(MIXED.model)
    card = H100.link_bandwidth / 9 * N.node_share
    expected = {
        "tensors": N.sync_seconds + tensors * N.sync_tensor_seconds + size / N.sync_tensor_rate,
        "buckets": N.sync_seconds + tensors * N.sync_bucket_tensor_seconds + size / N.sync_bucket_rate,
        "packed": N.sync_seconds + tensors * N.sync_packed_tensor_seconds + size / card,
        "broadcast": N.sync_group_seconds + tensors * N.sync_broadcast_tensor_seconds + size / N.sync_broadcast_rate,
        "deltas": N.sync_group_seconds + size / N.sync_delta_rate,
    }
    assert tensors == 3 + 48 * (8 + 3 * 128 + 1)
    for transport, each in expected.items():
        assert seconds(MIXED, transport) == pytest.approx(each), transport  # type: ignore[arg-type]


def test_a_node_needs_no_network() -> None:
    near = replace(DENSE, layout=Layout(num_devices=4, shards=3))
    found = {way: weight_sync_seconds(near, fleet(8), K, transport=way, engine_devices=4) for way in _WAYS}
    assert all(each < seconds(DENSE, way) for way, each in found.items())
    assert found["buckets"] < found["tensors"] < 0.5


def test_experts_across_nodes_are_gathered_one_by_one_where_devices_are_shared() -> None:
    far = replace(MIXED, layout=replace(MIXED.layout, num_devices=16, expert=16))
    calls = matrices(MIXED.model) * (N.sync_ipc_tensor_seconds - N.sync_ipc_local_tensor_seconds)
    assert seconds(far, "ipc") - seconds(MIXED, "ipc") == pytest.approx(calls, rel=0.1)
    # large tensors cost their bytes, wherever they lie
    deep = replace(DENSE, layout=Layout(num_devices=8, pipeline=2, tensor=4))
    assert seconds(deep, "ipc") == pytest.approx(N.sync_ipc_seconds + 2 * DENSE.model.parameters / N.sync_ipc_rate)
    # eight experts' ranks that are the four tensors' too are still one node
    both = replace(MIXED, layout=replace(MIXED.layout, tensor=4))
    assert seconds(both, "ipc") == pytest.approx(seconds(MIXED, "ipc"))


def test_a_job_that_names_no_way_takes_the_usual_one() -> None:
    assert transport_of(replace(JOB, placement="colocated", sync_transport="deltas")) == "ipc"
    assert transport_of(JOB) == "tensors"
    assert transport_of(replace(JOB, sync_bucket_bytes=1 << 30)) == "broadcast"
    assert transport_of(replace(JOB, policy=MIXED, sync_bucket_bytes=1 << 30)) == "buckets"
    assert transport_of(replace(JOB, sync_transport="broadcast")) == "broadcast"


def test_a_way_that_was_measured_badly_is_less_sure() -> None:
    widths = {way: sync_seconds(replace(JOB, sync_transport=way), K) for way in _WAYS}
    for way, found in widths.items():
        band = K.value(f"network.sync_band_{way}")
        assert found.high / found.middle == pytest.approx(band)
        assert found.middle / found.low == pytest.approx(band)
    assert N.sync_band_broadcast > N.sync_band_tensors


_WAYS: tuple[SyncTransport, ...] = ("tensors", "buckets", "packed", "broadcast", "deltas")
