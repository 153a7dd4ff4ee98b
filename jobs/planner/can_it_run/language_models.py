"""Can it run? A model, an accelerator and a method in; yes, no or unknown out, with the fewest devices, and with what
was published for or against it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from jobs.catalog.accelerator import Accelerator
from jobs.catalog.device_table import DeviceRow, rows
from jobs.catalog.sentence import Sentence
from jobs.planner.can_it_run.case import MOST_FITS, LanguageModelCase, TooManyLayouts
from jobs.planner.can_it_run.headline import judged_on, judged_on_any, with_more
from jobs.planner.can_it_run.plans import METHODS, MOST_TENSOR, ON_HOST, Demand, TrainingMethod, world_sizes
from jobs.planner.can_it_run.verdict import (
    ASSUMED_HOST_BYTES,
    MOST_HOURS,
    DeviceNeed,
    FitVerdict,
    HardwareOption,
    PracticalLimit,
    PublishedRun,
    fewest,
    in_order,
    option_of,
)
from jobs.planner.constant import Constants, shipped_constants
from jobs.planner.job import Fleet
from jobs.planner.shapes.model_shape import ModelShape

__all__ = [
    "ASSUMED_HOST_BYTES",
    "MOST_FITS",
    "DeviceNeed",
    "FitVerdict",
    "HardwareOption",
    "PublishedRun",
    "can_it_run",
    "compare_hardware",
]

_SAME_MEMORY = 0.1  # devices whose labels differ by less are taken as equal in memory


def can_it_run(
    shape: ModelShape | None,
    accelerator: Accelerator,
    method: str,
    devices: int | None = None,
    *,
    devices_per_node: int = 8,
    demand: Demand | None = None,
    host_bytes: int = 0,
    within_hours: float | None = None,
    price: float | None = None,
    constants: Constants | None = None,
) -> FitVerdict:
    """Return whether a model can be trained by a method (a key of METHODS) on so many devices, or on any number.

    Yes: it fits, or is tight and yet below the limit, which is said, and it is practical (PracticalLimit): a step is
    within `within_hours`, or, where nobody said how long one may take, within an hour and without wasting devices.
    Possible: it fits, but a step takes longer, or more host memory than is its share, or it trains in pure 16 bits. No:
    nothing that was tried fits, not even with weights and optimizer on the host. Unknown: the shape is not known, no
    engine that is tried holds the weights, or the best layout is above the limit by so little that only a trial tells.

    Where `host_bytes` of a node is not known (0), as much is assumed per device as ASSUMED_HOST_BYTES says, and a
    practical layout takes no more than the share of the devices that it uses. `shape` None stands for a model whose
    config cannot be read. Raises: LookupError for a method that is not known, ValueError for a number of devices or of
    hours that is none.
    """
    if method not in METHODS:
        raise LookupError(
            Sentence("There is no method {method!r}. Use one of {known}.", method=method, known=", ".join(METHODS))
        )
    if devices is not None and (isinstance(devices, bool) or not 1 <= devices <= 65536):
        raise ValueError(Sentence("{devices!r} is not a number of devices. Use 1 to 65,536.", devices=devices))
    if within_hours is not None and not 0 < within_hours <= MOST_HOURS:
        text = "{hours!r} is not allowed for the hours of a step. Use a number above 0, up to {most:,}."
        raise ValueError(Sentence(text, hours=within_hours, most=MOST_HOURS))
    recipe = METHODS[method]
    fleet = Fleet(
        accelerator=accelerator,
        num_devices=devices or 1,
        devices_per_node=devices_per_node,
        host_bytes=host_bytes or ASSUMED_HOST_BYTES * devices_per_node,
        price=price,
    )
    if shape is None:
        return _unknown(Sentence("The shape of the model is not known."), recipe, accelerator, devices)
    case = LanguageModelCase(shape, recipe, fleet, demand or Demand(), constants or shipped_constants())
    if case.lacks_engine:
        text = (
            "No engine that was tried holds its weights in 16 bits: up to {most} devices that divide its {heads} "
            "attention heads. Engines that divide layers or experts, or have weights of 8 bits, are not tried."
        )
        said = Sentence(text, most=MOST_TENSOR, heads=shape.heads)
        return _unknown(said, recipe, accelerator, devices)
    try:
        needs = case.needs()
        least = fewest(needs)
        recommended = case.recommended_soon(least.num_devices if least is not None else None)
        limit = PracticalLimit.of(within_hours, recommended, host_bytes=0 if host_bytes else ASSUMED_HOST_BYTES)
        verdict = FitVerdict(
            answer="no",
            summary="",
            method=recipe,
            accelerator=accelerator,
            num_devices=devices,
            needs=needs,
            recommended=recommended,
            at=None,
            published=_published(shape, recipe, accelerator, needs, case.longest),
            limit=limit,
        )
        verdict = _on_any(case, verdict)
        if devices is not None:
            verdict = _on_number(case, verdict, devices)
        return with_more(verdict, longest=case.longest, positions=shape.max_positions, quantization=shape.quantization)
    except TooManyLayouts:
        summary = Sentence("There are too many layouts to try. Ask for shorter responses.")
        return _unknown(summary, recipe, accelerator, devices)


def _on_any(case: LanguageModelCase, verdict: FitVerdict) -> FitVerdict:
    """Return the answer for any number of devices."""
    recommended, limit = verdict.recommended, verdict.limit
    try:
        practical = case.practical(verdict.needs, limit, recommended)
        if practical is not None and recommended is not None and _is_beaten(recommended, practical):
            step = practical.estimate.time.step.middle if practical.estimate is not None else math.inf
            recommended = case.recommended(recommended.num_devices, seconds=step) or recommended
    except TooManyLayouts:  # of more and more devices, none of which is quick enough
        practical = recommended if recommended is not None and limit.allows(recommended) else None
    others = case.others(limit, below=practical.num_devices if practical is not None else None)
    practical = fewest(each for each in others if each.on_host != "pure" and limit.allows(each)) or practical
    most = world_sizes(case.fleet.devices_per_node)[-1]
    return judged_on_any(replace(verdict, others=others, recommended=recommended), practical, most=most)


def _is_beaten(recommended: DeviceNeed, practical: DeviceNeed) -> bool:
    """Return True if fewer devices have a shorter step."""
    if recommended.estimate is None or practical.estimate is None:
        return False
    is_fewer = (practical.num_devices or 0) < (recommended.num_devices or 0)
    return is_fewer and practical.estimate.time.step.middle < recommended.estimate.time.step.middle


def _on_number(case: LanguageModelCase, verdict: FitVerdict, devices: int) -> FitVerdict:
    """Return the answer for a number of devices."""
    able, near = case.on(devices, verdict.limit)
    others: tuple[DeviceNeed, ...] = ()
    if able is None or not verdict.limit.allows(able):
        others = case.others_on(devices)
        usable = [each for each in others if each.on_host != "pure"]
        able = next((each for each in usable if verdict.limit.allows(each)), able or next(iter(usable), None))
    return judged_on(replace(verdict, others=others), able or next(iter(others), None), near)


def _unknown(summary: str, recipe: TrainingMethod, accelerator: Accelerator, devices: int | None) -> FitVerdict:
    """Return the verdict of a question that has no answer."""
    return FitVerdict(
        answer="unknown",
        summary=summary,
        method=recipe,
        accelerator=accelerator,
        num_devices=devices,
        needs=tuple(
            DeviceNeed(on_host=o, label=label, num_devices=None, job=None, estimate=None)
            for o, label in ON_HOST.items()
        ),
        recommended=None,
        at=None,
        published=(),
    )


def compare_hardware(
    shape: ModelShape,
    accelerators: Sequence[Accelerator],
    method: str,
    devices: int | None = None,
    *,
    prices: Mapping[str, float] | None = None,
    **more: Any,
) -> tuple[HardwareOption, ...]:
    """Return the answer for each accelerator, those on which it runs first, the cheapest (then fastest) step first.

    `prices`: money per device hour by accelerator id; `more` as in `can_it_run`.
    """
    price_of = prices or {}
    return in_order(
        option_of(can_it_run(shape, each, method, devices, price=price_of.get(each.id), **more))
        for each in accelerators
    )


def _published(
    shape: ModelShape, recipe: TrainingMethod, accelerator: Accelerator, needs: Sequence[DeviceNeed], longest: int
) -> tuple[PublishedRun, ...]:
    """Return the published rows of this size and method, and what each says to the answer."""
    if not recipe.table:
        return ()
    published = rows(model_billion=shape.parameters / 1e9, method=recipe.table)
    return tuple(_bearing(row, bool(shape.experts), accelerator, needs, longest) for row in published)


def _bearing(
    row: DeviceRow, is_mixture: bool, accelerator: Accelerator, needs: Sequence[DeviceNeed], longest: int
) -> PublishedRun:
    ours = accelerator.memory_bytes / 1e9
    if row.is_mixture != is_mixture:
        return PublishedRun(
            row=row, bearing="says nothing", reason=Sentence("One is a mixture of experts, the other is not.")
        )
    if row.memory_gb > ours * (1 + _SAME_MEMORY):
        return PublishedRun(
            row=row,
            bearing="says nothing",
            reason=Sentence("It ran on devices of {memory_gb} GB.", memory_gb=row.memory_gb),
        )
    need = _comparable(row, needs)
    where = f"{row.num_devices} x {row.device}"
    tokens = _tokens(row)
    if (need.num_devices or math.inf) > row.num_devices and 0 < tokens < longest:
        reason = Sentence("It ran on {where} with at most {tokens:,} tokens a sample.", where=where, tokens=tokens)
        return PublishedRun(row=row, bearing="says nothing", reason=reason)
    if need.num_devices is None:
        return PublishedRun(
            row=row,
            bearing="contradicts",
            reason=Sentence("It ran on {where}; by this estimate it fits on no number of devices.", where=where),
        )
    if need.num_devices > row.num_devices:
        reason = Sentence(
            "It ran on {where}; by this estimate it takes {num_devices}.",
            where=where,
            num_devices=need.num_devices,
        )
        return PublishedRun(row=row, bearing="contradicts", reason=reason)
    return PublishedRun(
        row=row,
        bearing="supports",
        reason=Sentence("It ran on {where}; the estimate is {num_devices}.", where=where, num_devices=need.num_devices),
    )


def _tokens(row: DeviceRow) -> int:
    """Return the tokens of a row's longest sample, 0 where it does not say."""
    lengths = [row.settings.get(f"rollout.{key}") for key in ("max_prompt_tokens", "max_new_tokens")]
    return sum(length for length in lengths if isinstance(length, int)) if None not in lengths else 0


def _comparable(row: DeviceRow, needs: Sequence[DeviceNeed]) -> DeviceNeed:
    """Return the need that has on the host what the row has there."""
    does_host_step = any(
        row.settings.get(knob_id)
        for knob_id in ("memory.megatron_cpu_optimizer", "memory.cpu_offload_policy", "memory.adam_offload")
    )
    if does_host_step:
        return needs[-1]
    comparable = [need for need in needs if need.on_host != "always" and need.num_devices is not None]
    return min(comparable, key=lambda need: need.num_devices or 0, default=needs[-2])
