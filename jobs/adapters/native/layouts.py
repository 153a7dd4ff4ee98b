"""The built-in trainer's layouts: every role on devices of its own, or reference and critic in the policy's ranks."""

from collections.abc import Iterator

from jobs.catalog.algorithm import is_in
from jobs.catalog.role import roles_of
from jobs.catalog.spec.runspec import RunSpec
from jobs.planner.job import Fleet
from jobs.planner.read.context import samples_per_update
from jobs.planner.search.axes import OWN_FRACTIONS, Changes, across, axis, engine_sizes, row_sizes
from jobs.planner.search.layout_space import Space
from jobs.planner.shapes.model_shape import ModelShape


def native_spaces(spec: RunSpec, shape: ModelShape, fleet: Fleet, size: int) -> Iterator[Space]:
    """Yield the placements of a run on `size` devices, with every way to train and to generate.

    Colocated only where no device is left for an engine: how fast ranks draw on a GPU has not been measured.
    """
    is_rl = is_in(spec.algorithm, "rl")
    has_guests = any(map(spec.needs, ("reference", "critic", "teacher", "reward")))
    layouts = ("colocated",) if size == 1 else ("split", "shared") if has_guests else ("split",)
    for layout in layouts if is_rl else ("",):
        yield from _spaces(spec, shape, fleet, size, layout=layout)


def _spaces(spec: RunSpec, shape: ModelShape, fleet: Fleet, size: int, *, layout: str) -> Iterator[Space]:
    samples = samples_per_update(spec)
    is_rl = bool(layout)
    roles = tuple(roles_of(spec))
    is_colocated = layout == "colocated"
    apart = sum(not role.is_trained and not role.generates for role in roles) if layout == "split" else 0
    rest = size - apart
    groups = sum(role.is_trained for role in roles) if layout == "split" else 1
    most = rest // groups - (is_rl and not is_colocated)  # an engine has a device of its own
    ranks = [r for r in range(1, most + 1) if samples % r == 0 and (r <= 16 or r % 8 == 0)]
    for count in ranks:
        train = tuple(
            across(
                axis("memory.zero_stage", ("0", "1", "2", "3")[: 4 - is_colocated] if count > 1 else ("0",)),
                axis("memory.gradient_checkpointing", (False, True)),
                row_sizes(spec, count, 1),
            )
        )
        if not is_rl or is_colocated:
            placement: Changes = {"hardware.policy_ranks": count} | ({"hardware.layout": layout} if is_rl else {})
            yield Space(placement=placement, ways_to_train=train, ways_to_generate=({},))
            continue
        for tensor in engine_sizes(shape, min(rest - groups * count, fleet.devices_per_node)):
            engines = (rest - groups * count) // tensor
            yield Space(
                placement={
                    "hardware.layout": layout,
                    "hardware.policy_ranks": count,
                    "hardware.rollout_engines": engines,
                    "hardware.tensor_parallel_size": tensor,
                },
                ways_to_train=train,
                ways_to_generate=axis("rollout.gpu_memory_fraction", OWN_FRACTIONS),
            )
