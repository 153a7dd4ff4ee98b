"""verl's layouts: FSDP or Megatron on one pool, or rollouts on a pool of their own."""

from collections.abc import Iterator
from itertools import product

from jobs.catalog.algorithm import is_in
from jobs.catalog.spec.runspec import RunSpec
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
    last_stage,
    longest,
    powers,
    row_sizes,
    stage_counts,
    text_of,
    training_groups,
)
from jobs.planner.search.layout_space import Space
from jobs.planner.shapes.model_shape import ModelShape


def verl_spaces(spec: RunSpec, shape: ModelShape, fleet: Fleet, size: int) -> Iterator[Space]:
    """Yield the placements of a run on `size` devices, with every way to train and to generate."""
    per_node = fleet.devices_per_node
    if not is_in(spec.algorithm, "rl"):
        yield Space(
            placement=group_of("policy", size, per_node),
            ways_to_train=_ways_to_train(spec, shape, size),
            ways_to_generate=({},),
        )
        return
    if text_of(spec, "async.mode") != "separate":
        yield Space(
            placement=group_of("policy", size, per_node),
            ways_to_train=_ways_to_train(spec, shape, size),
            ways_to_generate=generation(shape, size, SHARED_FRACTIONS),
        )
        return
    for group in training_groups(size, 1, per_node):
        if size - group > per_node and (size - group) % per_node:
            continue  # a pool takes a part of one node, or whole nodes
        yield Space(
            placement={**group_of("policy", group, per_node), **group_of("rollout", size - group, per_node)},
            ways_to_train=_ways_to_train(spec, shape, group),
            ways_to_generate=generation(shape, size - group, OWN_FRACTIONS),
        )


def _ways_to_train(spec: RunSpec, shape: ModelShape, devices: int) -> tuple[Changes, ...]:
    is_megatron = text_of(spec, "parallel.engine") == "megatron"
    return tuple(_megatron_train(spec, shape, devices) if is_megatron else _fsdp_train(spec, shape, devices))


def _fsdp_train(spec: RunSpec, shape: ModelShape, devices: int) -> Iterator[Changes]:
    sizes: tuple[int, ...] = (1,)
    if is_on(spec, "train.packing"):
        sizes = tuple(n for n in powers(min(devices, NODE)) if shape.heads % n == 0)
    offloads: list[Changes] = [
        _fsdp_offload(params=False, optimizer=False),
        _fsdp_offload(params=True, optimizer=True),
    ]
    if text_of(spec, "parallel.fsdp_version") == "2":
        offloads.append({**offloads[0], "memory.cpu_offload_policy": True})
    for size in sizes:
        yield from across(
            ({"parallel.sequence_parallel_size": size},),
            tuple(offloads),
            axis("memory.gradient_checkpointing", (True, False)),
            row_sizes(spec, devices // size, size),
        )


def _fsdp_offload(*, params: bool, optimizer: bool) -> Changes:
    return {
        "memory.cpu_offload_policy": False,
        "memory.param_offload": params,
        "memory.optimizer_offload": optimizer,
        "memory.critic_param_offload": params,
        "memory.critic_optimizer_offload": optimizer,
    }


_MEGATRON_OFFLOADS: tuple[Changes, ...] = (
    {
        "memory.megatron_param_offload": False,
        "memory.megatron_optimizer_offload": False,
        "memory.megatron_cpu_optimizer": False,
    },
    {
        "memory.megatron_param_offload": True,
        "memory.megatron_optimizer_offload": True,
        "memory.megatron_cpu_optimizer": False,
    },
    {
        "memory.megatron_param_offload": True,
        "memory.megatron_optimizer_offload": False,
        "memory.megatron_cpu_optimizer": True,
        "memory.megatron_cpu_optimizer_share": 1.0,
    },
)
_MEGATRON_RECOMPUTE: tuple[Changes, ...] = (
    {"memory.megatron_recompute": "none"},
    {
        "memory.megatron_recompute": "full",
        "memory.megatron_recompute_method": "uniform",
        "memory.megatron_recompute_layers": 1,
    },
)


def _megatron_train(spec: RunSpec, shape: ModelShape, devices: int) -> Iterator[Changes]:
    for tensor, pipeline, context, expert in product(
        powers(min(devices, NODE)),
        stage_counts(shape, devices),
        powers(min(devices, 4)),
        _expert_sizes(shape, devices),
    ):
        degree = tensor * pipeline * context
        if devices % degree or (context > 1 and longest(spec) < 8192):
            continue
        sizes: Changes = {
            "parallel.tensor_parallel_size": tensor,
            "parallel.pipeline_parallel_size": pipeline,
            "parallel.context_parallel_size": context,
            "parallel.expert_parallel_size": expert,
            "parallel.expert_tensor_parallel_size": 1 if expert > 1 else None,
            **_end_stages(shape, pipeline),
        }
        ranks = devices // degree
        yield from across((sizes,), _MEGATRON_OFFLOADS, _MEGATRON_RECOMPUTE, row_sizes(spec, ranks, context)[:2])


def _expert_sizes(shape: ModelShape, devices: int) -> tuple[int, ...]:
    if not shape.experts:
        return (1,)
    return tuple(n for n in (1, *powers(min(devices, 64), least=4)) if shape.experts % n == 0)


def _end_stages(shape: ModelShape, pipeline: int) -> Changes:
    """Return the layers of the last stage where the others cannot all hold as many; none where they can."""
    return {
        "parallel.virtual_pipeline_stages": None,
        "parallel.count_embedding_as_layer": False,
        "parallel.count_loss_as_layer": False,
        "parallel.first_stage_layers": None,
        "parallel.last_stage_layers": last_stage(shape.num_layers, pipeline) or None,
    }
