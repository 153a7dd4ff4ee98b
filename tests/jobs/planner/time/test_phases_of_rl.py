"""What phases of a step of reinforcement learning take beside the products of their tokens: cases by hand."""

import math
import random
import statistics
from dataclasses import replace

import pytest

from jobs.catalog.accelerator import find_accelerator
from jobs.planner.constant import shipped_constants
from jobs.planner.job import Fleet, FrozenModel, Layout, Offload, Training
from jobs.planner.shapes.known import shape_of
from jobs.planner.time.generation import _center, length_deviation, longest_of
from jobs.planner.time.network import exchange_of, host_bandwidth
from jobs.planner.time.training import frozen_seconds, scoring_seconds
from tests.jobs.planner.hardware import H100, fleet
from tests.jobs.planner.test_estimate import colocated, estimate

K = shipped_constants()
MODEL = shape_of("qwen2.5-7b")


def policy(**changes: object) -> Training:
    values = {"model": MODEL, "layout": Layout(num_devices=8, shards=3), "family": "fsdp", **changes}
    return Training(**values)  # type: ignore[arg-type]


def reference(**changes: object) -> float:
    frozen = FrozenModel(role="reference", model=MODEL, layout=Layout(num_devices=8, shards=3), sequence=1024)
    return frozen_seconds(
        replace(frozen, **changes),  # type: ignore[arg-type]
        policy(),
        fleet(8),
        K,
        tokens=8 * 16 * 1024,
        document=1024,
    ).middle


def test_lengths_lie_as_far_from_their_mean_as_drawn_ones() -> None:
    random.seed(1)
    center = _center(800.0, 2048, 0.7)
    drawn = [min(math.exp(random.gauss(center, 0.7)), 2048) for _ in range(200_000)]
    assert length_deviation(800.0, 2048, 0.7) == pytest.approx(statistics.pstdev(drawn), rel=0.01)
    assert length_deviation(2048.0, 2048, 0.7) == 0


def test_the_longest_of_eight_is_what_eight_drawn_ones_have() -> None:
    assert longest_of(0.0, 1.0, 8) == pytest.approx(1.4236, rel=0.01)  # expectation of the greatest of 8 normals
    assert longest_of(7.0, 1.0, 1) == 7


def test_a_reference_in_host_memory_comes_unit_by_unit_in_each_pass() -> None:
    here = reference()
    rate = 63e9 / 2 * K.speed.move_rate_share  # two cards behind a switch
    shard = 2 * MODEL.parameters / 8
    assert reference(is_offloaded=True) - here == pytest.approx(16 * shard / rate, rel=0.01)
    assert reference(is_offloaded=True, is_swapped_in=True) - here == pytest.approx(shard / rate, rel=0.01)


def test_cards_share_the_host_link_of_their_switch() -> None:
    assert host_bandwidth(fleet(8), 8) == H100.pcie_bandwidth / 2
    assert host_bandwidth(fleet(1), 1) == H100.pcie_bandwidth
    cards = find_accelerator("a100-80-pcie")
    assert host_bandwidth(Fleet(accelerator=cards, num_devices=8), 8) == cards.pcie_bandwidth / 4


def test_a_pass_forward_talks_half_as_much_as_both_ways() -> None:
    layout = Layout(num_devices=8, tensor=4, expert=2)
    mixed = policy(model=shape_of("qwen3-30b-a3b"), layout=layout, family="megatron", kernels="megatron")

    def both(share: float) -> tuple[float, float]:
        where = Fleet(accelerator=replace(H100, link_bandwidth=H100.link_bandwidth * share), num_devices=8)
        scored = scoring_seconds(mixed.model, layout, mixed, where, K, tokens=2 * 8192, document=1024, row=8192)
        once = replace(mixed, checkpointing="none")
        said = exchange_of(once, where, tokens=8192, layers=48, parameters=0, experts=0, constants=K)
        return scored.middle, said.tensor + said.experts

    (fast, little), (slow, much) = both(1.0), both(0.1)
    assert slow - fast == pytest.approx((much - little) / 2)


def test_phases_of_verl_load_what_they_need_and_send_it_back() -> None:
    between = Offload(params_between_phases=True, optimizer_between_phases=True)
    once, each = (
        estimate(colocated(policy={"offload": replace(between, is_moved_by_phase=flag)})).time.phases
        for flag in (False, True)
    )
    training = colocated().policy
    rate = 63e9 / 2 * K.speed.move_rate_share
    weights = training.weight_bytes * MODEL.parameters / 8
    states = (8 + 4 * training.has_master) * MODEL.parameters / 8
    gained = {key: each[key].middle - once[key].middle for key in each}
    assert gained["old_logprobs"] == pytest.approx(2 * weights / rate)
    assert gained["update"] == pytest.approx(2 * (weights + states) / rate)
    assert gained["weight_sync"] == pytest.approx(-2 * states / rate)


def test_ranks_wait_for_the_one_with_most_tokens() -> None:
    """In each micro-batch where they share weights, at the end alone where each has them whole; not where so many
    tokens are joined."""

    def update(**changes: object) -> float:
        job = colocated(policy={"sequence": 2560, "offload": Offload()}, frozen=())
        job = replace(job, policy=replace(job.policy, **changes))  # type: ignore[arg-type]
        assert job.rollouts is not None
        alike = replace(job, rollouts=replace(job.rollouts, lengths=replace(job.rollouts.lengths, spread=1e-9)))
        return estimate(job).time.phases["update"].middle / estimate(alike).time.phases["update"].middle

    most = longest_of(1000.0, length_deviation(800.0, 2048, 0.7), 8) / 1000
    assert 1.3 < update() <= most
    assert 1.1 < update(micro_batch=4) < update()
    assert update(document=1000) == 1
    assert update(family="megatron", kernels="megatron", layout=Layout(num_devices=8, shards=1)) < 1.2
