"""What a job must be before it is estimated: every number finite and in its range, and sizes that divide.

Each refusal is a JobInvalid with the field's path in the job and a sentence: what stands there, what is allowed.
"""

import dataclasses
from collections.abc import Callable, Iterator
from functools import cache, partial
from types import NoneType, UnionType
from typing import Literal, get_args, get_origin, get_type_hints

from jobs.catalog.sentence import Sentence
from jobs.planner.job import Fleet, FrozenModel, Job, Layout, Lengths, Offload, Rollouts, Training
from jobs.planner.result import JobInvalid
from jobs.planner.serving.engine_memory import validate_engine
from jobs.planner.shapes.model_shape import ModelShape

_MOST = 10**12
# Ranges of the numbers of a job by class and field: least, most. Everything else of a number's type is 0 to _MOST.
_RANGES: dict[tuple[type, str], tuple[float, float]] = {
    (Fleet, "num_devices"): (1, 10**6),
    (Fleet, "devices_per_node"): (1, 1024),
    (Fleet, "host_bytes"): (0, 10**14),
    (Fleet, "shm_bytes"): (0, 10**14),
    (Fleet, "price"): (0, 10**6),
    (Layout, "num_devices"): (1, 10**6),
    (Layout, "shards"): (0, 3),
    (Training, "micro_batch"): (1, 10**6),
    (Training, "sequence"): (1, 10**8),
    (Training, "document"): (0, 10**8),
    (Training, "num_micro_batches"): (1, 10**7),
    (Training, "weight_bytes"): (0.25, 8),
    (Training, "base_bytes"): (0.25, 8),
    (Training, "gradient_bytes"): (0.25, 8),
    (Training, "reduced_bytes"): (0, 8),
    (Training, "logit_bytes"): (0, 64),
    (Training, "scored_logit_bytes"): (0, 64),
    (Training, "lora_rank"): (0, 65536),
    (Training, "adapter_parameters"): (0, 10**13),
    (Training, "bucket_bytes"): (0, 10**12),
    (Offload, "optimizer"): (0, 1),
    (FrozenModel, "weight_bytes"): (0, 8),
    (FrozenModel, "micro_batch"): (1, 10**6),
    (FrozenModel, "sequence"): (1, 10**8),
    (Rollouts, "prompts"): (1, 10**8),
    (Rollouts, "samples_per_prompt"): (1, 10**6),
    (Rollouts, "epochs"): (1, 10**4),
    (Rollouts, "updates"): (1, 10**6),
    (Rollouts, "generations"): (1, 10**4),
    (Rollouts, "score_micro_batch"): (0, 10**6),
    (Rollouts, "score_sequence"): (0, 10**8),
    (Rollouts, "reward_seconds"): (0, 10**7),
    (Lengths, "max_prompt"): (1, 10**8),
    (Lengths, "max_response"): (1, 10**8),
    (Lengths, "spread"): (0, 5),
    (Job, "staleness"): (0, 10**4),
}
_SIZES = ("tensor", "pipeline", "virtual", "context", "ulysses", "expert", "expert_tensor")


def validate(job: Job, checked: dict[int, object] | None = None) -> None:
    """Raise JobInvalid, naming the field, for a job that cannot be estimated or cannot be laid out.

    `checked`: parts, by their identity, that were good before and are not looked at again; good ones are added.
    """
    checked = {} if checked is None else checked
    _numbers(job, "")
    for part, check in _parts(job):
        if checked.get(id(part)) is not part:
            check()
            checked[id(part)] = part
    _devices(job)


def _parts(job: Job) -> Iterator[tuple[object, Callable[[], None]]]:
    """Yield the parts of a job, each with its own check."""
    yield job.fleet, lambda: _numbers(job.fleet, "fleet.")
    for name, trained in (("policy", job.policy), ("critic", job.critic)):
        if trained is not None:
            yield trained, partial(_training, trained, f"{name}.")
    for index, frozen in enumerate(job.frozen):
        yield frozen, partial(_frozen, frozen, f"frozen[{index}].")
    if job.rollouts is not None:
        yield job.rollouts, partial(_rollouts, job.rollouts)
    if job.engine is not None:
        yield job.engine, partial(validate_engine, job.engine)


def _frozen(frozen: FrozenModel, where: str) -> None:
    _numbers(frozen, where)
    _layout(frozen.layout, frozen.model, f"{where}layout.")


def _training(training: Training, where: str) -> None:
    _numbers(training, where)
    _numbers(training.offload, f"{where}offload.")
    _layout(training.layout, training.model, f"{where}layout.")
    if training.method != "full" and not (training.lora_rank or training.adapter_parameters):
        raise _invalid(f"{where}lora_rank", training.lora_rank, Sentence("a whole number from 1 with LoRA"))


def _rollouts(rollouts: Rollouts) -> None:
    _numbers(rollouts, "rollouts.")
    _numbers(rollouts.lengths, "rollouts.lengths.")
    lengths = rollouts.lengths
    for name, most in (("mean_prompt", lengths.max_prompt), ("mean_response", lengths.max_response)):
        value = getattr(lengths, name)
        if value > most:
            raise _invalid(
                f"rollouts.lengths.{name}", value, Sentence("a number from 0 (unknown) to {most}", most=most)
            )


def _layout(layout: Layout, model: ModelShape, where: str) -> None:
    _numbers(layout, where)
    for name in _SIZES:
        if getattr(layout, name) < 1:
            raise _invalid(f"{where}{name}", getattr(layout, name), Sentence("a whole number from 1"))
    for field, allowed in _misfits(layout, model):
        raise _invalid(f"{where}{field}", getattr(layout, field), allowed)


def _misfits(layout: Layout, model: ModelShape) -> Iterator[tuple[str, str]]:
    """Yield fields of a layout that do not suit its devices or the model, each with what is allowed."""
    heads, groups = model.heads, model.kv_heads
    for name in ("tensor", "ulysses"):
        size = getattr(layout, name)
        if heads % size:
            yield name, Sentence("a number that divides the {heads} attention heads of the model", heads=heads)
        if model.attention_kind == "gqa" and groups % size and size % groups:
            yield (
                name,
                Sentence("a divisor or a multiple of the model's {groups} heads of keys and values", groups=groups),
            )
    if model.mlp_width % layout.tensor:
        yield (
            "tensor",
            Sentence("a number that divides the width {mlp_width} of the model's layers", mlp_width=model.mlp_width),
        )
    ends = layout.first_stage_layers + layout.last_stage_layers
    between = layout.pipeline - bool(layout.first_stage_layers) - bool(layout.last_stage_layers)
    # Ends that are set may count embedding and loss as layers (Megatron, account_for_embedding_in_pipeline_split).
    counted = model.num_layers + bool(layout.first_stage_layers) + bool(layout.last_stage_layers)
    if layout.pipeline * layout.virtual > counted:
        field = "virtual" if layout.virtual > 1 and layout.pipeline <= model.num_layers else "pipeline"
        yield (
            field,
            Sentence(
                "so few that each stage and chunk has one of the model's {num_layers} layers",
                num_layers=model.num_layers,
            ),
        )
    is_uneven = ends > model.num_layers - max(between, 0) or (not between and ends != model.num_layers)
    if layout.pipeline > 1 and is_uneven:
        yield (
            "first_stage_layers",
            Sentence("so few that the {num_layers} layers are divided among all stages", num_layers=model.num_layers),
        )
    if layout.expert > 1 and (not model.experts or model.experts % layout.expert):
        divides = Sentence("a number that divides the {experts} experts", experts=model.experts)
        yield "expert", divides if model.experts else Sentence("1: the model has no experts")
    if layout.expert_tensor > 1 and (not model.experts or model.expert_width % layout.expert_tensor):
        yield (
            "expert_tensor",
            Sentence(
                "1, or a number that divides the width {expert_width} of an expert", expert_width=model.expert_width
            ),
        )
    for name in ("tensor", "pipeline", "context", "ulysses"):
        if layout.num_devices % getattr(layout, name):
            yield (
                name,
                Sentence(
                    "a number that divides the devices of the group, {num_devices}", num_devices=layout.num_devices
                ),
            )
    whole = layout.tensor * layout.pipeline * layout.context * layout.ulysses
    if layout.num_devices % whole:
        yield (
            "num_devices",
            Sentence("a multiple of {whole}, the product of tensor, pipeline, context and ulysses", whole=whole),
        )
    stage = layout.num_devices // layout.pipeline
    if stage % (layout.expert * layout.expert_tensor):
        yield (
            "expert",
            Sentence("sizes whose product with expert_tensor divides the devices of a stage, {stage}", stage=stage),
        )
    if layout.shard_group and layout.num_devices % layout.shard_group:
        yield (
            "shard_group",
            Sentence(
                "0, or a number that divides the devices of the group, {num_devices}", num_devices=layout.num_devices
            ),
        )


def _devices(job: Job) -> None:
    total = job.fleet.num_devices
    if job.policy.layout.num_devices > total:
        allowed = Sentence("at most the devices of the fleet, {total}", total=total)
        raise _invalid("policy.layout.num_devices", job.policy.layout.num_devices, allowed)
    if job.placement == "split" and job.engine is not None:
        needed = job.policy.layout.num_devices + job.engine_devices
        if needed > total:
            allowed = Sentence(
                "at most {most}: the fleet has {total} devices",
                most=total - job.policy.layout.num_devices,
                total=total,
            )
            raise _invalid("engine_devices", job.engine_devices, allowed)
    if job.engine is not None:
        pool = job.engine_devices if job.placement == "split" else job.policy.layout.num_devices
        used = job.engine.num_engines * job.engine.tensor * job.engine.pipeline
        if used > pool:
            each = job.engine.tensor * job.engine.pipeline
            allowed = Sentence(
                "at most {most}: each takes {each} of {pool} devices", most=pool // each, each=each, pool=pool
            )
            raise _invalid("engine.num_engines", job.engine.num_engines, allowed)


@dataclasses.dataclass(frozen=True, slots=True)
class _Check:
    """What a field of a job may be: a number from `low` to `high` (a whole one), or one of some words."""

    name: str
    is_whole: bool
    is_optional: bool
    low: float
    high: float
    words: tuple[object, ...]


@cache
def _checks(part: type[object]) -> tuple[_Check, ...]:
    checks = []
    for name, hint in get_type_hints(part).items():
        kinds = set(get_args(hint)) if get_origin(hint) is UnionType else {hint}
        words = get_args(hint) if get_origin(hint) is Literal else ()
        if kinds & {int, float} or words or hint is bool:
            low, high = _RANGES.get((part, name), (0, _MOST))
            checks.append(
                _Check(
                    name=name,
                    is_whole=int in kinds,
                    is_optional=NoneType in kinds,
                    low=low,
                    high=high,
                    words=(True, False) if hint is bool else words,
                )
            )
    return tuple(checks)


def _numbers(part: object, where: str) -> None:
    """Refuse numbers that are not finite, of the wrong type or out of their range, and words that are not known."""
    for check in _checks(type(part)):  # type: ignore[arg-type]
        value = getattr(part, check.name)
        if check.words:
            if not isinstance(value, str | bool) or value not in check.words:
                raise _invalid(f"{where}{check.name}", value, ", ".join(map(str, check.words)))
            continue
        if check.is_optional and value is None:
            continue
        good = isinstance(value, int) if check.is_whole else isinstance(value, int | float)
        if isinstance(value, bool) or not good or not check.low <= value <= check.high:
            low, high = check.low, check.high
            number = Sentence("a number from {low:,g} to {high:,g}", low=low, high=high)
            whole = Sentence("a whole number from {low:,g} to {high:,g}", low=low, high=high)
            raise _invalid(f"{where}{check.name}", value, whole if check.is_whole else number)


def _invalid(field: str, value: object, allowed: str) -> JobInvalid:
    return JobInvalid(
        field,
        Sentence("{value!r} is not allowed for {field}. Use {allowed}.", value=value, field=field, allowed=allowed),
    )
