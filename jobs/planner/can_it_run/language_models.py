"""Can it run? A model, an accelerator and a method in; yes, no or unknown out, with the fewest devices, and with what
was published for or against it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from jobs.catalog.accelerator import Accelerator
from jobs.catalog.device_table import DeviceRow, rows
from jobs.catalog.sentence import Sentence
from jobs.planner.can_it_run.plans import (
    METHODS,
    ON_HOST,
    Demand,
    OnHost,
    TrainingMethod,
    TrainingPlan,
    plans_of,
    world_sizes,
)
from jobs.planner.can_it_run.verdict import (
    Answer,
    DeviceNeed,
    FitVerdict,
    HardwareOption,
    PublishedRun,
    in_order,
    option_of,
)
from jobs.planner.constant import Constants, shipped_constants
from jobs.planner.estimate import Estimator, Fit
from jobs.planner.job import Fleet, Job
from jobs.planner.result import Estimate, JobInvalid, phase_word
from jobs.planner.shapes.model_shape import ModelShape

__all__ = [
    "ASSUMED_HOST_BYTES",
    "DeviceNeed",
    "FitVerdict",
    "HardwareOption",
    "PublishedRun",
    "can_it_run",
    "compare_hardware",
]

_RECOMMENDED_MICRO = 2
MOST_FITS = 600
"""Layouts that are estimated for one kind of hardware, so that a page of eight kinds stays within seconds. Of a
thousand questions drawn at random none of the usual lengths took more, and one in a hundred of up to 128 Ki tokens."""

MOST_BOUNDS = 10 * MOST_FITS
"""Layouts that are held against a bound alone, which takes a tenth of the time."""

ASSUMED_HOST_BYTES = 250 * 10**9
"""Host memory per device where nobody said how much a node has: 2 TB for eight, as in the largest published nodes."""
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
    price: float | None = None,
    constants: Constants | None = None,
) -> FitVerdict:
    """Return whether a model can be trained by a method (a key of METHODS) on so many devices, or on any number.

    Yes: it fits, or is tight and yet below the limit, which is said. No: nothing that was tried fits, not even with
    the optimizer on the host. Unknown: the shape is not known, or the best layout is above the limit by so little that
    only a trial tells. Where `host_bytes` of a node is not known (0), as much is
    assumed as ASSUMED_HOST_BYTES says. `shape` None stands for a model whose config cannot be
    read. Raises: LookupError for a method that is not known, ValueError for a number of devices that is none.
    """
    if method not in METHODS:
        raise LookupError(
            Sentence("There is no method {method!r}. Use one of {known}.", method=method, known=", ".join(METHODS))
        )
    if devices is not None and (isinstance(devices, bool) or not 1 <= devices <= 65536):
        raise ValueError(Sentence("{devices!r} is not a number of devices. Use 1 to 65,536.", devices=devices))
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
    case = _LanguageModelCase(shape, recipe, fleet, demand or Demand(), constants or shipped_constants())
    try:
        needs = case.needs()
        recommended = case.recommended(min((n.num_devices for n in needs if n.num_devices), default=None))
        answer, summary, at = case.answer(devices, needs)
    except _TooManyLayouts:
        summary = Sentence("There are too many layouts to try. Ask for shorter responses.")
        return _unknown(summary, recipe, accelerator, devices)
    return FitVerdict(
        answer=answer,
        summary=summary,
        method=recipe,
        accelerator=accelerator,
        num_devices=devices,
        needs=needs,
        recommended=recommended,
        at=at if devices is not None else recommended or at,
        published=_published(shape, recipe, accelerator, needs),
    )


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


class _TooManyLayouts(Exception):
    """The question has more layouts than one answer looks at."""


class _LanguageModelCase:
    """One model and method on one kind of device. Its methods raise _TooManyLayouts."""

    def __init__(
        self, shape: ModelShape, recipe: TrainingMethod, fleet: Fleet, demand: Demand, constants: Constants
    ) -> None:
        self._shape, self._recipe, self._fleet, self._demand = shape, recipe, fleet, demand
        self._estimator = Estimator(constants)
        self._num_fits = self._num_bounds = 0

    def needs(self) -> tuple[DeviceNeed, ...]:
        """Return the fewest devices by what sits on the host."""
        device_needs: list[DeviceNeed] = []
        for on_host, label in ON_HOST.items():
            is_same = not self._recipe.has_rollouts if on_host == "between_phases" else self._recipe.method != "full"
            if on_host != "nothing" and is_same:  # one phase alone, or an optimizer of adapters alone
                device_needs.append(replace(device_needs[-1], on_host=on_host, label=label))
                continue
            device_needs.append(self._fewest(on_host, label))
        return tuple(device_needs)

    def _fewest(self, on_host: OnHost, label: str) -> DeviceNeed:
        sizes = [size for size in world_sizes(self._fleet.devices_per_node) if not self._cannot_hold(size, on_host)]
        for size in sizes:
            if (best := self._enough(size, on_host)) is not None:
                return DeviceNeed(on_host=on_host, label=label, num_devices=size, job=best[0], estimate=best[1])
        misses = (self._nearest(size, on_host) for size in reversed(sizes))
        job, estimate = next((miss for miss in misses if miss is not None), (None, None))
        return DeviceNeed(on_host=on_host, label=label, num_devices=None, job=job, estimate=estimate)

    def _cannot_hold(self, size: int, on_host: OnHost) -> bool:
        """Return True if not even the weights fit: a bound that no layout of so many devices gets below."""
        full = 4.0 if on_host == "always" else 6.0
        element = {"qlora": 0.5, "lora": 2.0, "full": full}[self._recipe.method]
        return element * self._shape.parameters > size * self._fleet.accelerator.usable_bytes

    def _plans(self, size: int, on_host: OnHost, *, micro_batch: int = 1) -> Iterator[TrainingPlan]:
        fleet = replace(self._fleet, num_devices=size, devices_per_node=min(self._fleet.devices_per_node, size))
        return plans_of(self._shape, self._recipe, fleet, self._demand, on_host, micro_batch=micro_batch)

    def _enough(
        self, size: int, on_host: OnHost, *, micro_batch: int = 1, wants_wave: bool = False
    ) -> tuple[Job, Estimate] | None:
        """Return the first layout that is enough; None if none is. What cannot fit by a bound is not estimated."""
        for plan in self._plans(size, on_host, micro_batch=micro_batch):
            if self._estimator.trainer_is_too_large(plan.job):
                continue
            for job in plan.jobs():
                if self._has_no_engine(job):
                    continue
                if (fit := self._fit(job)) is None:
                    continue
                if (
                    _is_enough(fit, job.fleet.host_bytes)
                    and (not wants_wave or _holds_a_wave(fit))
                    and (estimate := self._answer(fit))
                ):
                    return job, estimate
                if _is_trainer_short(fit):
                    break
        return None

    def _nearest(self, size: int, on_host: OnHost) -> tuple[Job, Estimate] | None:
        """Return the layout that comes nearest where none is enough; None if none can be estimated."""
        best: tuple[float, Job, Fit] | None = None
        for plan in self._plans(size, on_host):
            for job in plan.jobs():
                if (fit := self._fit(job)) is None:
                    continue
                lack = _lack(fit, job.fleet.host_bytes)
                if best is None or lack < best[0]:
                    best = (lack, job, fit)
                if _is_trainer_short(fit):
                    break
        estimate = None if best is None else self._answer(best[2])
        return None if best is None or estimate is None else (best[1], estimate)

    def _has_no_engine(self, job: Job) -> bool:
        """Return True if the engine cannot be, as heads may not divide by its devices, or cannot fit by a bound."""
        try:
            self._num_bounds += 1
            if self._num_bounds > MOST_BOUNDS:
                raise _TooManyLayouts
            return self._estimator.engine_is_too_large(job)
        except JobInvalid:
            return True

    def _fit(self, job: Job) -> Fit | None:
        self._num_fits += 1
        if self._num_fits > MOST_FITS:
            raise _TooManyLayouts
        try:
            return self._estimator.fit(job)
        except JobInvalid:
            return None

    def _answer(self, fit: Fit) -> Estimate | None:
        try:
            return self._estimator.answer(fit)
        except JobInvalid:
            return None

    def recommended(self, least: int | None) -> DeviceNeed | None:
        """Return the fewest devices on which it fits with memory to spare: nothing that is in use on the host, larger
        micro-batches, and all answers of a step at once."""
        if least is None:
            return None
        on_host: OnHost = "between_phases" if self._recipe.has_rollouts else "nothing"
        for size in world_sizes(self._fleet.devices_per_node):
            if size < least or self._cannot_hold(size, on_host):
                continue
            best = self._enough(size, on_host, micro_batch=_RECOMMENDED_MICRO, wants_wave=True)
            if best is not None:
                return DeviceNeed(
                    on_host=on_host, label=ON_HOST[on_host], num_devices=size, job=best[0], estimate=best[1]
                )
        return None

    def answer(self, devices: int | None, needs: Sequence[DeviceNeed]) -> tuple[Answer, str, DeviceNeed | None]:
        """Return the answer for a number of devices or for any, why, and the layout that it goes by."""
        if devices is None:
            fewest = min((n for n in needs if n.num_devices), key=lambda n: n.num_devices or 0, default=None)
            if fewest is None:
                most = world_sizes(self._fleet.devices_per_node)[-1]
                return "no", Sentence("It fits on none of up to {most:,} devices.", most=most), needs[-1]
            return (
                "yes",
                Sentence("It fits from 1 device on. {label}.", label=_how(fewest))
                if fewest.num_devices == 1
                else Sentence(
                    "It fits from {num_devices:,} devices on. {label}.",
                    num_devices=fewest.num_devices,
                    label=_how(fewest),
                ),
                fewest,
            )
        tight: DeviceNeed | None = None
        nearest: DeviceNeed | None = None
        lack = 0.0
        for on_host, label in ON_HOST.items():
            best = self._enough(devices, on_host) or self._nearest(devices, on_host)
            if best is None:
                continue
            here = DeviceNeed(on_host=on_host, label=label, num_devices=devices, job=best[0], estimate=best[1])
            there = best[0].fleet.host_bytes
            if _is_enough(best[1], there):
                if best[1].verdict == "fits":
                    return "yes", Sentence("It fits on {devices:,}. {label}.", devices=devices, label=_how(here)), here
                tight = tight or here
            if nearest is None or _lack(best[1], there) < lack:
                nearest, lack = here, _lack(best[1], there)
        if tight is not None:
            return "yes", Sentence("It fits on {devices:,}. {label}.", devices=devices, label=_how(tight)), tight
        if nearest is None or nearest.job is None or nearest.estimate is None:
            return (
                "no",
                Sentence("No layout fits on {devices:,}.", devices=devices),
                None,
            )
        estimate = nearest.estimate
        if estimate.verdict == "tight" and not _lacks_more(estimate, nearest.job.fleet.host_bytes):
            return (
                "unknown",
                Sentence(
                    "On {devices:,} it comes within the uncertainty of the limit: a probe run tells.", devices=devices
                ),
                nearest,
            )
        pool = next(p for p in estimate.pools if p.name == estimate.pool)
        needed, limit = estimate.binding.memory.total / (1 << 30), pool.limit / (1 << 30)
        return (
            "no",
            Sentence(
                "On {devices:,} the best layout needs {needed:.1f} of {limit:.1f} GiB during {phase}.",
                devices=devices,
                needed=needed,
                limit=limit,
                phase=phase_word(estimate.phase),
            ),
            nearest,
        )


def _how(need: DeviceNeed) -> Sentence:
    """Say what sits on the host, and that it is tight where it is."""
    if need.estimate is not None and need.estimate.verdict == "tight":
        return Sentence("{label}. It is tight: a little more would not fit", label=Sentence(need.label))
    return Sentence(need.label)


def _is_enough(estimate: Fit | Estimate, host_bytes: int) -> bool:
    """Return True if weights, optimizer and one full-length sequence fit, on devices and host, tightly or not: above
    the limit, if only by less than is known, is not enough."""
    is_over = any(pool.share > 1 for pool in estimate.pools)
    return estimate.verdict != "no" and not is_over and not _lacks_more(estimate, host_bytes)


def _lacks_more(estimate: Fit | Estimate, host_bytes: int) -> bool:
    """Return True if host memory is short, or the engine's cache does not hold one full-length sequence."""
    if host_bytes and estimate.host_bytes > host_bytes:
        return True
    return estimate.rollout is not None and estimate.rollout.full_sequences < 1


def _lack(estimate: Fit | Estimate, host_bytes: int) -> float:
    """Return how far from enough it is: above 1, more is needed than there is."""
    share = max(pool.share for pool in estimate.pools)
    if estimate.rollout is not None and estimate.rollout.full_sequences < 1:
        share = max(share, 1.0 + (1.0 - estimate.rollout.full_sequences))
    if host_bytes:
        share = max(share, estimate.host_bytes / host_bytes)
    return share


def _is_trainer_short(fit: Fit) -> bool:
    """Return True if it is the trainer that does not fit, whatever the engine takes."""
    return fit.verdict == "no" and fit.phase.phase != "rollout"


def _holds_a_wave(fit: Fit) -> bool:
    """Return True if it fits with memory to spare and all answers of a step are generated at once."""
    job = fit.job
    if fit.verdict != "fits":
        return False
    if job.engine is None or fit.rollout is None or job.rollouts is None:
        return True
    wave = job.rollouts.prompts * job.rollouts.samples_per_prompt / job.engine.num_engines
    return fit.rollout.mean_sequences >= min(wave, job.engine.max_num_seqs or wave)


def _published(
    shape: ModelShape, recipe: TrainingMethod, accelerator: Accelerator, needs: Sequence[DeviceNeed]
) -> tuple[PublishedRun, ...]:
    """Return the published rows of this size and method, and what each says to the answer."""
    if not recipe.table:
        return ()
    published = rows(model_billion=shape.parameters / 1e9, method=recipe.table)
    return tuple(_bearing(row, bool(shape.experts), accelerator, needs) for row in published)


def _bearing(row: DeviceRow, is_mixture: bool, accelerator: Accelerator, needs: Sequence[DeviceNeed]) -> PublishedRun:
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
