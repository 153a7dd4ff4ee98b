"""What the planner answers: bytes per device by pool, phase and term; a verdict; seconds by phase as intervals."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

from jobs.catalog.role import ROLES
from jobs.catalog.sentence import Sentence
from jobs.planner.constant import Constants
from jobs.planner.job import Fleet
from profiling.phases import BY_KEY

TERMS = ("weights", "gradients", "optimizer", "kv_cache", "activations", "logits", "graphs", "overhead")
"""The terms of memory, in the order in which bars show them. KV cache is the engine's; weights are everybody's."""

Term = Literal["weights", "gradients", "optimizer", "kv_cache", "activations", "logits", "graphs", "overhead"]
_TERMS: tuple[Term, ...] = get_args(Term)
Verdict = Literal["fits", "tight", "no"]
TIGHT_FROM, TIGHT_TO = 0.92, 1.08  # shares of what is usable: nine of ten peaks are within 8 %; above, it does not fit
ENGINE_LACK = 0.03  # of what is usable, which an engine may lack to start and be tight: its own bytes are known better


def phase_word(key: str) -> Sentence:
    """Return what people call a phase."""
    return Sentence(BY_KEY[key].label)


POOL_WORDS: Mapping[str, str] = {role.id: role.label for role in ROLES.values()}
"""What people call the devices of a pool, by its name."""


def pool_word(name: str) -> Sentence:
    """Return what people call the devices of a pool."""
    return Sentence(POOL_WORDS.get(name, name))


class JobInvalid(ValueError):
    """A job that cannot be estimated; `field` names the value at fault, the text is a sentence for people."""

    def __init__(self, field: str, message: str) -> None:
        self.field = field
        super().__init__(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A quantity and how sure it is: low <= middle <= high."""

    low: float
    middle: float
    high: float

    def __add__(self, other: "Interval") -> "Interval":
        return Interval(low=self.low + other.low, middle=self.middle + other.middle, high=self.high + other.high)

    def beside(self, other: "Interval") -> "Interval":
        """Return the sum of two whose errors do not depend on each other: they reach as far as the root of squares."""
        middle = self.middle + other.middle
        return Interval(
            low=middle - math.hypot(self.middle - self.low, other.middle - other.low),
            middle=middle,
            high=middle + math.hypot(self.high - self.middle, other.high - other.middle),
        )

    def at_least(self, factor: float) -> "Interval":
        """Return an interval that reaches at least a factor to both sides of its middle."""
        low, high = min(self.low, self.middle / factor), max(self.high, self.middle * factor)
        return Interval(low=low, middle=self.middle, high=high)

    def at_most(self, factor: float) -> "Interval":
        """Return an interval that reaches at most a factor to both sides of its middle."""
        low, high = max(self.low, self.middle / factor), min(self.high, self.middle * factor)
        return Interval(low=low, middle=self.middle, high=high)

    def scaled(self, factor: float) -> "Interval":
        """Return the interval times a positive number."""
        return Interval(low=self.low * factor, middle=self.middle * factor, high=self.high * factor)

    def inverse(self, numerator: float) -> "Interval":
        """Return numerator / interval."""
        return Interval(low=numerator / self.high, middle=numerator / self.middle, high=numerator / self.low)


def around(middle: float, factor: float) -> Interval:
    """Return the interval that reaches a factor to both sides of its middle."""
    return Interval(low=middle / factor, middle=middle, high=middle * factor)


@dataclass(frozen=True, kw_only=True)
class PeakMemory:
    """Peak bytes of one device by term, in one phase; a term that is not there is 0."""

    terms: Mapping[Term, int]

    @cached_property
    def total(self) -> int:
        """All terms."""
        return sum(self.terms.values())


class SummedMemory(PeakMemory):
    """What several hold together, term by term in the order of the terms: of most layouts only the total is asked."""

    def __init__(self, parts: Sequence[PeakMemory]) -> None:
        vars(self)["parts"] = parts

    @cached_property
    def terms(self) -> Mapping[Term, int]:
        """The sums that are not 0."""
        both: dict[Term, int] = {}
        for part in vars(self)["parts"]:
            for term, size in part.terms.items():
                both[term] = both.get(term, 0) + size
        return {term: both[term] for term in _TERMS if both.get(term)}

    @cached_property
    def total(self) -> int:
        """All terms."""
        return sum(part.total for part in vars(self)["parts"])


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseMemory:
    """A phase's peak on the device of a pool that holds most. `phase` is a key of profiling.phases.

    `by_role`: the same bytes by who holds them ("policy", "critic", "reference", "reward", "vllm").
    """

    phase: str
    role: str
    memory: PeakMemory
    by_role: Mapping[str, PeakMemory]


@dataclass(frozen=True, kw_only=True)
class PoolEstimate:
    """Devices that hold the same roles. `limit` is the bytes that a job can use of one."""

    name: str
    num_devices: int
    limit: int
    phases: tuple[PhaseMemory, ...]

    @cached_property
    def binding(self) -> PhaseMemory:
        """The phase that needs most."""
        return max(self.phases, key=lambda phase: phase.memory.total)

    @property
    def share(self) -> float:
        """The most that is needed, as a share of the limit."""
        return self.binding.memory.total / self.limit


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCache:
    """What an engine's cache holds: bytes and tokens per engine, sequences of mean and of greatest length at once."""

    kv_bytes: int
    kv_tokens: int
    mean_sequences: float
    full_sequences: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """Seconds of one step by phase, in order, and of the whole; what overlaps is not counted twice in `step`."""

    phases: Mapping[str, Interval]
    step: Interval
    tokens_per_second: Interval
    bottleneck: str
    mfu: float
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Of the whole run: seconds, device hours, money; None where the number of steps or the price is not known."""

    seconds: Interval | None
    device_hours: Interval | None
    money: Interval | None
    currency: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstantUse:
    """A constant that an answer rests on, and its evidence."""

    name: str
    value: float
    is_measured: bool
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """The whole answer. `band`: the memory's own uncertainty as a share of it (p90 of its kind of case); `risk`: what
    of it is beyond that of models which were measured.

    `verdict`, `pool`, `phase`, `term`: the binding pool, its phase and its largest term. `host_bytes`: RAM per node;
    `shm_bytes`: shared memory per node; `checkpoint_bytes`: one resumable checkpoint; `export_bytes`: weights alone.
    `unpriced`: ids of knobs that change memory or time in a way that is not estimated.
    """

    verdict: Verdict
    pools: tuple[PoolEstimate, ...]
    pool: str
    phase: str
    term: Term
    band: float
    rollout: EngineCache | None
    time: StepTime
    cost: Cost
    host_bytes: int
    shm_bytes: int
    checkpoint_bytes: int
    export_bytes: int
    used: tuple[ConstantUse, ...]
    unpriced: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    risk: float = 0.0

    @property
    def binding(self) -> PhaseMemory:
        """The phase that decides, on the pool that decides."""
        pool = next(each for each in self.pools if each.name == self.pool)
        return next(each for each in pool.phases if each.phase == self.phase)


def lean_of(share: float, risk: float) -> Sentence:
    """Say to which side a tight verdict leans. `share`: of what is usable, what is needed; `risk`: as in Estimate."""
    if share * (1 + risk) <= 1:
        return Sentence("it more likely runs than not")
    if share > 1:
        return Sentence("it more likely runs out of memory")
    return Sentence("it may go either way")


def cost_of(step: Interval, fleet: Fleet, num_steps: int, constants: Constants) -> Cost:
    """Return the cost of `num_steps` steps (0: unknown) on all devices of a fleet.

    Checkpoints, evaluation and restarts add a share of the run; storage and hosts are not priced.
    """
    if not num_steps:
        return Cost(seconds=None, device_hours=None, money=None, currency=fleet.currency)
    seconds = step.scaled(num_steps / (1 - constants.speed.restart_share))
    hours = seconds.scaled(fleet.num_devices / 3600)
    money = None if fleet.price is None else hours.scaled(fleet.price)
    return Cost(seconds=seconds, device_hours=hours, money=money, currency=fleet.currency)
