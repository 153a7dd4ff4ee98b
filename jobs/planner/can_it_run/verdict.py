"""The answer to *Can it run?* as it is handed around: needs, what was published, the verdict, and hardware in order."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from jobs.catalog.accelerator import Accelerator
from jobs.catalog.device_table import DeviceRow
from jobs.planner.can_it_run.plans import TrainingMethod, Way
from jobs.planner.job import Job
from jobs.planner.result import Estimate, Interval

Answer = Literal["yes", "possible", "no", "unknown"]
"""Possible: it fits, but a step takes longer than anybody waits, or it trains in another way than was asked."""

Bearing = Literal["supports", "contradicts", "says nothing"]

USUAL_HOURS = 1.0
"""That a step may take at most to be called practical, where nobody said how long."""

MOST_HOURS = 8760
"""A year: what may be said of a step at most."""

ASSUMED_HOST_BYTES = 250 * 10**9
"""Host memory of a node per device, where nobody said how much it has: 2 TB for eight, as in the largest published
nodes. What is practical takes no more than the share of the devices that are used."""

MOST_WASTE = 20.0
"""Device seconds of a step at most, as a multiple of the recommended layout's, where nobody said how long one may
take: a layout that wastes more is tried once and given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceNeed:
    """The fewest devices with which it fits, with this much on the host; None: with none of those that were tried.

    `job` and `estimate` are those of that layout; without one, of the nearest miss. `phase`, `pool`: what binds there.
    """

    on_host: Way
    label: str
    num_devices: int | None
    job: Job | None
    estimate: Estimate | None

    @property
    def phase(self) -> str:
        """The phase that needs most, "" if nothing was estimated."""
        return "" if self.estimate is None else self.estimate.phase

    @property
    def is_tight(self) -> bool:
        """True if it fits so near the limit that a little more would not."""
        return self.num_devices is not None and self.estimate is not None and self.estimate.verdict == "tight"

    @property
    def is_unsure(self) -> bool:
        """True if it is tight and of its memory so little is known that it may go either way."""
        return self.estimate is not None and self.is_tight and self.binding_share * (1 + self.estimate.risk) > 1

    @property
    def binding_share(self) -> float:
        """What the phase that decides needs, as a share of what can be used of a device: not that of an engine which
        fills its part on purpose, to the byte. 0 if nothing was estimated."""
        if self.estimate is None:
            return 0.0
        pool = next(pool for pool in self.estimate.pools if pool.name == self.estimate.pool)
        return self.estimate.binding.memory.total / pool.limit

    @property
    def device_share(self) -> float:
        """The most that is needed of any device, as a share of what can be used; 0 if nothing was estimated."""
        return 0.0 if self.estimate is None else max((pool.share for pool in self.estimate.pools), default=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PracticalLimit:
    """What a practical layout keeps to: `seconds` of a step (the middle of its interval), its `device_seconds`, and
    `host_bytes` of a node for each device that is used there, where nobody said what a node has (0: somebody did)."""

    seconds: float = USUAL_HOURS * 3600
    device_seconds: float = math.inf
    host_bytes: int = 0

    @classmethod
    def of(cls, hours: float | None, recommended: DeviceNeed | None, *, host_bytes: int) -> "PracticalLimit":
        """Return the limit with the hours that somebody set, else with the usual ones, in which what is recommended
        counts as well."""
        if hours is not None:
            return cls(seconds=hours * 3600, host_bytes=host_bytes)
        if recommended is None or recommended.estimate is None:
            return cls(host_bytes=host_bytes)
        return cls(device_seconds=MOST_WASTE * _device_seconds(recommended), host_bytes=host_bytes)

    def allows(self, need: DeviceNeed) -> bool:
        """Return True if a layout is practical."""
        return self.is_quick(need) and self.has_host_memory(need)

    def is_quick(self, need: DeviceNeed) -> bool:
        """Return True if a layout fits and its step is no longer than people wait."""
        if need.num_devices is None or need.estimate is None:
            return False
        return need.estimate.time.step.middle <= self.seconds and _device_seconds(need) <= self.device_seconds

    def is_long(self, need: DeviceNeed) -> bool:
        """Return True if a layout's step takes longer than people wait, however many devices take part."""
        return need.estimate is not None and need.estimate.time.step.middle > self.seconds

    def times_recommended(self, need: DeviceNeed) -> float:
        """Return the device seconds of a layout's step, as a multiple of the recommended layout's."""
        return MOST_WASTE * _device_seconds(need) / self.device_seconds

    def has_host_memory(self, need: DeviceNeed) -> bool:
        """Return True if a layout takes no more of a node's host memory than is its devices' share of it."""
        if not self.host_bytes or need.estimate is None or need.job is None:
            return True
        fleet = need.job.fleet
        return need.estimate.host_bytes <= self.host_bytes * min(fleet.devices_per_node, fleet.num_devices)


def _device_seconds(need: DeviceNeed) -> float:
    return 0.0 if need.estimate is None else need.estimate.time.step.middle * (need.num_devices or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedRun:
    """A published configuration, what it says to this answer, and why."""

    row: DeviceRow
    bearing: Bearing
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FitVerdict:
    """The answer for `num_devices` (None: for any number), in a sentence (`summary`) and what else there is to know
    (`more`), the needs by what sits on the host, the number that is recommended, and the published rows.

    `needs` are in the order of ON_HOST: less on the host first; `others`: the further ways that take fewer devices than
    all of them. `practical`: the fewest devices whose step is within `limit`; `possible`: fewer ones, whose step is
    not. `at`: the layout on `num_devices`, or the one that comes nearest; without a number, the recommended one, else
    that of the fewest."""

    answer: Answer
    summary: str
    method: TrainingMethod
    accelerator: Accelerator
    num_devices: int | None
    needs: tuple[DeviceNeed, ...]
    recommended: DeviceNeed | None
    at: DeviceNeed | None
    published: tuple[PublishedRun, ...]
    others: tuple[DeviceNeed, ...] = ()
    practical: DeviceNeed | None = None
    possible: DeviceNeed | None = None
    limit: PracticalLimit = PracticalLimit()
    more: tuple[str, ...] = ()

    def need(self, on_host: Way) -> DeviceNeed:
        """Return one of the needs."""
        return next(need for need in self.needs if need.on_host == on_host)

    @property
    def minimum(self) -> DeviceNeed:
        """The fewest devices whose optimizer does its step on the device; published configurations mean that."""
        possible = [need for need in self.needs if need.on_host != "always" and need.num_devices is not None]
        return min(possible, key=lambda need: need.num_devices or 0, default=self.needs[-2])

    @property
    def minimum_with_offload(self) -> DeviceNeed:
        """The fewest devices at all, however long a step takes."""
        return fewest(self.needs) or self.needs[-1]

    @property
    def fewest_at_all(self) -> DeviceNeed | None:
        """The fewest devices in any way that learns the same; None if it fits on none."""
        return self.possible or self.practical


def fewest(needs: Iterable[DeviceNeed]) -> DeviceNeed | None:
    """Return the need of the fewest devices, the first of several; None if it fits on none."""
    return min((n for n in needs if n.num_devices), key=lambda need: need.num_devices or 0, default=None)


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

    def order(option: HardwareOption) -> tuple[bool, bool, float, float]:
        cost = option.cost_per_step.middle if option.cost_per_step else float("inf")
        is_slow = option.verdict.answer == "possible"
        return option.step is None, is_slow, cost, option.step.middle if option.step else 0.0

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
