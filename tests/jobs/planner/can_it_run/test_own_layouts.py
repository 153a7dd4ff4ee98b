"""The built-in trainer's layouts on few devices: which is needed, and which is too large."""

from jobs.catalog.accelerator import find_accelerator
from jobs.planner.can_it_run.own_layouts import COUNTS, LEAST_DEVICES, OwnLayoutFit, own_layouts
from jobs.planner.can_it_run.plans import Demand
from jobs.planner.shapes.known import shape_of
from tests.jobs.planner.hardware import H100


def _by_place(model: str, accelerator: str = "h100-sxm") -> dict[tuple[str, int], OwnLayoutFit]:
    found = own_layouts(shape_of(model), find_accelerator(accelerator), Demand(max_prompt=512, max_response=1024))
    return {(each.layout, each.num_devices): each for each in found}


def test_one_device_takes_the_layout_colocated_and_more_leave_a_choice() -> None:
    found = _by_place("qwen2.5-1.5b")

    assert list(found) == [(layout, count) for count in COUNTS for layout in LEAST_DEVICES]
    too_few = [key for key, each in found.items() if each.estimate is None]
    assert too_few == [("split", 1), ("shared", 1), ("split", 2)]
    assert found["colocated", 1].is_best
    assert found["colocated", 1].estimate is not None
    assert found["colocated", 1].estimate.verdict == "fits"
    best = [each for each in found.values() if each.is_best]
    assert [each.num_devices for each in best] == list(COUNTS)


def test_a_model_whose_states_no_device_holds_fits_where_they_are_spread() -> None:
    found = _by_place("qwen2.5-7b")

    alone = found["colocated", 1].estimate
    assert alone is not None
    assert alone.verdict == "no"  # 18 bytes a parameter are 137 GB
    assert [each.layout for each in found.values() if each.is_best and each.num_devices == 1] == []
    assert any(each.is_best for each in found.values() if each.num_devices == 8)


def test_the_ranks_of_a_small_device_draw_fewer_samples_at_once() -> None:
    shape, demand = shape_of("qwen2.5-0.5b"), Demand(max_prompt=512, max_response=1024)

    (small,) = [
        each for each in own_layouts(shape, find_accelerator("l4"), demand, counts=(1,)) if each.layout == "colocated"
    ]
    (large,) = [each for each in own_layouts(shape, H100, demand, counts=(1,)) if each.layout == "colocated"]

    assert small.estimate is not None
    assert large.estimate is not None
    assert small.estimate.verdict != "no"
    held = [
        max(p.memory.terms["kv_cache"] for p in e.pools[0].phases if p.phase == "rollout")
        for e in (small.estimate, large.estimate)
    ]
    assert held[0] <= held[1]
