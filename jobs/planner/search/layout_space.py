"""The layouts that a search looks at, as changes to the knobs of a run, per trainer.

A layout is a placement (who gets how many devices), a way to train and a way to generate. Ways to train and to
generate do not touch each other's knobs, so that a search may estimate each of them once per placement. Nothing here
changes what is learned (jobs.planner.search.tunable_knobs).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product

from jobs.catalog.algorithm import is_in
from jobs.catalog.runspec import RunSpec
from jobs.catalog.value import Value
from jobs.planner.job import Fleet
from jobs.planner.read.context import samples_per_update
from jobs.planner.shapes.model_shape import ModelShape

Changes = Mapping[str, Value]

_MOST_MICRO = 32
_SHARED_FRACTIONS = (0.4, 0.5, 0.6, 0.7, 0.8)
_OWN_FRACTIONS = (0.85, 0.92)
_NODE = 8  # no published layout shares a layer among more devices


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """One placement: its own changes, and every way to train and to generate in it."""

    placement: Changes
    ways_to_train: tuple[Changes, ...]
    ways_to_generate: tuple[Changes, ...]

    @property
    def size(self) -> int:
        """The layouts of this placement."""
        return len(self.ways_to_train) * len(self.ways_to_generate)


def spaces_of(spec: RunSpec, shape: ModelShape, fleet: Fleet, *, sizes: tuple[int, ...]) -> tuple[Space, ...]:
    """Return the placements of a run on each of `sizes` devices of the fleet. A knob that the run lacks is left out."""
    makers = {"native": _native, "openrlhf": _openrlhf, "verl": _verl}
    here = spec.knobs
    found = []
    for size in sizes:
        for space in makers[spec.trainer.name](spec, shape, fleet, size):
            found.append(
                Space(
                    placement=_applicable(space.placement, here),
                    ways_to_train=_distinct(_applicable(c, here) for c in space.ways_to_train),
                    ways_to_generate=_distinct(_applicable(c, here) for c in space.ways_to_generate),
                )
            )
    return tuple(found)


def powers(most: int, *, least: int = 1) -> tuple[int, ...]:
    """Return the powers of two from `least` to `most`."""
    found, size = [], least
    while size <= most:
        found.append(size)
        size *= 2
    return tuple(found)


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


def _applicable(changes: Changes, here: Mapping[str, object]) -> Changes:
    return {name: value for name, value in changes.items() if name in here or name.startswith("hardware.")}


def _distinct(many: Iterator[Changes]) -> tuple[Changes, ...]:
    found = {tuple(sorted(each.items(), key=lambda item: item[0])): each for each in many}
    return tuple(found.values())


def _across(*axes: tuple[Changes, ...]) -> Iterator[Changes]:
    """Yield every combination of one entry per axis."""
    for combination in product(*axes):
        merged: dict[str, Value] = {}
        for part in combination:
            merged |= part
        yield merged


def _axis(name: str, values: tuple[Value, ...]) -> tuple[Changes, ...]:
    return tuple({name: value} for value in values)


def _micro_batches(samples: int, ranks: int) -> tuple[int, ...]:
    """Return micro-batches that make whole updates on every rank."""
    each = max(samples // max(ranks, 1), 1)
    return tuple(size for size in powers(_MOST_MICRO) if each % size == 0) or (1,)


def _rows(spec: RunSpec, ranks: int, degree: int) -> tuple[Changes, ...]:
    """Return the sizes of micro-batches: in samples, or in tokens of a device where the run fills them by tokens."""
    if not _is_on(spec, "train.dynamic_batch"):
        return _axis("train.micro_batch_size", _micro_batches(samples_per_update(spec), ranks))
    longest = _longest(spec)
    least = -(-longest // degree)
    chosen = spec.int_knob("train.max_tokens_per_gpu")
    budgets = {least * factor for factor in (1, 2, 4)} | ({chosen} if chosen >= least else set())
    return _axis("train.max_tokens_per_gpu", tuple(sorted(budgets)))


def _longest(spec: RunSpec) -> int:
    if is_in(spec.algorithm, "rl"):
        return spec.int_knob("rollout.max_prompt_tokens") + spec.int_knob("rollout.max_new_tokens")
    return spec.int_knob("train.max_sequence_tokens")


def _is_on(spec: RunSpec, knob_id: str) -> bool:
    chosen = spec.knobs.get(knob_id)
    return chosen is not None and bool(chosen.value)


def _text(spec: RunSpec, knob_id: str) -> str:
    chosen = spec.knobs.get(knob_id)
    return "" if chosen is None else str(chosen.value)


def _nodes(role: str, devices: int, per_node: int) -> Changes:
    """Return nodes and devices per node of a group; a group larger than a node takes whole nodes."""
    nodes = max(devices // per_node, 1)
    return {f"placement.{role}_nodes": nodes, f"placement.{role}_gpus_per_node": devices // nodes}


def _tensors(shape: ModelShape, pool: int) -> tuple[int, ...]:
    """Return how many devices an engine may take: those of a node, and more where weights need it."""
    return tuple(size for size in powers(min(pool, 4 * _NODE)) if shape.heads % size == 0)


def _generation(shape: ModelShape, pool: int, fractions: tuple[float, ...]) -> tuple[Changes, ...]:
    return tuple(
        _across(
            _axis("placement.rollout_tensor_parallel", _tensors(shape, pool)),
            _axis("rollout.gpu_memory_fraction", fractions),
        )
    )


# -- the built-in trainer: every role on devices of its own --


def _native(spec: RunSpec, shape: ModelShape, fleet: Fleet, size: int) -> Iterator[Space]:
    is_rl = is_in(spec.algorithm, "rl")
    samples = samples_per_update(spec)
    rest = size - int(spec.needs_reference)
    ranks = [r for r in range(1, rest + (not is_rl)) if samples % r == 0 and (r <= 16 or r % 8 == 0)]
    for count in ranks:
        train = tuple(
            _across(
                _axis("memory.zero_stage", ("0", "1", "2", "3") if count > 1 else ("0",)),
                _axis("memory.gradient_checkpointing", (False, True)),
                _axis("train.micro_batch_size", _micro_batches(samples, count)),
            )
        )
        if not is_rl:
            yield Space(placement={"hardware.policy_ranks": count}, ways_to_train=train, ways_to_generate=({},))
            continue
        for tensor in _tensors(shape, min(rest - count, fleet.devices_per_node)):
            engines = (rest - count) // tensor
            yield Space(
                placement={
                    "hardware.policy_ranks": count,
                    "hardware.rollout_engines": engines,
                    "hardware.tensor_parallel_size": tensor,
                },
                ways_to_train=train,
                ways_to_generate=_axis("rollout.gpu_memory_fraction", _OWN_FRACTIONS),
            )


# -- OpenRLHF --


def _openrlhf(spec: RunSpec, shape: ModelShape, fleet: Fleet, size: int) -> Iterator[Space]:
    per_node = fleet.devices_per_node
    if not is_in(spec.algorithm, "rl"):
        devices = min(size, per_node)  # its supervised trainers are started on one node
        train = _openrlhf_train(spec, shape, devices, is_shared=False)
        yield Space(placement=_nodes("policy", devices, per_node), ways_to_train=train, ways_to_generate=({},))
        return
    roles = ("policy", "reference", "critic", "reward")
    if not _is_on(spec, "async.enable"):
        placement: dict[str, Value] = {"placement.colocate_all": True, "rollout.sleep": True}
        for role in roles:
            placement |= _nodes(role, size, per_node)
        generate = tuple(
            {**way, "placement.rollout_engines": size // int(str(way["placement.rollout_tensor_parallel"]))}
            for way in _generation(shape, size, _SHARED_FRACTIONS)
        )
        train = _openrlhf_train(spec, shape, size, is_shared=True)
        yield Space(placement=placement, ways_to_train=train, ways_to_generate=generate)
    groups = 2 if is_in(spec.algorithm, "critic") else 1
    for group in _halves(size, groups, per_node):
        engines = size - group * groups
        placement = {
            "placement.colocate_all": False,
            "rollout.sleep": False,
            "placement.colocate_policy_reference": True,
            "placement.colocate_critic_reward": groups == 2,
        }
        for role in roles:
            placement |= _nodes(role, group, per_node)
        generate = tuple(
            {**way, "placement.rollout_engines": engines // int(str(way["placement.rollout_tensor_parallel"]))}
            for way in _generation(shape, engines, _OWN_FRACTIONS)
        )
        train = _openrlhf_train(spec, shape, group, is_shared=False)
        yield Space(placement=placement, ways_to_train=train, ways_to_generate=generate)


def _halves(size: int, groups: int, per_node: int) -> tuple[int, ...]:
    """Return sizes of a training group that leave devices to generate: powers of two, or whole nodes."""
    most = (size - 1) // groups
    whole = {nodes * per_node for nodes in powers(most // per_node)} if most >= per_node else set()
    shares = {size * share // (8 * groups) for share in (4, 6)}
    small = {n for n in powers(most) if n <= per_node and n * groups * 4 >= size}
    return tuple(sorted(n for n in whole | small | shares if 0 < n <= most and (n <= per_node or n % per_node == 0)))


def _openrlhf_train(spec: RunSpec, shape: ModelShape, devices: int, *, is_shared: bool) -> tuple[Changes, ...]:
    rings: tuple[int, ...] = (1,)
    if _is_on(spec, "train.packing") and _longest(spec) >= 4096:
        rings = tuple(n for n in powers(min(devices, _NODE)) if shape.heads % n == 0)
    found: list[Changes] = []
    for ring in rings:
        ranks = devices // ring
        found += _across(
            ({"parallel.sequence_parallel_size": ring},),
            _axis("memory.zero_stage", ("2", "3")),
            (
                {"memory.adam_offload": False, "memory.reference_offload": False, "memory.reward_offload": False},
                {"memory.adam_offload": False, "memory.reference_offload": True, "memory.reward_offload": True},
                {"memory.adam_offload": True, "memory.reference_offload": True, "memory.reward_offload": True},
            ),
            _axis("memory.gradient_checkpointing", (True, False)),
            _rows(spec, ranks, ring),
        )
    for way in found:
        # It has it for ZeRO 3, and not beside an optimizer that is on the host already.
        sleeps = is_shared and way["memory.zero_stage"] == "3" and not way["memory.adam_offload"]
        way["memory.trainer_sleep"] = sleeps  # type: ignore[index]
    return tuple(found)


# -- verl --


def _verl(spec: RunSpec, shape: ModelShape, fleet: Fleet, size: int) -> Iterator[Space]:
    per_node = fleet.devices_per_node
    if not is_in(spec.algorithm, "rl"):
        yield Space(
            placement=_nodes("policy", size, per_node),
            ways_to_train=_verl_train(spec, shape, size),
            ways_to_generate=({},),
        )
        return
    if _text(spec, "async.mode") != "separate":
        yield Space(
            placement=_nodes("policy", size, per_node),
            ways_to_train=_verl_train(spec, shape, size),
            ways_to_generate=_generation(shape, size, _SHARED_FRACTIONS),
        )
        return
    for group in _halves(size, 1, per_node):
        if size - group > per_node and (size - group) % per_node:
            continue  # a pool takes a part of one node, or whole nodes
        yield Space(
            placement={**_nodes("policy", group, per_node), **_nodes("rollout", size - group, per_node)},
            ways_to_train=_verl_train(spec, shape, group),
            ways_to_generate=_generation(shape, size - group, _OWN_FRACTIONS),
        )


def _verl_train(spec: RunSpec, shape: ModelShape, devices: int) -> tuple[Changes, ...]:
    is_megatron = _text(spec, "parallel.engine") == "megatron"
    return tuple(_megatron_train(spec, shape, devices) if is_megatron else _fsdp_train(spec, shape, devices))


def _fsdp_train(spec: RunSpec, shape: ModelShape, devices: int) -> Iterator[Changes]:
    sizes: tuple[int, ...] = (1,)
    if _is_on(spec, "train.packing"):
        sizes = tuple(n for n in powers(min(devices, _NODE)) if shape.heads % n == 0)
    offloads: list[Changes] = [
        _fsdp_offload(params=False, optimizer=False),
        _fsdp_offload(params=True, optimizer=True),
    ]
    if _text(spec, "parallel.fsdp_version") == "2":
        offloads.append({**offloads[0], "memory.cpu_offload_policy": True})
    for size in sizes:
        yield from _across(
            ({"parallel.sequence_parallel_size": size},),
            tuple(offloads),
            _axis("memory.gradient_checkpointing", (True, False)),
            _rows(spec, devices // size, size),
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
        powers(min(devices, _NODE)),
        stage_counts(shape, devices),
        powers(min(devices, 4)),
        _expert_sizes(shape, devices),
    ):
        degree = tensor * pipeline * context
        if devices % degree or (context > 1 and _longest(spec) < 8192):
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
        yield from _across((sizes,), _MEGATRON_OFFLOADS, _MEGATRON_RECOMPUTE, _rows(spec, ranks, context)[:2])


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
