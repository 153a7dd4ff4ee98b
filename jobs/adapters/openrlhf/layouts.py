"""OpenRLHF's layouts: all groups on the same devices, or engines apart from those that train."""

from collections.abc import Iterator

from jobs.catalog.algorithm import is_in
from jobs.catalog.spec.runspec import RunSpec
from jobs.catalog.value import Value
from jobs.planner.job import Fleet
from jobs.planner.search.axes import (
    NODE,
    OWN_FRACTIONS,
    SHARED_FRACTIONS,
    Changes,
    across,
    axis,
    generation,
    group_of,
    is_on,
    longest,
    powers,
    row_sizes,
    training_groups,
)
from jobs.planner.search.layout_space import Space
from jobs.planner.shapes.model_shape import ModelShape


def openrlhf_spaces(spec: RunSpec, shape: ModelShape, fleet: Fleet, size: int) -> Iterator[Space]:
    """Yield the placements of a run on `size` devices, with every way to train and to generate."""
    per_node = fleet.devices_per_node
    if not is_in(spec.algorithm, "rl"):
        devices = min(size, per_node)  # its supervised trainers are started on one node
        train = _ways_to_train(spec, shape, devices, is_shared=False)
        yield Space(placement=group_of("policy", devices, per_node), ways_to_train=train, ways_to_generate=({},))
        return
    roles = ("policy", "reference", "critic", "reward")
    if not is_on(spec, "async.enable"):
        placement: dict[str, Value] = {"placement.colocate_all": True, "rollout.sleep": True}
        for role in roles:
            placement |= group_of(role, size, per_node)
        generate = tuple(
            {**way, "placement.rollout_engines": size // int(str(way["placement.rollout_tensor_parallel"]))}
            for way in generation(shape, size, SHARED_FRACTIONS)
        )
        train = _ways_to_train(spec, shape, size, is_shared=True)
        yield Space(placement=placement, ways_to_train=train, ways_to_generate=generate)
    groups = 2 if spec.needs("critic") else 1
    for group in training_groups(size, groups, per_node):
        engines = size - group * groups
        placement = {
            "placement.colocate_all": False,
            "rollout.sleep": False,
            "placement.colocate_policy_reference": True,
            "placement.colocate_critic_reward": groups == 2,
        }
        for role in roles:
            placement |= group_of(role, group, per_node)
        generate = tuple(
            {**way, "placement.rollout_engines": engines // int(str(way["placement.rollout_tensor_parallel"]))}
            for way in generation(shape, engines, OWN_FRACTIONS)
        )
        train = _ways_to_train(spec, shape, group, is_shared=False)
        yield Space(placement=placement, ways_to_train=train, ways_to_generate=generate)


def _ways_to_train(spec: RunSpec, shape: ModelShape, devices: int, *, is_shared: bool) -> tuple[Changes, ...]:
    rings: tuple[int, ...] = (1,)
    if is_on(spec, "train.packing") and longest(spec) >= 4096:
        rings = tuple(n for n in powers(min(devices, NODE)) if shape.heads % n == 0)
    ways: list[Changes] = []
    for ring in rings:
        ranks = devices // ring
        ways += across(
            ({"parallel.sequence_parallel_size": ring},),
            axis("memory.zero_stage", ("2", "3")),
            (
                {"memory.adam_offload": False, "memory.reference_offload": False, "memory.reward_offload": False},
                {"memory.adam_offload": False, "memory.reference_offload": True, "memory.reward_offload": True},
                {"memory.adam_offload": True, "memory.reference_offload": True, "memory.reward_offload": True},
            ),
            axis("memory.gradient_checkpointing", (True, False)),
            row_sizes(spec, ranks, ring),
        )
    for way in ways:
        # It has it for ZeRO 3, and not beside an optimizer that is on the host already.
        sleeps = is_shared and way["memory.zero_stage"] == "3" and not way["memory.adam_offload"]
        way["memory.trainer_sleep"] = sleeps  # type: ignore[index]
    return tuple(ways)
