"""Seconds of exchanges of all with all, by hand: over links, over cards, and of tokens that experts wait for."""

from dataclasses import replace

import pytest

from jobs.catalog.accelerator import find_accelerator
from jobs.planner.constant import shipped_constants
from jobs.planner.job import Fleet, Layout, Training
from jobs.planner.shapes.known import shape_of
from jobs.planner.time.layers import best_rate, layer_seconds, rates_of
from jobs.planner.time.network import all_to_all, dispatch_seconds, exchange_of
from jobs.planner.time.training import update_time
from tests.jobs.planner.hardware import H100, fleet

K = shipped_constants()
N = K.network
LINK, CARD = 450e9 * N.link_share, 50e9
MIXED = Training(
    model=shape_of("qwen3-30b-a3b"),
    layout=Layout(num_devices=16, expert=8, shards=1),
    family="megatron",
    kernels="megatron",
    sequence=4096,
    num_micro_batches=4,
)
FLEX = replace(MIXED, dispatcher="flex")
TOKEN = 2 * 2048  # bytes


def over(training: Training, experts: int) -> Training:
    return replace(training, layout=replace(training.layout, expert=experts))


def test_in_a_node_all_but_the_own_part_goes_over_the_link() -> None:
    inside = 8e9 * 7 / 8 / LINK / N.exchange_share
    assert all_to_all(fleet(8), 8e9, 8, 1, K) == pytest.approx(inside + N.link_latency)
    assert all_to_all(fleet(8), 8e9, 1, 1, K) == 0.0


def test_what_leaves_a_node_goes_by_the_card_of_the_rank_that_sends_it() -> None:
    outside = 8e9 * 24 / 32 / (CARD * N.node_share)
    assert all_to_all(fleet(32), 8e9, 32, 1, K) == pytest.approx(outside + N.node_latency)
    # one rank of each node: nothing stays inside
    assert all_to_all(fleet(32), 8e9, 4, 8, K) == pytest.approx(8e9 * 3 / 4 / (CARD * N.node_share) + N.node_latency)


def test_a_rack_of_one_link_exchanges_as_one_node() -> None:
    rack = Fleet(accelerator=find_accelerator("gb200"), num_devices=64, devices_per_node=4)
    link = rack.accelerator.link_bandwidth * N.link_share
    inside = 8e9 * 63 / 64 / link / N.exchange_share
    assert all_to_all(rack, 8e9, 64, 1, K) == pytest.approx(inside + N.link_latency)


def test_all_to_all_sends_a_token_for_each_of_its_experts() -> None:
    sent = dispatch_seconds(MIXED, fleet(16), 4096, K)
    assert sent == pytest.approx(all_to_all(fleet(16), 4096 * 8 * TOKEN, 8, 1, K))


def test_a_dispatcher_sends_a_token_once_to_each_rank_that_has_any_of_its_experts() -> None:
    reached = 8 * (1 - (7 / 8) ** 8)  # 5.25 of eight ranks hold one of eight experts
    inside = 4096 * TOKEN * reached * 7 / 8 / LINK / N.flex_share
    assert dispatch_seconds(FLEX, fleet(16), 4096, K) == pytest.approx(inside + N.link_latency)
    assert inside < dispatch_seconds(MIXED, fleet(16), 4096, K) * 0.6


def test_between_nodes_it_sends_a_token_once_to_each_node() -> None:
    left = 2 * (1 - (1 / 2) ** 8) / 2  # nearly always to the other node, once
    outside = 4096 * TOKEN * left / (CARD * N.flex_node_share)
    assert dispatch_seconds(over(FLEX, 16), fleet(16), 4096, K) == pytest.approx(outside + N.node_latency)
    assert outside < dispatch_seconds(over(MIXED, 16), fleet(16), 4096, K) / 4


def test_an_exchange_hides_behind_another_micro_batch_and_no_further() -> None:
    far = over(MIXED, 16)
    shown, hidden = (update_time(each, fleet(16), K) for each in (far, replace(far, hides_exchange=True)))
    each = shown.computing / far.num_micro_batches
    saved = far.num_micro_batches * N.exchange_overlap * each
    assert shown.seconds.middle - hidden.seconds.middle == pytest.approx(saved)
    assert hidden.communication > 0


def test_fused_experts_move_less_and_graphs_need_no_host() -> None:
    layer = MIXED.model.layers[0]
    rates = rates_of(MIXED, H100, K)
    plain, fused, replayed = (
        layer_seconds(layer, MIXED.model, MIXED.layout, each, tokens, 4096, rates, K)
        for each, tokens in (
            (MIXED, 65536),
            (replace(MIXED, has_fused_experts=True), 65536),
            (replace(MIXED, has_graphs=True), 64),
        )
    )
    routed = 8 * (2 * 2048 + 3 * 768)
    less = 2 * 65536 * routed * (K.speed.moved_grouped - K.speed.moved_fused_experts) / rates.memory
    assert plain.forward - fused.forward == pytest.approx(less)
    assert plain.backward - fused.backward == pytest.approx(2 * less)
    assert replayed.forward < K.speed.layer_seconds_grouped
    assert replayed.forward >= K.speed.layer_seconds_compiled


def test_a_unit_of_fsdp_is_gathered_twice_where_zero_3_gathers_thrice() -> None:
    whole = Training(
        model=shape_of("qwen2.5-7b"), layout=Layout(num_devices=16, shards=3), family="fsdp", checkpointing="full"
    )
    found = [
        exchange_of(each, fleet(16), tokens=1024, layers=28, parameters=7e9, experts=0.0, constants=K).gather
        for each in (whole, replace(whole, family="deepspeed"), replace(whole, resharded=False))
    ]
    assert found == pytest.approx([2 * found[2], 3 * found[2], found[2]])


def test_products_of_8_bits_that_nobody_measured_reach_what_those_of_16_reach_of_their_peak() -> None:
    card = find_accelerator("mi300x")
    assert best_rate(card, "fp8") == pytest.approx(card.peak["fp8"] * card.best["bf16"] / card.peak["bf16"])
    assert best_rate(H100, "fp8") == H100.best["fp8"]
