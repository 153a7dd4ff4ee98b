"""The layout search: what it lists can be launched, fits, learns the same, and is what the form would make of it."""

from itertools import pairwise
from typing import Any

import pytest

from jobs.catalog.recipe import recipes
from jobs.catalog.rules.rule import changed, refused
from jobs.catalog.spec.parse import parse_spec
from jobs.catalog.spec.runspec import RunSpec, to_json
from jobs.planner.estimate import estimate
from jobs.planner.job import Layout
from jobs.planner.read.knob_values import Knobs
from jobs.planner.read.spec import read_job
from jobs.planner.search.axes import last_stage
from jobs.planner.search.layout_space import spaces_of
from jobs.planner.search.layouts import SearchResult, search
from jobs.planner.search.tunable_knobs import PERFORMANCE, teaches_the_same
from jobs.planner.validity import REASONS, misfit_of
from tests.jobs.planner.hardware import fleet, models_for, shape_for

RUNS = (
    "native-grpo-demo",
    "openrlhf-grpo-qwen2.5-7b",
    "openrlhf-ppo-8b-hybrid",
    "openrlhf-sft-8b",
    "openrlhf-async-qwen3-4b",
    "verl-async-grpo-qwen3-8b",
    "verl-dapo-qwen3-30b-a3b",
    "verl-grpo-lora-qwen3-8b-2gpu",
    "verl-grpo-qwen3-8b",
    "verl-sft-qwen3-8b",
)


def _spec(name: str) -> RunSpec:
    return recipes()[name].spec


def _found(name: str, **more: Any) -> SearchResult:
    spec = _spec(name)
    return search(spec, models_for(spec), fleet(spec.num_workers, price=2.0), **{"most": 200, "limit": 8, **more})


@pytest.mark.parametrize("name", RUNS)
def test_what_is_listed_can_be_launched_fits_and_learns_the_same(name: str) -> None:
    spec = _spec(name)
    before = {problem.message for problem in refused(spec)}

    result = _found(name)

    assert result.ranked, result.rejected
    for layout in result.ranked:
        assert set(layout.changes) <= PERFORMANCE
        after = parse_spec(to_json(changed(spec, layout.changes)))
        assert teaches_the_same(spec, after)
        assert {problem.message for problem in refused(after)} <= before
        job = read_job(after, models_for(spec), fleet(spec.num_workers, price=2.0))
        assert job == layout.job  # one click makes the form's run this very layout
        assert misfit_of(job) is None
        assert job.fleet.num_devices <= spec.num_workers
        assert estimate(job).verdict == layout.estimate.verdict != "no"
        assert all(pool.share <= 1 for pool in layout.estimate.pools)


@pytest.mark.parametrize("name", RUNS)
def test_every_layout_is_accounted_for(name: str) -> None:
    result = _found(name)

    rejected = sum(each.count for each in result.rejected)
    assert len(result.ranked) + result.unlisted + rejected + result.skipped == result.considered
    for each in result.rejected:
        assert each.label == REASONS[each.reason]
        assert 1 <= len(each.nearest) <= 3
        assert all(miss.message.endswith(".") for miss in each.nearest)


def test_order_by_goal() -> None:
    time = _found("verl-grpo-qwen3-8b", goal="time")
    cost = _found("verl-grpo-qwen3-8b", goal="cost")
    room = _found("verl-grpo-qwen3-8b", goal="room")

    fits = [each for each in time.ranked if each.estimate.verdict == "fits"]
    assert all(one.seconds <= next_one.seconds * 1.01 for one, next_one in pairwise(fits))  # within it, room decides
    assert cost.ranked[0].device_seconds <= time.ranked[0].device_seconds
    assert room.ranked[0].room >= time.ranked[0].room
    assert all(each.cost == pytest.approx(each.device_seconds / 3600 * 2.0) for each in cost.ranked)
    assert any(each.is_best_trade for each in time.ranked)


def test_a_smaller_budget_looks_at_fewer() -> None:
    few, many = _found("verl-grpo-qwen3-8b", most=40), _found("verl-grpo-qwen3-8b", most=200)

    assert few.considered == many.considered
    assert few.skipped > many.skipped
    assert many.ranked[0].seconds <= few.ranked[0].seconds


def test_nothing_fits_a_model_that_is_far_too_large() -> None:
    spec = _spec("verl-grpo-qwen3-8b")
    large = models_for(_spec("verl-grpo-qwen2.5-72b-32gpu"))

    result = search(spec, large, fleet(1), most=100)

    assert result.ranked == ()
    assert {each.reason for each in result.rejected} & {"memory", "engine_memory"}
    nearest = next(each for each in result.rejected if each.reason == "memory").nearest
    assert nearest[0].message.count("GiB") >= 1


def test_the_reason_of_a_layout_that_cannot_be() -> None:
    spec = _spec("verl-dapo-qwen3-30b-a3b")
    job = read_job(changed(spec, {"parallel.tensor_parallel_size": 3}), models_for(spec), fleet())
    deep = read_job(changed(spec, {"parallel.pipeline_parallel_size": 5}), models_for(spec), fleet(40))

    assert misfit_of(job).reason == "tensor"  # type: ignore[union-attr]
    assert misfit_of(deep).reason == "layers"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("layers", "stages", "last"), [(64, 8, 0), (61, 12, 6), (61, 16, 1), (94, 8, 10), (61, 4, 13), (3, 2, 1)]
)
def test_last_stage_takes_what_does_not_divide(layers: int, stages: int, last: int) -> None:
    assert last_stage(layers, stages) == last
    if last:
        assert (layers - last) % (stages - 1) == 0


@pytest.mark.parametrize("name", RUNS)
def test_spaces_hold_no_knob_that_the_run_lacks(name: str) -> None:
    spec = _spec(name)

    for space in spaces_of(spec, shape_for(spec), fleet(spec.num_workers), sizes=(spec.num_workers,)):
        for changes in (space.placement, *space.ways_to_train, *space.ways_to_generate):
            for knob_id, value in changes.items():
                if not knob_id.startswith("hardware."):
                    spec.knobs[knob_id]
                    Knobs(changed(spec, {knob_id: value}))
        trained = {name for way in space.ways_to_train for name in way}
        generated = {name for way in space.ways_to_generate for name in way}
        assert not trained & generated
        assert not trained & set(space.placement)


def test_a_layout_counts_what_its_sizes_leave() -> None:
    layout = Layout(num_devices=96, tensor=8, pipeline=12, expert=8, shards=1)

    assert (layout.data, layout.shard_ranks, layout.expert_data) == (1, 1, 1)


def test_engines_that_hold_no_sequence_take_no_layout_s_place() -> None:
    result = _found("verl-grpo-deepseek-v3-128gpu", most=300)  # on most ways to generate its weights leave no room

    assert result.ranked
    assert next(each.count for each in result.rejected if each.reason == "engine_memory") > result.unlisted


@pytest.mark.parametrize("devices", [1, 7, 10**6])
def test_any_number_of_devices_is_searched(devices: int) -> None:
    spec = _spec("verl-grpo-qwen3-8b")

    result = search(spec, models_for(spec), fleet(devices), most=100)

    rejected = sum(each.count for each in result.rejected)
    assert result.considered > 0
    assert len(result.ranked) + result.unlisted + rejected + result.skipped == result.considered
    assert all(1 <= each.job.fleet.num_devices <= devices for each in result.ranked)


def test_no_devices_have_no_layout() -> None:
    spec = _spec("verl-grpo-qwen3-8b")

    result = search(spec, models_for(spec), fleet(0))

    assert (result.considered, result.ranked, result.rejected) == (0, (), ())


@pytest.mark.parametrize("price", [float("nan"), float("inf"), -1.0])
def test_a_price_that_is_none_ranks_nothing(price: float) -> None:
    spec = _spec("verl-grpo-qwen3-8b")

    result = search(spec, models_for(spec), fleet(8, price=price), goal="cost", most=50)

    assert result.ranked == ()
    assert any("price" in miss.message for each in result.rejected for miss in each.nearest)
