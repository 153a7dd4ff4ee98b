"""Seconds of training: cases by hand, and what must hold whatever the constants are."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from jobs.catalog.accelerator import find_accelerator
from jobs.planner.constant import Constants, shipped_constants
from jobs.planner.job import Fleet, FrozenModel, Layout, Offload, Training
from jobs.planner.result import Interval, cost_of
from jobs.planner.shapes.known import shape_of
from jobs.planner.shapes.model_shape import read_shape
from jobs.planner.time.flops import training_flops
from jobs.planner.time.layers import best_rate, layer_seconds, moved_by_adapters, rates_of
from jobs.planner.time.network import Link, card_bandwidth, exposed, link_of, node_bandwidth
from jobs.planner.time.training import (
    band_of,
    frozen_seconds,
    scoring_seconds,
    stage_layers,
    update_seconds,
    update_time,
    work_of,
)
from tests.jobs.planner.hardware import H100, fleet
from tests.jobs.planner.shapes.hub_configs import HUB_CONFIGS

K = shipped_constants()
DENSE, MIXED = "qwen2.5-7b", "qwen3-30b-a3b"


def training(model: str = DENSE, *, devices: int = 8, family: str = "fsdp", **changes: Any) -> Training:
    layout = changes.pop("layout", {})
    shards = {"fsdp": 3, "deepspeed": 3, "megatron": 1, "plain": 0}[family]
    return Training(
        model=shape_of(model),
        family=family,  # type: ignore[arg-type]
        layout=Layout(num_devices=devices, **{"shards": shards, **layout}),
        **{"sequence": 8192, "kernels": "compiled", **changes},
    )


def seconds(t: Training, where: Fleet | None = None, **changes: Any) -> float:
    return update_seconds(t, where or fleet(t.layout.num_devices), K, **changes).middle


def test_a_ring_moves_all_but_the_own_share() -> None:
    link = Link(bandwidth=1e9, latency=0.0, is_local=True)
    assert link.gather(8e9, 8) == pytest.approx(7.0)
    assert link.gather(8e9, 1) == 0.0


def test_groups_beside_each_other_share_the_node() -> None:
    where = fleet(64, node_bandwidth=400e9)
    whole, divided = link_of(where, 64, 1, K), link_of(where, 8, 8, K)
    assert not whole.is_local
    assert whole.bandwidth == pytest.approx(400e9 * K.network.node_share)
    assert divided.bandwidth == pytest.approx(50e9 * K.network.node_share)
    assert link_of(where, 8, 1, K).bandwidth == pytest.approx(450e9 * K.network.link_share)


def test_a_rack_of_one_link_counts_as_one_node() -> None:
    rack = Fleet(accelerator=find_accelerator("gb200"), num_devices=64, devices_per_node=4)
    assert link_of(rack, 64, 1, K).is_local


def test_an_unset_network_is_assumed_from_the_link() -> None:
    assert node_bandwidth(fleet(16)) == pytest.approx(400e9)
    assert node_bandwidth(fleet(16, node_bandwidth=25e9)) == 25e9
    cards = Fleet(accelerator=find_accelerator("l40s"), num_devices=16)
    assert node_bandwidth(cards) == 12.5e9


def test_a_card_beside_a_device_carries_no_more_than_400_gigabits() -> None:
    assert card_bandwidth(H100) == 450e9 / 9 == 50e9
    assert card_bandwidth(find_accelerator("a100-80-sxm")) == find_accelerator("a100-80-sxm").link_bandwidth / 9 < 50e9
    assert card_bandwidth(find_accelerator("b200")) == 50e9 < find_accelerator("b200").link_bandwidth / 9


def test_communication_hides_behind_computing() -> None:
    assert exposed(1.0, 2.0, 0.8) == 0.0
    assert exposed(2.0, 2.0, 0.8) == pytest.approx(0.4)


def test_work_of_a_rank() -> None:
    t = training(micro_batch=4, num_micro_batches=3, layout={"context": 2, "tensor": 2})
    work = work_of(t)
    assert (work.tokens, work.document, work.count) == (4 * 8192 / 2, 8192, 3)
    pairs = work_of(replace(t, objective="pairs"))
    assert pairs.tokens == 2 * work.tokens


def test_work_of_a_batch_follows_from_its_tokens() -> None:
    t = training(micro_batch=2)  # two samples a pass, 8 ranks
    work = work_of(t, tokens=8 * 2 * 1000 * 5, document=1000)
    assert (work.tokens, work.document, work.count) == (2000, 1000, 5)
    padded = work_of(replace(t, is_padded=True), tokens=8 * 2 * 1000 * 5, document=1000)
    assert (padded.tokens, padded.document) == (2 * 8192, 8192)
    assert padded.count == pytest.approx(5)


def test_stages_hold_all_layers_once() -> None:
    model = shape_of("deepseek-v3")
    for layout in (
        Layout(num_devices=16, pipeline=16),
        Layout(num_devices=16, pipeline=16, first_stage_layers=3, last_stage_layers=2),
        Layout(num_devices=16, pipeline=2, last_stage_layers=20),
    ):
        edges = [stage_layers(model, layout, stage) for stage in range(layout.pipeline)]
        assert edges[0][0] == 0
        assert edges[-1][1] == 61
        assert all(one[1] == other[0] for one, other in pairwise(edges))


def test_a_pipeline_waits_while_it_fills() -> None:
    t = training(family="megatron", num_micro_batches=6, layout={"pipeline": 4}, kernels="megatron")
    found = update_time(t, fleet(8), K)
    each = (found.computing + found.communication) / 6
    assert found.bubble == pytest.approx(3 * each, rel=0.1)
    chunked = update_time(replace(t, layout=replace(t.layout, virtual=7)), fleet(8), K)
    assert chunked.bubble < found.bubble / 3


def test_the_host_updates_what_was_offloaded() -> None:
    t = training(num_micro_batches=8)
    on_host = replace(t, offload=Offload(optimizer=1.0))
    more = update_time(on_host, fleet(8), K).optimizer - update_time(t, fleet(8), K).optimizer
    assert more == pytest.approx(t.model.parameters * K.speed.cpu_adam_seconds / 1e9, rel=0.2)


@pytest.mark.parametrize("model", [DENSE, MIXED, "deepseek-v3", "gemma-2-9b", "qwen2.5-0.5b", "gpt-oss-20b"])
@pytest.mark.parametrize("device", ["h100-sxm", "h20", "a100-80-sxm", "b200", "mi300x", "t4", "rtx-4090"])
@pytest.mark.parametrize("compute", ["bf16", "fp8", "fp32"])
def test_no_device_is_faster_than_its_best_rate(model: str, device: str, compute: str) -> None:
    t = training(model, devices=1, family="plain", compute=compute)
    a = find_accelerator(device)
    found = update_time(t, Fleet(accelerator=a, num_devices=1), K)
    least = training_flops(t, 8192, 8192, executed=True) / best_rate(a, compute)
    assert found.seconds.low >= least * 0.999
    assert found.seconds.low <= found.seconds.middle <= found.seconds.high
    assert found.seconds.high / found.seconds.low <= 2.5 * 1.001


@pytest.mark.parametrize("model", [DENSE, MIXED])
@pytest.mark.parametrize("family", ["fsdp", "deepspeed", "megatron"])
def test_a_faster_link_is_never_slower(model: str, family: str) -> None:
    t = training(model, devices=32, family=family, layout={"tensor": 2, "expert": 4 if model == MIXED else 1})
    slow = seconds(t, fleet(32, node_bandwidth=12.5e9))
    assert seconds(t, fleet(32, node_bandwidth=400e9)) <= slow
    quick = replace(H100, link_bandwidth=2 * H100.link_bandwidth)
    assert seconds(t, Fleet(accelerator=quick, num_devices=32, node_bandwidth=12.5e9)) <= slow


@pytest.mark.parametrize("model", [DENSE, MIXED])
def test_more_compute_and_more_bandwidth_are_never_slower(model: str) -> None:
    t = training(model)
    for changed in (
        replace(H100, bandwidth=H100.bandwidth * 2),
        replace(H100, peak={key: 2 * rate for key, rate in H100.peak.items()}, best={}),
        replace(H100, pcie_bandwidth=H100.pcie_bandwidth * 2),
    ):
        assert seconds(t, Fleet(accelerator=changed, num_devices=8)) <= seconds(t) * 1.0001


@pytest.mark.parametrize("model", [DENSE, MIXED])
def test_more_tokens_are_never_faster(model: str) -> None:
    found = [seconds(training(model, sequence=length)) for length in (512, 2048, 8192, 32768)]
    assert found == sorted(found)
    counted = [seconds(training(model, num_micro_batches=count)) for count in (1, 2, 4)]
    assert counted == sorted(counted)
    batches = [seconds(training(model), tokens=tokens, document=4000) for tokens in (1e5, 1e6, 1e7)]
    assert batches == sorted(batches)


def test_more_ranks_are_never_slower_in_a_node_on_the_same_batch() -> None:
    found = [seconds(training(devices=devices), tokens=4e6, document=2000) for devices in (1, 2, 4, 8)]
    assert found == sorted(found, reverse=True)


@pytest.mark.parametrize("model", [DENSE, MIXED])
def test_recomputation_costs_time_and_adapters_save_some(model: str) -> None:
    none, part, full = (seconds(training(model, checkpointing=mode)) for mode in ("none", "selective", "full"))
    assert none < part < full
    assert full / none < 1.4


def test_deepspeeds_step_on_the_host_is_its_own() -> None:
    t = training(family="deepspeed", offload=Offload(optimizer=1.0))
    copies = (2 + 2) * t.model.parameters / 8 / (H100.pcie_bandwidth * K.speed.host_share)
    expected = t.model.parameters * K.speed.deepspeed_offload_seconds / 1e9 + copies + K.speed.step_seconds
    assert update_time(t, fleet(8), K).optimizer == pytest.approx(expected, rel=1e-3)


def test_a_process_of_one_thread_updates_states_on_the_host_as_slowly_as_deepspeeds() -> None:
    many, one = (training(family="megatron", offload=Offload(optimizer=1.0, has_one_thread=x)) for x in (False, True))
    per_element = (K.speed.deepspeed_offload_seconds - K.speed.cpu_adam_seconds) / 1e9
    longer = update_time(one, fleet(8), K).optimizer - update_time(many, fleet(8), K).optimizer
    assert longer == pytest.approx(one.model.parameters * per_element, rel=0.01)


def test_the_hooks_of_zero_3_bound_a_layer_of_few_tokens() -> None:
    t = training(family="deepspeed", devices=1, sequence=64, checkpointing="full")
    # 28 layers: forward, forward again, and backward with two products
    assert update_time(t, fleet(1), K).computing == pytest.approx(28 * 4 * K.speed.layer_seconds_zero3, rel=0.02)
    second = replace(t, layout=replace(t.layout, shards=2))
    assert update_time(second, fleet(1), K).computing < update_time(t, fleet(1), K).computing / 2
    many = (replace(each, micro_batch=512) for each in (t, second))
    assert len({update_time(each, fleet(1), K).computing for each in many}) == 1


def test_the_host_bounds_a_layer_of_experts_with_few_tokens() -> None:
    t = training(MIXED, family="megatron", kernels="megatron", devices=1, sequence=64, checkpointing="none")
    # 48 layers: forward, and backward with two products; the head of so few tokens takes next to nothing
    assert update_time(t, fleet(1), K).computing == pytest.approx(48 * 3 * K.speed.layer_seconds_grouped, rel=0.02)


def test_what_sends_tokens_and_adapters_bounds_a_layer_of_experts_too() -> None:
    t = training(MIXED, family="megatron", kernels="megatron", devices=1, sequence=64, checkpointing="none")
    flex = replace(t, dispatcher="flex")
    adapted = replace(flex, method="lora", lora_rank=8, lora_targets=("all-linear",))
    added = K.speed.layer_seconds * (K.speed.adapter_launches - 1)
    for each, floor in ((flex, K.speed.layer_seconds_flex), (adapted, K.speed.layer_seconds_flex + added)):
        assert update_time(each, fleet(1), K).computing == pytest.approx(48 * 3 * floor, rel=0.03)


def test_a_delta_rule_scans_a_document_chunk_by_chunk_whatever_goes_along() -> None:
    hybrid = read_shape(HUB_CONFIGS["Qwen/Qwen3-Next-80B-A3B-Instruct"])
    linear = next(layer for layer in hybrid.layers if layer.kind == "gated delta rule")
    t = replace(training(devices=1), model=hybrid)

    def forward(constants: Constants, tokens: float, document: float) -> float:
        rates = rates_of(t, H100, constants)
        return layer_seconds(linear, hybrid, t.layout, t, tokens, document, rates, constants).forward

    without = K.with_values({"speed.scan_seconds": 0.0})
    for tokens, document in ((65_536, 65_536), (65_536, 1024), (131_072, 1024)):
        scanned = forward(K, tokens, document) - forward(without, tokens, document)
        assert scanned == pytest.approx(document / 64 * K.speed.scan_seconds)


def test_ranks_of_a_ring_that_keep_their_parts_scan_these_twice() -> None:
    hybrid = read_shape(HUB_CONFIGS["Qwen/Qwen3-Next-80B-A3B-Instruct"])
    linear = next(layer for layer in hybrid.layers if layer.kind == "gated delta rule")
    without = K.with_values({"speed.scan_seconds": 0.0})

    def scan_chunks(**layout: Any) -> float:
        t = replace(
            training(devices=8, family="megatron", kernels="megatron"),
            model=hybrid,
            layout=Layout(num_devices=8, **layout),
        )
        rates = rates_of(t, H100, K)
        with_it, bare = (
            layer_seconds(linear, hybrid, t.layout, t, 65_536, 65_536, rates, each).forward for each in (K, without)
        )
        return (with_it - bare) / K.speed.scan_seconds

    # 65536 / 64 = 1024 chunks; a fourth of them, first for what they add to the state, then from it
    assert scan_chunks(context=4, has_scan_parts=True) == pytest.approx(512)
    assert scan_chunks(context=4) == pytest.approx(1024)
    assert scan_chunks(has_scan_parts=True) == pytest.approx(1024)


def test_a_bias_on_what_experts_return_moves_28_bytes_an_element() -> None:
    t = training(MIXED, family="megatron", kernels="megatron", devices=1, sequence=8192, checkpointing="none")
    layer = t.model.layers[0]
    biased = replace(t, model=replace(t.model, has_expert_bias=True))

    def added(**changes: Any) -> float:
        plain, other = (
            layer_seconds(
                layer, each.model, each.layout, (one := replace(each, **changes)), 8192, 8192, rates_of(one, H100, K), K
            ).forward
            for each in (t, biased)
        )
        return other - plain

    # 8 of 128 experts of 2048 elements a token
    expected = 8192 * 8 * 2048 * 28 / rates_of(t, H100, K).memory
    assert added() == pytest.approx(expected)
    assert added(has_fused_experts=True) == 0
    assert added(kernels="fused") == 0
    assert [shape_of(name).has_expert_bias for name in ("gpt-oss-20b", MIXED)] == [True, False]


def test_a_reference_scores_rows_where_samples_are_joined() -> None:
    t = training(devices=1, document=100, sequence=8192)
    frozen = FrozenModel(role="reference", model=t.model, layout=t.layout, sequence=8192)
    joined = frozen_seconds(frozen, t, fleet(1), K, tokens=81_920, document=100).middle
    alone = frozen_seconds(frozen, replace(t, document=0), fleet(1), K, tokens=81_920, document=100).middle
    scored = [
        scoring_seconds(t.model, t.layout, t, fleet(1), K, row=row, tokens=81_920, document=100).middle
        for row in (8192, 100)
    ]
    assert [joined, alone] == scored
    assert joined < alone


def test_adapters_cost_what_their_arithmetic_says() -> None:
    t = training(method="lora", lora_rank=8, kernels="megatron", devices=1, family="plain", layout={"shards": 0})
    some = replace(t, lora_targets=("q_proj", "v_proj"))
    none = replace(t, lora_targets=("nothing",))
    model, rate = t.model, H100.bandwidth * K.speed.bandwidth
    # q (3584 in and out) and v (3584 to 512) of 28 layers: 2 bytes read and 8 to write, scale and add, of which half a
    # side each over in + out; forward and twice backward
    moved = 28 * 2.5 * K.speed.adapter_passes * (2 * 3584 + 3584 + 512)
    expected = 3 * 2 * 8192 * moved / rate * (4 / 3)  # and forward again: all layers are checkpointed
    adapted, bare = (update_time(each, fleet(1), K).computing for each in (some, none))
    assert model.num_layers == 28
    assert adapted - bare == pytest.approx(expected, rel=1e-6)
    assert seconds(some) < seconds(t)


def test_wide_adapters_that_nothing_fuses_move_more() -> None:
    held: dict[str, Any] = {"devices": 1, "family": "plain", "layout": {"shards": 0}, "adapter_bytes": 4.0}
    t = training(method="lora", lora_rank=8, kernels="eager", **held)
    fused, narrow = replace(t, kernels="fused"), replace(t, adapter_bytes=2.0)
    widened, dropped = replace(t, mixed_precision="pure"), replace(t, has_adapter_dropout=True)
    elements = [moved_by_adapters(each) for each in (fused, narrow, t, dropped, widened)]
    assert elements == [2.5, 3.5, 6.5, 8.75, 9.5]


def test_a_balanced_ring_waits_for_nobody() -> None:
    ring = training(sequence=65_536, devices=8, family="fsdp", kernels="eager", layout={"shards": 3, "context": 8})
    balanced = replace(ring, layout=replace(ring.layout, is_ring_balanced=True))
    one = replace(ring, kernels="megatron")
    assert seconds(balanced) < 0.75 * seconds(ring)
    assert replace(one, layout=balanced.layout).layout.is_ring_balanced
    assert seconds(replace(one, layout=balanced.layout)) == seconds(one)  # Megatron's ring is balanced as it is


def test_a_pass_that_waits_for_the_host_is_less_sure() -> None:
    tiny, full = (training(devices=1, family="plain", kernels="eager", sequence=size) for size in (64, 16_384))
    widths = [(found := update_seconds(each, fleet(1), K)).high / found.middle for each in (tiny, full)]
    assert widths[1] == pytest.approx(K.speed.band_dense)
    assert widths[0] > 1.05 * widths[1]


@pytest.mark.parametrize(
    ("changes", "band"),
    [
        ({"kernels": "eager", "attention": "sdpa"}, "stock"),
        ({"kernels": "liger", "attention": "eager", "method": "lora", "lora_rank": 8}, "stock"),
        ({"kernels": "eager", "attention": "flash2"}, "dense"),
        ({"kernels": "compiled", "attention": "sdpa", "method": "lora", "lora_rank": 8}, "adapters"),
        ({"model": MIXED, "kernels": "eager", "attention": "flash2"}, "stock"),  # its loop over experts decides
        ({"model": MIXED, "kernels": "megatron"}, "experts"),
    ],
)
def test_seconds_are_less_sure_of_modules_as_they_come_and_of_younger_libraries(
    changes: dict[str, Any], band: str
) -> None:
    assert band_of(training(**changes), H100) == f"speed.band_{band}"
    assert band_of(training(**changes), find_accelerator("mi300x")) == "speed.band_stock"
    assert K.speed.band_stock > max(K.speed.band_dense, K.speed.band_adapters, K.speed.band_experts)


def test_deepspeed_fetches_experts_one_by_one() -> None:
    by_modules = seconds(training(MIXED, family="deepspeed"))
    assert by_modules > 4 * seconds(training(MIXED, family="megatron", kernels="megatron"))


def test_a_device_with_little_compute_is_filled_easily() -> None:
    shares = {}
    for name in ("h20", "a100-80-sxm", "h100-sxm"):
        a = find_accelerator(name)
        t = training(devices=1, family="plain")
        ideal = training_flops(t, 8192, 8192, executed=True) / a.peak["bf16"]
        shares[name] = ideal / seconds(t, Fleet(accelerator=a, num_devices=1))
    assert shares["h20"] > shares["a100-80-sxm"] > shares["h100-sxm"]
    assert shares["h20"] > 0.7


def test_scoring_is_a_part_of_an_update() -> None:
    t = training()
    score = scoring_seconds(t.model, t.layout, t, fleet(8), K, tokens=1e6, document=2000, row=8192).middle
    share = score / seconds(t, tokens=1e6, document=2000)
    assert 0.2 < share < 0.34


def test_money_is_device_hours_at_their_price() -> None:
    step = Interval(low=9.0, middle=10.0, high=12.0)
    cost = cost_of(step, fleet(16, price=3.0), 1000, K)
    hours = 16 * 10_000 / (1 - K.speed.restart_share) / 3600
    assert cost.device_hours is not None
    assert cost.money is not None
    assert cost.device_hours.middle == pytest.approx(hours)
    assert cost.money.middle == pytest.approx(3 * hours)
    assert cost.money.low < cost.money.middle < cost.money.high
    assert cost_of(step, fleet(16), 1000, K).money is None
    assert cost_of(step, fleet(16, price=3.0), 0, K).seconds is None


def test_scoring_does_not_depend_on_whether_the_update_recomputes() -> None:
    where = fleet(16, node_bandwidth=5e9)  # so slow that gathers show
    found = [
        scoring_seconds(t.model, t.layout, t, where, K, tokens=2e5, document=1000.0, row=2000.0).middle
        for t in (training(devices=16, checkpointing=kept) for kept in ("none", "full"))
    ]
    assert found[0] == found[1]
