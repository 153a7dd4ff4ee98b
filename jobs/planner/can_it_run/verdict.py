"""The answer to *Can it run?* as it is handed around: needs, what was published, the verdict, and hardware in order."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from jobs.catalog.accelerator import Accelerator
from jobs.catalog.device_table import DeviceRow
from jobs.planner.can_it_run.plans import OnHost, TrainingMethod
from jobs.planner.job import Job
from jobs.planner.result import Estimate, Interval

Answer = Literal["yes", "no", "unknown"]
Bearing = Literal["supports", "contradicts", "says nothing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceNeed:
    """The fewest devices with which it fits, with this much on the host; None: with none of those that were tried.

    `job` and `estimate` are those of that layout; without one, of the nearest miss. `phase`, `pool`: what binds there.
    """

    on_host: OnHost
    label: str
    num_devices: int | None
    job: Job | None
    estimate: Estimate | None

    @property
    def phase(self) -> str:
        """The phase that needs most, "" if nothing was estimated."""
        return "" if self.estimate is None else self.estimate.phase


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedRun:
    """A published configuration, what it says to this answer, and why."""

    row: DeviceRow
    bearing: Bearing
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FitVerdict:
    """The answer for `num_devices` (None: for any number), why, the needs by what sits on the host, the number that is
    recommended, and the published rows. `needs` are in the order of ON_HOST: less on the host first. `at`: the layout
    on `num_devices`, or the one that comes nearest; without a number, the recommended one, else that of the fewest."""

    answer: Answer
    summary: str
    method: TrainingMethod
    accelerator: Accelerator
    num_devices: int | None
    needs: tuple[DeviceNeed, ...]
    recommended: DeviceNeed | None
    at: DeviceNeed | None
    published: tuple[PublishedRun, ...]

    def need(self, on_host: OnHost) -> DeviceNeed:
        """Return one of the needs."""
        return next(need for need in self.needs if need.on_host == on_host)

    @property
    def minimum(self) -> DeviceNeed:
        """The fewest devices whose optimizer does its step on the device; published configurations mean that."""
        possible = [need for need in self.needs if need.on_host != "always" and need.num_devices is not None]
        return min(possible, key=lambda need: need.num_devices or 0, default=self.needs[-2])

    @property
    def minimum_with_offload(self) -> DeviceNeed:
        """The fewest devices at all."""
        possible = [need for need in self.needs if need.num_devices is not None]
        return min(possible, key=lambda need: need.num_devices or 0, default=self.needs[-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareOption:
    """One hardware of a comparison: the verdict, and for the number of devices it is asked for (or recommended) the
    seconds of a step and what it costs; None where it does not run or no price is known."""

    accelerator: Accelerator
    verdict: FitVerdict
    num_devices: int | None
    step: Interval | None
    cost_per_step: Interval | None
    currency: str


def in_order(options: Iterable[HardwareOption]) -> tuple[HardwareOption, ...]:
    """Return options with those on which it runs first, the cheapest (then fastest) step first."""

    def order(option: HardwareOption) -> tuple[bool, float, float]:
        cost = option.cost_per_step.middle if option.cost_per_step else float("inf")
        return option.step is None, cost, option.step.middle if option.step else 0.0

    return tuple(sorted(options, key=order))


def option_of(verdict: FitVerdict) -> HardwareOption:
    """Return what a comparison says of one hardware."""
    at = verdict.at if verdict.answer != "no" else None
    if at is None or at.num_devices is None or at.estimate is None or at.job is None:
        return HardwareOption(
            accelerator=verdict.accelerator,
            verdict=verdict,
            num_devices=None,
            step=None,
            cost_per_step=None,
            currency="USD",
        )
    step, fleet = at.estimate.time.step, at.job.fleet
    cost = None if fleet.price is None else step.scaled(at.num_devices / 3600 * fleet.price)
    return HardwareOption(
        accelerator=verdict.accelerator,
        verdict=verdict,
        num_devices=at.num_devices,
        step=step,
        cost_per_step=cost,
        currency=fleet.currency,
    )
