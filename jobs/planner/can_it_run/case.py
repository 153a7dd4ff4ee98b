"""The search behind *Can it run?*: one model and method on one kind of device, the layouts of every number of devices.

What cannot fit by a bound is not estimated, and a trainer that does not fit is not asked beside a second engine.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

from jobs.planner.can_it_run.headline import lacks_more
from jobs.planner.can_it_run.plans import (
    FURTHER_WAYS,
    ON_HOST,
    Demand,
    TrainingMethod,
    TrainingPlan,
    Way,
    engines_of,
    plans_of,
    world_sizes,
)
from jobs.planner.can_it_run.verdict import DeviceNeed, PracticalLimit, fewest
from jobs.planner.constant import Constants
from jobs.planner.estimate import Estimator, Fit
from jobs.planner.job import Engine, Fleet, Job
from jobs.planner.result import Estimate, JobInvalid
from jobs.planner.shapes.model_shape import ModelShape

MOST_FITS = 600
"""Layouts that are estimated for one kind of hardware, so that a page of eight kinds stays within seconds. Of a
thousand questions drawn at random none of the usual lengths took more, and one in a hundred of up to 128 Ki tokens."""

MOST_BOUNDS = 10 * MOST_FITS
"""Layouts that are held against a bound alone, which takes a tenth of the time."""

_RECOMMENDED_MICRO = 2
_MOST_SLOW = 6  # layouts of one number of devices that fit and are passed over for being slow
_MOST_ROOMY = 4  # layouts with memory to spare of which the fastest is recommended: the least divided ones
_WAYS = {**ON_HOST, **FURTHER_WAYS}


class TooManyLayouts(Exception):
    """The question has more layouts than one answer looks at."""


class LanguageModelCase:
    """One model and method on one kind of device. Its methods raise TooManyLayouts."""

    def __init__(
        self, shape: ModelShape, recipe: TrainingMethod, fleet: Fleet, demand: Demand, constants: Constants
    ) -> None:
        self._shape, self._recipe, self.fleet, self._demand = shape, recipe, fleet, demand
        self._estimator = Estimator(constants)
        self._num_fits = self._num_bounds = 0
        self._most_fits = MOST_FITS
        self._sizes = world_sizes(fleet.devices_per_node)
        self._made_engines: dict[int, tuple[Engine, ...]] = {}
        self._made_plans: dict[tuple[int, Way, int], tuple[TrainingPlan, ...]] = {}

    @property
    def longest(self) -> int:
        """Tokens of the longest sample."""
        return self._demand.longest

    @property
    def lacks_engine(self) -> bool:
        """Return True for a method with rollouts if no engine that is tried holds the weights, on any number."""
        if not self._recipe.has_rollouts:
            return False
        most = replace(self.fleet, num_devices=self._sizes[-1])
        return not engines_of(self._shape, self._recipe, most, self._demand)

    def needs(self) -> tuple[DeviceNeed, ...]:
        """Return the fewest devices by what sits on the host, in the usual ways."""
        device_needs: list[DeviceNeed] = []
        for on_host, label in ON_HOST.items():
            is_same = not self._recipe.has_rollouts if on_host == "between_phases" else self._recipe.method != "full"
            if on_host != "nothing" and is_same:  # one phase alone, or an optimizer of adapters alone
                device_needs.append(replace(device_needs[-1], on_host=on_host, label=label))
                continue
            device_needs.append(self._fewest(on_host))
        return tuple(device_needs)

    def others(self, limit: PracticalLimit, *, below: int | None = None) -> tuple[DeviceNeed, ...]:
        """Return what the further ways take, of fewer than `below` devices (None: of any number): each the fewest that
        are practical, else the fewest."""
        sizes = [size for size in self._sizes if below is None or size < below]
        needs = (self._fewest_in(way, sizes, limit) for way in self._further_ways())
        return tuple(need for need in needs if need is not None)

    def others_on(self, devices: int) -> tuple[DeviceNeed, ...]:
        """Return the further ways in which it fits on so many devices."""
        layouts = ((way, self.enough(devices, way)) for way in self._further_ways())
        return tuple(self._need(way, devices, best) for way, best in layouts if best is not None)

    def _fewest_in(self, way: Way, sizes: Iterable[int], limit: PracticalLimit) -> DeviceNeed | None:
        first: DeviceNeed | None = None
        for size in sizes:
            if self.has_no_room(size, way) or (best := self.enough(size, way)) is None:
                continue
            need = self._need(way, size, best)
            if limit.allows(need):
                return need
            first = first or need
        return first

    def _further_ways(self) -> tuple[Way, ...]:
        """Return the further ways that mean something for the method: 4-bit weights are not fetched from the host, and
        of adapters the rest is in 16 bits anyway."""
        if self._recipe.method == "full":
            return tuple(FURTHER_WAYS)
        return ("activations", "weights") if self._recipe.method == "lora" else ("activations",)

    def _need(self, way: Way, size: int | None, best: tuple[Job, Estimate] | None) -> DeviceNeed:
        job, estimate = best if best is not None else (None, None)
        return DeviceNeed(on_host=way, label=_WAYS[way], num_devices=size, job=job, estimate=estimate)

    def _fewest(self, on_host: Way) -> DeviceNeed:
        sizes = [size for size in self._sizes if not self._cannot_hold(size, on_host)]
        for size in sizes:
            if self.has_no_room(size, on_host):
                continue
            if (best := self.enough(size, on_host)) is not None:
                need = self._need(on_host, size, best)
                surer = self.enough(size, on_host, limit=PracticalLimit(), is_sure=True) if need.is_unsure else None
                return need if surer is None else self._need(on_host, size, surer)
        misses = (self._nearest(size, on_host) for size in reversed(sizes))
        return self._need(on_host, None, next((miss for miss in misses if miss is not None), None))

    def _cannot_hold(self, size: int, on_host: Way) -> bool:
        """Return True if not even the weights fit: a bound that no layout of so many devices gets below."""
        full = {"always": 4.0, "weights": 0.0, "pure": 4.0}.get(on_host, 6.0)
        base = 0.0 if on_host == "weights" else 2.0
        element = {"qlora": 0.5, "lora": base, "full": full}[self._recipe.method]
        return element * self._shape.parameters > size * self.fleet.accelerator.usable_bytes

    def has_no_room(self, size: int, way: Way) -> bool:
        """Return True if the states of a policy whose weights are all trained are above the limit in its update, were
        they divided among all devices: weights, gradients and two moments in fp32 (FSDP), or bf16 weights and fp32
        gradients, master copy and moments (Megatron)."""
        if self._cannot_hold(size, way):
            return True
        is_counted = self._recipe.method == "full" and self._recipe.objective != "scalar"
        element = {"nothing": 16.0, "between_phases": 16.0, "activations": 16.0, "pure": 8.0}.get(way, 0.0)
        most = size * self.fleet.accelerator.usable_bytes
        return is_counted and element * self._shape.parameters > most

    def _plans(self, size: int, on_host: Way, *, micro_batch: int = 1) -> tuple[TrainingPlan, ...]:
        """Return the ways to train, the same objects each time, so that each is estimated once."""
        key = (size, on_host, micro_batch)
        if key not in self._made_plans:
            fleet = replace(self.fleet, num_devices=size, devices_per_node=min(self.fleet.devices_per_node, size))
            if size not in self._made_engines:
                self._made_engines[size] = engines_of(self._shape, self._recipe, fleet, self._demand)
            arguments = (self._shape, self._recipe, fleet, self._demand, on_host)
            plans = plans_of(*arguments, micro_batch=micro_batch, engines=self._made_engines[size])
            self._made_plans[key] = tuple(plans)
        return self._made_plans[key]

    def enough(
        self,
        size: int,
        on_host: Way,
        *,
        limit: PracticalLimit | None = None,
        is_sure: bool = False,
    ) -> tuple[Job, Estimate] | None:
        """Return the first layout that is enough, and with a limit is practical, and if `is_sure` is not one that may
        go either way; None if none is."""
        layouts = self._layouts(size, on_host)
        if limit is None:
            return next(layouts, None)
        for each in islice(layouts, _MOST_SLOW):
            need = self._need(on_host, size, each)
            if limit.allows(need) and not (is_sure and need.is_unsure):
                return each
        return None

    def _layouts(
        self, size: int, on_host: Way, *, micro_batch: int = 1, wants_wave: bool = False
    ) -> Iterator[tuple[Job, Estimate]]:
        """Yield of every way to train, the least divided first, the layout that is enough with the smallest engine."""
        for plan in self._plans(size, on_host, micro_batch=micro_batch):
            if self._estimator.trainer_is_too_large(plan.job, above=1.0):
                continue
            for job in plan.jobs():
                if (
                    self._has_no_engine(job)
                    or self._estimator.holds_no_sequence(job)
                    or (fit := self._fit(job)) is None
                ):
                    continue
                is_enough = _is_enough(fit, job.fleet.host_bytes) and (not wants_wave or _holds_a_wave(fit))
                if is_enough and (estimate := self._answer(fit)):
                    yield job, estimate
                    break
                if _is_trainer_short(fit):
                    break

    def _nearest(self, size: int, on_host: Way) -> tuple[Job, Estimate] | None:
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
                raise TooManyLayouts
            return self._estimator.engine_is_too_large(job)
        except JobInvalid:
            return True

    def _fit(self, job: Job) -> Fit | None:
        self._num_fits += 1
        if self._num_fits > self._most_fits:
            raise TooManyLayouts
        try:
            return self._estimator.fit(job)
        except JobInvalid:
            return None

    def _answer(self, fit: Fit) -> Estimate | None:
        try:
            return self._estimator.answer(fit)
        except JobInvalid:
            return None

    def recommended(self, least: int | None, *, seconds: float = math.inf) -> DeviceNeed | None:
        """Return the fewest devices on which it fits with memory to spare: nothing that is in use on the host, larger
        micro-batches, and all answers of a step at once; of the least divided ways to train there, the fastest,
        whose step takes less than `seconds`."""
        if least is None:
            return None
        on_host: Way = "between_phases" if self._recipe.has_rollouts else "nothing"
        for size in self._sizes:
            if size < least or self.has_no_room(size, on_host):
                continue
            roomy: list[tuple[Job, Estimate]] = []
            try:
                layouts = self._layouts(size, on_host, micro_batch=_RECOMMENDED_MICRO, wants_wave=True)
                roomy.extend(islice(layouts, _MOST_ROOMY))
            except TooManyLayouts:
                if not roomy:
                    raise
            quick = [each for each in roomy if each[1].time.step.middle < seconds]
            if quick:
                return self._need(on_host, size, min(quick, key=lambda each: each[1].time.step.middle))
        return None

    def recommended_soon(self, least: int | None) -> DeviceNeed | None:
        """Return what is recommended, or None where half of the layouts that may still be tried do not tell: the
        question has an answer without it."""
        if least is None:
            return None
        self._most_fits = self._num_fits + (MOST_FITS - self._num_fits) // 2
        try:
            return self.recommended(least)
        except TooManyLayouts:
            return None
        finally:
            self._most_fits = MOST_FITS

    def practical(
        self, candidates: Sequence[DeviceNeed], limit: PracticalLimit, recommended: DeviceNeed | None
    ) -> DeviceNeed | None:
        """Return the fewest devices on which a step is within the limit, one that fits for sure before one that may go
        either way, with the least on the host; None if on none.

        `candidates`: the fewest devices of each way in which it fits; what is recommended, if it is practical, is never
        passed by, nor does a tight layout of as many devices that holds as much on the host stand in its place.
        """
        most = recommended.num_devices if recommended is not None and limit.allows(recommended) else None
        least = fewest(candidates)
        for size in () if least is None else self._sizes:
            if size < (least.num_devices or 0) if least is not None else True:
                continue
            able = self._practical_on(size, candidates, limit)
            if size == most and (able is None or _is_roomier(recommended, able)):
                return recommended
            if able is not None:
                return able
        return None

    def _practical_on(self, size: int, candidates: Sequence[DeviceNeed], limit: PracticalLimit) -> DeviceNeed | None:
        unsure: DeviceNeed | None = None
        for need in candidates:
            if need.num_devices is None or need.num_devices > size:
                continue
            if need.num_devices != size or not limit.allows(need):
                best = self.enough(size, need.on_host, limit=limit)
                if best is None:
                    continue
                need = self._need(need.on_host, size, best)
            if need.is_unsure:
                surer = self.enough(size, need.on_host, limit=limit, is_sure=True)
                if surer is None:
                    unsure = unsure or need
                    continue
                need = self._need(need.on_host, size, surer)
            return need
        return unsure

    def on(self, devices: int, limit: PracticalLimit) -> tuple[DeviceNeed | None, DeviceNeed | None]:
        """Return the layout of so many devices that is enough, one that fits before one that is tight, that one before
        one that may go either way, and one that is practical before all of them; None, and the one that comes nearest,
        if there is none."""
        able: list[tuple[bool, bool, bool, int, DeviceNeed]] = []
        for order, on_host in enumerate(ON_HOST):
            best = (
                self.enough(devices, on_host, limit=limit, is_sure=True)
                or self.enough(devices, on_host, limit=limit)
                or self.enough(devices, on_host)
            )
            if best is None:
                continue
            need = self._need(on_host, devices, best)
            able.append((not limit.allows(need), need.is_tight, need.is_unsure, order, need))
            if able[-1][:2] == (False, False):
                break
        if able:
            return min(able, key=lambda each: each[:4])[4], None
        near = [(way, best) for way in ON_HOST if (best := self._nearest(devices, way)) is not None]
        if not near:
            return None, None
        way, nearest = min(near, key=lambda each: _lack(each[1][1], each[1][0].fleet.host_bytes))
        return None, self._need(way, devices, nearest)


def _is_enough(estimate: Fit | Estimate, host_bytes: int) -> bool:
    """Return True if weights, optimizer and one full-length sequence fit, on devices and host, tightly or not: above
    the limit, if only by less than is known, is not enough."""
    is_over = any(pool.share > 1 for pool in estimate.pools)
    return estimate.verdict != "no" and not is_over and not lacks_more(estimate, host_bytes)


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


def _is_roomier(recommended: DeviceNeed | None, able: DeviceNeed) -> bool:
    """Return True if what is recommended fits where a layout with as much on the host is tight."""
    if recommended is None or recommended.on_host != able.on_host:
        return False
    return able.is_tight and not recommended.is_tight
