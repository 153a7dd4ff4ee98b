"""Can it train a diffusion transformer? The same answer as for a language model (jobs.planner.can_it_run).

No trainer that Pitwall starts trains these: the answer is a hypothetical plan on FSDP, or on DeepSpeed's ZeRO-3 with
its optimizer on the host, with every block recomputed. No run was measured, so that the margin is as wide as for
anything that was not.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from jobs.catalog.accelerator import Accelerator
from jobs.catalog.sentence import Sentence
from jobs.planner.can_it_run.headline import judged_on, judged_on_any, with_more
from jobs.planner.can_it_run.plans import METHODS, ON_HOST, TrainingMethod, Way, world_sizes
from jobs.planner.can_it_run.verdict import (
    ASSUMED_HOST_BYTES,
    DeviceNeed,
    FitVerdict,
    HardwareOption,
    PracticalLimit,
    in_order,
    option_of,
)
from jobs.planner.constant import Constants, shipped_constants
from jobs.planner.diffusion.job import DIFFUSION_METHODS, DiffusionJob, Picture, diffusion_job, stream_tokens
from jobs.planner.diffusion.memory import pool_of
from jobs.planner.diffusion.time import step_time
from jobs.planner.hardware_notes import hardware_notes
from jobs.planner.job import Fleet
from jobs.planner.memory.storage import checkpoint_bytes, export_bytes, host_bytes, node_bytes
from jobs.planner.result import TIGHT_FROM, TIGHT_TO, Estimate, Term, cost_of
from jobs.planner.result import Verdict as Fits
from jobs.planner.shapes.diffusion import DiffusionShape

WHAT_IF = Sentence("No trainer here trains diffusion transformers: this plan is hypothetical.")
_RECOMMENDED_MICRO = 2


def estimate_diffusion(job: DiffusionJob, constants: Constants | None = None) -> Estimate:
    """Return the whole answer for a job of a diffusion transformer. Raises: JobInvalid."""
    constants = constants or shipped_constants()
    pool = pool_of(job, constants)
    band = constants.estimate.band_unmeasured
    needed = pool.share * (1 + band - constants.estimate.band_dense)
    verdict: Fits = "fits" if needed <= TIGHT_FROM else "tight" if needed <= TIGHT_TO else "no"
    on_host = host_bytes(job, constants)
    limit = node_bytes(job.fleet, constants)
    notes = [WHAT_IF, *job.notes, *hardware_notes(job)]
    if not job.picture.encoders:
        notes.append(Sentence("Texts and pictures are taken to be encoded before: no encoder is on the devices."))
    if on_host > TIGHT_FROM * limit:
        verdict = "no" if verdict == "no" or (job.fleet.host_bytes and on_host > limit) else "tight"
        text = "A node needs {on_host:,.0f} GiB of host memory; {limit:,.0f} GiB are there or usual."
        notes.append(Sentence(text, on_host=on_host / 2**30, limit=limit / 2**30))
    time = step_time(job, constants)
    terms = pool.binding.memory.terms
    term: Term = max(terms, key=lambda each: terms[each])
    return Estimate(
        verdict=verdict,
        pools=(pool,),
        pool=pool.name,
        phase=pool.binding.phase,
        term=term,
        band=band,
        rollout=None,
        time=time,
        cost=cost_of(time.step, job.fleet, job.num_steps, constants),
        host_bytes=on_host,
        shm_bytes=0,
        checkpoint_bytes=checkpoint_bytes(job.policy),
        export_bytes=export_bytes(job.policy),
        used=(),
        notes=tuple(notes),
    )


def can_it_train(
    shape: DiffusionShape,
    accelerator: Accelerator,
    method: str,
    devices: int | None = None,
    *,
    picture: Picture | None = None,
    devices_per_node: int = 8,
    host_bytes: int = 0,
    within_hours: float | None = None,
    price: float | None = None,
    constants: Constants | None = None,
) -> FitVerdict:
    """Return whether a diffusion transformer can be trained by a method on so many devices, or on any number.

    Raises: LookupError for a method that means nothing here, JobInvalid for pictures that it does not take, ValueError
    for a number of devices that is none.
    """
    if method not in DIFFUSION_METHODS:
        text = "There is no method {method!r} for diffusion transformers. Use one of {known}."
        raise LookupError(Sentence(text, method=method, known=", ".join(DIFFUSION_METHODS)))
    if devices is not None and (isinstance(devices, bool) or not 1 <= devices <= 65536):
        raise ValueError(Sentence("{devices!r} is not a number of devices. Use 1 to 65,536.", devices=devices))
    fleet = Fleet(
        accelerator=accelerator,
        num_devices=devices or 1,
        devices_per_node=devices_per_node,
        host_bytes=host_bytes or ASSUMED_HOST_BYTES * devices_per_node,
        price=price,
    )
    picture = picture or Picture()
    stream_tokens(shape, picture)
    case = _DiffusionCase(shape, METHODS[method], fleet, picture, constants or shipped_constants())
    needs, recommended = case.needs(), case.recommended()
    limit = PracticalLimit.of(within_hours, recommended, host_bytes=0 if host_bytes else ASSUMED_HOST_BYTES)
    verdict = FitVerdict(
        answer="no",
        summary="",
        method=METHODS[method],
        accelerator=accelerator,
        num_devices=devices,
        needs=needs,
        recommended=recommended,
        at=None,
        published=(),
        limit=limit,
    )
    verdict = judged_on_any(verdict, case.practical(limit), most=case.sizes()[-1])
    if devices is not None:
        verdict = judged_on(verdict, *case.judged(devices, limit))
    return with_more(verdict, longest=0, positions=0)


def compare_for_diffusion(
    shape: DiffusionShape,
    accelerators: Sequence[Accelerator],
    method: str,
    devices: int | None = None,
    *,
    prices: Mapping[str, float] | None = None,
    **more: Any,
) -> tuple[HardwareOption, ...]:
    """Return the answer for each accelerator, in the order of language_models.compare_hardware."""
    price_of = prices or {}
    return in_order(
        option_of(can_it_train(shape, each, method, devices, price=price_of.get(each.id), **more))
        for each in accelerators
    )


def _is_enough(estimate: Estimate) -> bool:
    """Return True if it fits, tightly or not; above the limit, if only by less than is known, it does not."""
    return estimate.verdict != "no" and all(pool.share <= 1 for pool in estimate.pools)


def _share(need: DeviceNeed) -> float:
    return max((pool.share for pool in need.estimate.pools), default=9.0) if need.estimate is not None else 9.0


class _DiffusionCase:
    """One model and method on one kind of device."""

    def __init__(
        self, shape: DiffusionShape, recipe: TrainingMethod, fleet: Fleet, picture: Picture, constants: Constants
    ) -> None:
        self._shape, self._recipe, self._fleet, self._picture, self._constants = (
            shape,
            recipe,
            fleet,
            picture,
            constants,
        )

    def _on(self, size: int, on_host: Way, *, micro_batch: int = 1) -> tuple[DiffusionJob, Estimate]:
        per_node = min(self._fleet.devices_per_node, size)
        fleet = replace(self._fleet, num_devices=size, devices_per_node=per_node)
        job = diffusion_job(self._shape, self._recipe, fleet, self._picture, on_host, micro_batch=micro_batch)
        return job, estimate_diffusion(job, self._constants)

    def on(self, size: int, on_host: Way) -> DeviceNeed:
        """Return the plan on so many devices; its number is None where it does not fit."""
        job, estimate = self._on(size, on_host)
        number = size if _is_enough(estimate) else None
        return DeviceNeed(on_host=on_host, label=ON_HOST[on_host], num_devices=number, job=job, estimate=estimate)

    def needs(self) -> tuple[DeviceNeed, ...]:
        """Return the fewest devices by what sits on the host."""
        device_needs: list[DeviceNeed] = []
        for on_host, label in ON_HOST.items():
            is_same = not self._recipe.has_rollouts if on_host == "between_phases" else self._recipe.method != "full"
            if on_host != "nothing" and is_same:
                device_needs.append(replace(device_needs[-1], on_host=on_host, label=label))
                continue
            device_needs.append(self._fewest(on_host, label))
        return tuple(device_needs)

    def sizes(self) -> tuple[int, ...]:
        """Return the numbers of devices that are tried: no more than a step has samples, each of which is on one."""
        picture = self._picture
        samples = picture.prompts * picture.samples_per_prompt if self._recipe.has_rollouts else picture.batch_size
        sizes = [size for size in world_sizes(self._fleet.devices_per_node) if size <= samples]
        return tuple(sizes) or (1,)

    def practical(self, limit: PracticalLimit) -> DeviceNeed | None:
        """Return the fewest devices on which a step is within the limit, with the least on the host."""
        tried = (self.on(size, on_host) for size in self.sizes() for on_host in ON_HOST)
        return next((need for need in tried if limit.allows(need)), None)

    def judged(self, devices: int, limit: PracticalLimit) -> tuple[DeviceNeed | None, DeviceNeed | None]:
        """Return the layout on so many devices, one that is practical and not tight rather than another; else None and
        the one that comes nearest."""
        candidates = [self.on(devices, on_host) for on_host in ON_HOST]
        able = [need for need in candidates if need.num_devices is not None]
        if able:
            return min(able, key=lambda need: (not limit.allows(need), need.is_tight)), None
        return None, min(candidates, key=_share)

    def _fewest(self, on_host: Way, label: str) -> DeviceNeed:
        job: DiffusionJob | None = None
        estimate: Estimate | None = None
        for size in self.sizes():
            job, estimate = self._on(size, on_host)
            if _is_enough(estimate):
                return DeviceNeed(on_host=on_host, label=label, num_devices=size, job=job, estimate=estimate)
        return DeviceNeed(on_host=on_host, label=label, num_devices=None, job=job, estimate=estimate)

    def recommended(self) -> DeviceNeed | None:
        """Return the fewest devices on which it fits with memory to spare: nothing on the host, two samples at once."""
        for size in self.sizes():
            job, estimate = self._on(size, "nothing", micro_batch=_RECOMMENDED_MICRO)
            if estimate.verdict == "fits":
                return DeviceNeed(
                    on_host="nothing", label=ON_HOST["nothing"], num_devices=size, job=job, estimate=estimate
                )
        return None
