"""The axes of a layout search: values of one or more knobs, and what every trainer's layouts are made of.

A way to train or to generate is one entry of each axis (`across`). Ways to train and to generate do not touch each
other's knobs.
"""

from collections.abc import Iterator, Mapping
from itertools import product

from jobs.catalog.algorithm import is_in
from jobs.catalog.spec.runspec import RunSpec
from jobs.catalog.value import Value
from jobs.planner.read.context import samples_per_update
from jobs.planner.shapes.model_shape import ModelShape

Changes = Mapping[str, Value]

SHARED_FRACTIONS = (0.4, 0.5, 0.6, 0.7, 0.8)
"""Fractions of device memory that an engine is tried with beside a trainer, and on devices of its own."""

OWN_FRACTIONS = (0.85, 0.92)
NODE = 8
"""Devices that share a layer at most: no published layout has more."""

_MOST_MICRO = 32


def powers(most: int, *, least: int = 1) -> tuple[int, ...]:
    """Return the powers of two from `least` to `most`."""
    sizes, size = [], least
    while size <= most:
        sizes.append(size)
        size *= 2
    return tuple(sizes)


def stage_counts(shape: ModelShape, devices: int) -> tuple[int, ...]:
    """Return the numbers of pipeline stages that so many devices divide into."""
    return tuple(n for n in (1, 2, 3, 4, 6, 8, 12, 16) if devices % n == 0 and n <= shape.num_layers)


def last_stage(layers: int, stages: int) -> int | None:
    """Return the layers of the last stage where the others cannot all hold as many, 0 where they can; None where it
    would hold none."""
    if layers % stages == 0:
        return 0
    for each in (-(-layers // stages), layers // stages):
        if (left := layers - each * (stages - 1)) > 0:
            return left
    return None


def across(*axes: tuple[Changes, ...]) -> Iterator[Changes]:
    """Yield every combination of one entry per axis."""
    for combination in product(*axes):
        merged: dict[str, Value] = {}
        for part in combination:
            merged |= part
        yield merged


def axis(name: str, values: tuple[Value, ...]) -> tuple[Changes, ...]:
    """Return an entry for each value of one knob."""
    return tuple({name: value} for value in values)


def micro_batches(samples: int, ranks: int) -> tuple[int, ...]:
    """Return micro-batches that make whole updates on every rank."""
    each = max(samples // max(ranks, 1), 1)
    return tuple(size for size in powers(_MOST_MICRO) if each % size == 0) or (1,)


def row_sizes(spec: RunSpec, ranks: int, degree: int) -> tuple[Changes, ...]:
    """Return the sizes of micro-batches: in samples, or in tokens of a device where the run fills them by tokens."""
    if not is_on(spec, "train.dynamic_batch"):
        return axis("train.micro_batch_size", micro_batches(samples_per_update(spec), ranks))
    least = -(-longest(spec) // degree)
    chosen = spec.int_knob("train.max_tokens_per_gpu")
    budgets = {least * factor for factor in (1, 2, 4)} | ({chosen} if chosen >= least else set())
    return axis("train.max_tokens_per_gpu", tuple(sorted(budgets)))


def longest(spec: RunSpec) -> int:
    """Return the tokens of the longest sample, prompt and response together."""
    if is_in(spec.algorithm, "rl"):
        return spec.int_knob("rollout.max_prompt_tokens") + spec.int_knob("rollout.max_new_tokens")
    return spec.int_knob("train.max_sequence_tokens")


def is_on(spec: RunSpec, knob_id: str) -> bool:
    """Return True if the run has a knob and it is on."""
    chosen = spec.knobs.get(knob_id)
    return chosen is not None and bool(chosen.value)


def text_of(spec: RunSpec, knob_id: str) -> str:
    """Return a knob's value as text, "" if the run does not have it."""
    chosen = spec.knobs.get(knob_id)
    return "" if chosen is None else str(chosen.value)


def group_of(role: str, devices: int, per_node: int) -> Changes:
    """Return nodes and devices per node of a group; a group larger than a node takes whole nodes."""
    nodes = max(devices // per_node, 1)
    return {f"placement.{role}_nodes": nodes, f"placement.{role}_gpus_per_node": devices // nodes}


def engine_sizes(shape: ModelShape, pool: int) -> tuple[int, ...]:
    """Return how many devices an engine may take: those of a node, and more where weights need it."""
    return tuple(size for size in powers(min(pool, 4 * NODE)) if shape.heads % size == 0)


def generation(shape: ModelShape, pool: int, fractions: tuple[float, ...]) -> tuple[Changes, ...]:
    """Return the ways to generate on a pool: devices of an engine, and its fraction of their memory."""
    return tuple(
        across(
            axis("placement.rollout_tensor_parallel", engine_sizes(shape, pool)),
            axis("rollout.gpu_memory_fraction", fractions),
        )
    )


def training_groups(size: int, groups: int, per_node: int) -> tuple[int, ...]:
    """Return sizes of a training group that leave devices to generate: powers of two, or whole nodes."""
    most = (size - 1) // groups
    whole = {nodes * per_node for nodes in powers(most // per_node)} if most >= per_node else set()
    shares = {size * share // (8 * groups) for share in (4, 6)}
    small = {n for n in powers(most) if n <= per_node and n * groups * 4 >= size}
    return tuple(sorted(n for n in whole | small | shares if 0 < n <= most and (n <= per_node or n % per_node == 0)))
