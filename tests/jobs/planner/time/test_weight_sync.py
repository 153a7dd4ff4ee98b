"""Seconds of weight syncs: each transport by hand, and how sure each is."""

from dataclasses import replace

import pytest

from jobs.planner.constant import shipped_constants
from jobs.planner.job import Engine, Job, Layout, Offload, SyncTransport, Training
from jobs.planner.shapes.known import shape_of
from jobs.planner.time.weight_sync import expert_matrices, matrices, sync_seconds, transport_of, weight_sync_seconds
from tests.jobs.planner.hardware import fleet

K = shipped_constants()
N = K.network
DENSE = Training(model=shape_of("qwen2.5-7b"), layout=Layout(num_devices=8, shards=3), family="fsdp")
MIXED = Training(model=shape_of("qwen3-30b-a3b"), layout=Layout(num_devices=8, expert=8, shards=1), family="megatron")
JOB = Job(algorithm="grpo", fleet=fleet(16), policy=DENSE, placement="split", engine_devices=8)


def seconds(training: Training, transport: SyncTransport, devices: int = 16) -> float:
    return weight_sync_seconds(training, fleet(devices), K, transport=transport, engine_devices=8)


def test_each_way_has_its_own_start_prices_and_rate_between_nodes() -> None:
    model = MIXED.model
    size, experts = 2 * model.parameters, 48 * 3 * 128
    others = matrices(model) - experts
    assert matrices(model) == 3 + 48 * (8 + 3 * 128 + 1)
    assert expert_matrices(model) == experts
    own = experts / 8  # of a rank of expert parallelism
    expected = {
        "tensors": N.sync_seconds + matrices(model) * N.sync_tensor_seconds + size / N.sync_tensor_rate,
        "buckets": N.sync_bucket_seconds
        + others * N.sync_bucket_tensor_seconds
        + own * N.sync_bucket_expert_seconds
        + size / N.sync_bucket_rate,
        "packed": N.sync_bucket_seconds + size / N.sync_packed_rate,
        "broadcast": N.sync_group_seconds + own * N.sync_broadcast_expert_seconds + size / N.sync_broadcast_rate,
        "deltas": N.sync_group_seconds
        + experts * N.sync_delta_expert_seconds
        + 2 * model.active_parameters / N.sync_delta_rate,
    }
    for transport, each in expected.items():
        assert seconds(MIXED, transport) == pytest.approx(each), transport  # type: ignore[arg-type]


def test_a_node_needs_no_network() -> None:
    near = replace(DENSE, layout=Layout(num_devices=4, shards=3))
    found = {way: weight_sync_seconds(near, fleet(8), K, transport=way, engine_devices=4) for way in _WAYS}
    assert all(each <= seconds(DENSE, way) for way, each in found.items())
    assert found["tensors"] < found["buckets"] < 0.5 < found["broadcast"] < 2


def test_a_rank_that_sends_all_gathers_what_other_nodes_hold() -> None:
    wide = replace(DENSE, weight_bytes=4.0, layout=Layout(num_devices=16, shards=3))
    copies = replace(wide, layout=replace(wide.layout, shard_group=8))
    whole = 4 * DENSE.model.parameters
    gathered = seconds(wide, "broadcast", 24) - seconds(copies, "broadcast", 24)
    assert gathered == pytest.approx(whole / N.sync_gather_rate)
    assert seconds(wide, "deltas", 24) == pytest.approx(seconds(copies, "deltas", 24))
    # over a network that is slower than that, by its rate
    slow = replace(fleet(24), node_bandwidth=2e9)
    found = weight_sync_seconds(wide, slow, K, transport="broadcast", engine_devices=8)
    assert found == pytest.approx(N.sync_group_seconds + (whole + whole / 2) / (2e9 * N.node_share))


def test_who_gathers_each_tensor_packs_more_slowly() -> None:
    per_byte = {each: seconds(each, "packed") / each.model.parameters for each in (DENSE, MIXED)}
    assert per_byte[DENSE] > 1.4 * per_byte[MIXED]


def test_weights_in_host_memory_are_fetched_first() -> None:
    away = replace(DENSE, weight_bytes=4.0, offload=Offload(params_between_phases=True))
    here = replace(DENSE, weight_bytes=4.0)
    local = 4 * DENSE.model.parameters / 8
    assert seconds(away, "deltas") - seconds(here, "deltas") == pytest.approx(local / N.sync_fetch_rate)
    assert seconds(away, "ipc") == seconds(here, "ipc")  # moved for training too: that is counted beside


def test_on_shared_devices_the_longer_of_experts_and_bytes_counts() -> None:
    size, experts = 2 * MIXED.model.parameters, expert_matrices(MIXED.model)
    assert seconds(MIXED, "ipc") == pytest.approx(N.sync_ipc_seconds + experts * N.sync_ipc_expert_seconds)
    far = replace(MIXED, layout=replace(MIXED.layout, num_devices=16, expert=16))
    assert seconds(far, "ipc") == pytest.approx(N.sync_ipc_seconds + experts * N.sync_ipc_far_expert_seconds)
    # large tensors cost their bytes, wherever they lie
    deep = replace(DENSE, layout=Layout(num_devices=8, pipeline=2, tensor=4))
    assert seconds(deep, "ipc") == pytest.approx(N.sync_ipc_seconds + 2 * DENSE.model.parameters / N.sync_ipc_rate)
    # eight experts' ranks that are the four tensors' too are still one node
    both = replace(MIXED, layout=replace(MIXED.layout, tensor=4))
    assert seconds(both, "ipc") == pytest.approx(seconds(MIXED, "ipc"))
    calls = matrices(MIXED.model) * N.sync_handle_seconds
    assert seconds(MIXED, "handles") == pytest.approx(N.sync_ipc_seconds + calls + size / N.sync_ipc_rate)


def test_an_engine_of_8_bits_is_quantized_for_on_the_way() -> None:
    engine = Engine(model=DENSE.model, weight_bytes=1.0)
    wide, narrow = (sync_seconds(replace(JOB, engine=each), K) for each in (replace(engine, weight_bytes=2.0), engine))
    assert narrow.middle == pytest.approx(N.sync_quantized * wide.middle)


def test_process_groups_that_a_rollout_closed_are_made_again() -> None:
    shared = replace(JOB, placement="colocated", engine_devices=0)
    closed = replace(DENSE, offload=Offload(params_between_phases=True, copies_process=True))
    found = sync_seconds(replace(shared, policy=closed), K).middle - sync_seconds(shared, K).middle
    assert found == pytest.approx(N.sync_regroup_seconds)


def test_a_job_that_names_no_way_takes_the_usual_one() -> None:
    shared = replace(JOB, placement="colocated")
    assert transport_of(replace(shared, sync_transport="deltas")) == "ipc"
    assert transport_of(replace(shared, sync_transport="tensors")) == "handles"
    assert transport_of(JOB) == "tensors"
    assert transport_of(replace(JOB, sync_bucket_bytes=1 << 30)) == "broadcast"
    assert transport_of(replace(JOB, policy=MIXED, sync_bucket_bytes=1 << 30)) == "buckets"
    assert transport_of(replace(JOB, sync_transport="broadcast")) == "broadcast"


def test_a_way_that_was_measured_badly_is_less_sure() -> None:
    known = replace(JOB, fleet=replace(JOB.fleet, node_bandwidth=400e9))
    for way in _WAYS:
        found = sync_seconds(replace(known, sync_transport=way), K)
        band = K.value(f"network.sync_band_{way}")
        assert found.high / found.middle == pytest.approx(band)
        assert found.middle / found.low == pytest.approx(band)
    assert N.sync_band_broadcast > N.sync_band_tensors


def test_a_network_that_nobody_measured_may_be_slow() -> None:
    job = replace(JOB, sync_transport="broadcast")
    known = replace(job, fleet=replace(JOB.fleet, node_bandwidth=400e9))
    found, sure = sync_seconds(job, K), sync_seconds(known, K)
    size = 2 * DENSE.model.parameters
    assert (found.low, found.middle) == (sure.low, sure.middle)
    assert found.high == pytest.approx(N.sync_group_seconds + size / (N.sync_slow_rate * N.node_share))
    near = replace(job, fleet=fleet(8), policy=replace(DENSE, layout=Layout(num_devices=4, shards=3)), engine_devices=4)
    assert sync_seconds(near, K).high == pytest.approx(N.sync_band_broadcast * sync_seconds(near, K).middle)


_WAYS: tuple[SyncTransport, ...] = ("tensors", "buckets", "packed", "broadcast", "deltas")
