"""Shapes of the planner's questions and answers on the API. Sizes are bytes, times seconds, shares parts of 1."""

from collections.abc import Sequence
from typing import Annotated, Literal

from ninja import Body, Field, Schema
from pydantic import JsonValue

from console.api.planner.estimate_schema import PlanInterval, PlanPool, PlanSensitivity
from console.api.runs.spec_schema import SpecIn
from jobs.catalog.value import Value
from jobs.planner.result import Estimate, Interval
from jobs.planner.search.advice import LargestTerm, OfferedChange, PlanAdvice
from jobs.planner.search.layouts import RankedLayout, RejectionCount, SearchResult
from jobs.planner.sensitivity import Sensitivity
from jobs.planning.question import PlannerQuestion


class WhatIfIn(Schema):
    """Hypothetical hardware, whatever the cluster has. `accelerator`: an id or name of `GET /accelerators`."""

    model_config = {"extra": "forbid"}

    accelerator: str = Field(max_length=200)
    nodes: int = Field(1, ge=1, le=4096, strict=True)
    devices_per_node: int = Field(8, ge=1, le=128, strict=True)
    host_gb: int = Field(0, ge=0, le=1_000_000, strict=True, description="RAM of a node, GB; 0: nobody said")


class WorkloadIn(Schema):
    """What is known of the data. 0: not known; a preview fills in what it counted, caps stand for the rest."""

    model_config = {"extra": "forbid"}

    mean_prompt: float = Field(0.0, ge=0, le=1e8, strict=True, description="Tokens; without answers: of a whole sample")
    mean_response: float = Field(0.0, ge=0, le=1e8, strict=True, description="Tokens")
    spread: float = Field(0.0, ge=0, le=5, strict=True, description="Sigma of ln(tokens of an answer)")
    samples: int = Field(0, ge=0, le=10**12, strict=True, description="Of the training set")
    reward_seconds: float = Field(
        0.0, ge=0, le=1e7, strict=True, description="In which the rewards of one step are computed"
    )


class PlanIn(Schema):
    """What to plan. `spec`: as `POST /runs` takes it, what is left out takes its default. `config`: the policy's
    config.json, for a model that the console does not know. `recipe`: whose hardware is planned for
    where the cluster has none."""

    model_config = {"extra": "forbid"}

    spec: Annotated[SpecIn, Body()]
    what_if: WhatIfIn | None = None
    config: dict[str, JsonValue] | None = None
    workload: WorkloadIn | None = None
    recipe: str = Field("", max_length=200, description="Id of a recipe")


class LayoutsIn(PlanIn):
    """What to search layouts for; `goal`: the shortest step, the cheapest, or the most memory to spare."""

    goal: str = Field("time", description="time, cost or room")
    limit: int = Field(20, strict=True, description="Layouts to list, 1 to 100")


class PlanRollout(Schema):
    """What an engine's cache holds: bytes and tokens, sequences of mean and of greatest length at once."""

    kv_bytes: int
    kv_tokens: int
    mean_sequences: float
    full_sequences: float


class PlanTime(Schema):
    """A step: by phase in order, and as a whole, where what overlaps is not counted twice. `mfu`: of the update."""

    phases: dict[str, PlanInterval]
    step: PlanInterval
    tokens_per_second: PlanInterval
    bottleneck: str
    mfu: float


class PlanCost(Schema):
    """The whole run; null where the number of steps or the price is not known."""

    seconds: PlanInterval | None
    device_hours: PlanInterval | None
    money: PlanInterval | None
    currency: str


class PlanConstant(Schema):
    """A constant that the answer rests on."""

    name: str
    value: float
    is_measured: bool
    source: str


class PlanFleet(Schema):
    """The hardware that was used; `num_devices`: what the run asks of it; `price`: of a device hour."""

    accelerator: str
    label: str
    num_devices: int
    devices_per_node: int
    available_devices: int
    price: float | None
    currency: str


class PlanOut(Schema):
    """The whole answer. `verdict`: fits, tight or no; `pool`, `phase`, `term`: what binds. `band`: how sure the memory
    is, as a share of it. `unpriced`: knobs that change memory or time and are not estimated; `notes`: assumptions."""

    verdict: Literal["fits", "tight", "no"]
    pool: str
    phase: str
    term: str
    band: float
    fleet: PlanFleet
    parameters: int = Field(description="Of the policy")
    active_parameters: int
    is_exact: bool = Field(description="Whether they are counted to the last one; notes say what they rest on if not")
    pools: list[PlanPool]
    rollout: PlanRollout | None
    time: PlanTime
    cost: PlanCost
    host_bytes: int = Field(description="RAM of a node")
    shm_bytes: int = Field(description="Shared memory of a node")
    checkpoint_bytes: int
    export_bytes: int
    used: list[PlanConstant]
    unpriced: list[str]
    notes: list[str]

    @classmethod
    def of(cls, question: PlannerQuestion, estimate: Estimate) -> "PlanOut":
        """Return an estimate as the API gives it."""
        fleet, time, cost = question.job.fleet, estimate.time, estimate.cost
        return cls(
            verdict=estimate.verdict,
            pool=estimate.pool,
            phase=estimate.phase,
            term=estimate.term,
            band=estimate.band,
            fleet=PlanFleet(
                accelerator=fleet.accelerator.id,
                label=fleet.accelerator.label,
                num_devices=fleet.num_devices,
                devices_per_node=fleet.devices_per_node,
                available_devices=question.fleet.num_devices,
                price=fleet.price,
                currency=fleet.currency,
            ),
            parameters=question.models.policy.parameters,
            active_parameters=question.models.policy.active_parameters,
            is_exact=question.models.policy.is_exact,
            pools=[PlanPool.of(pool) for pool in estimate.pools],
            rollout=None
            if estimate.rollout is None
            else PlanRollout(
                kv_bytes=estimate.rollout.kv_bytes,
                kv_tokens=estimate.rollout.kv_tokens,
                mean_sequences=estimate.rollout.mean_sequences,
                full_sequences=estimate.rollout.full_sequences,
            ),
            time=PlanTime(
                phases={phase: PlanInterval.of(seconds) for phase, seconds in time.phases.items()},
                step=PlanInterval.of(time.step),
                tokens_per_second=PlanInterval.of(time.tokens_per_second),
                bottleneck=time.bottleneck,
                mfu=time.mfu,
            ),
            cost=PlanCost(
                seconds=_or_none(cost.seconds),
                device_hours=_or_none(cost.device_hours),
                money=_or_none(cost.money),
                currency=cost.currency,
            ),
            host_bytes=estimate.host_bytes,
            shm_bytes=estimate.shm_bytes,
            checkpoint_bytes=estimate.checkpoint_bytes,
            export_bytes=estimate.export_bytes,
            used=[
                PlanConstant(name=used.name, value=used.value, is_measured=used.is_measured, source=used.source)
                for used in estimate.used
            ],
            unpriced=list(question.job.unpriced),
            notes=list(estimate.notes),
        )


class PlanChangeOut(Schema):
    """A change on offer: knobs (or fields of hardware) to their values; figures of the pool that binds, before and
    after it; `saved_bytes` and `saved_seconds` of a step are before less after."""

    id: str
    title: str
    changes: dict[str, Value]
    parts: list[str]
    verdict: Literal["fits", "tight", "no"]
    phase: str
    needed: int
    limit: int
    seconds: float
    saved_bytes: int
    saved_seconds: float

    @classmethod
    def of(cls, advised: OfferedChange) -> "PlanChangeOut":
        """Return a change as the API gives it."""
        return cls(
            id=advised.id,
            title=advised.title,
            changes=dict(advised.changes),
            parts=list(advised.parts),
            verdict=advised.after.verdict,
            phase=advised.after.phase,
            needed=advised.after.needed,
            limit=advised.after.limit,
            seconds=advised.after.seconds,
            saved_bytes=advised.saved_bytes,
            saved_seconds=advised.saved_seconds,
        )


class PlanLargestTerm(Schema):
    """One of the largest parts of the plan: a term of memory in the phase that binds (bytes), or a phase of a step
    (seconds); `after`: with the change that lowers it most, null if none does."""

    of: Literal["memory", "time"]
    key: str
    now: float
    after: float
    change: PlanChangeOut | None

    @classmethod
    def of_term(cls, term: LargestTerm) -> "PlanLargestTerm":
        """Return a term as the API gives it."""
        change = None if term.change is None else PlanChangeOut.of(term.change)
        return cls(of=term.of, key=term.key, now=term.now, after=term.after, change=change)


class PlanAdviceOut(Schema):
    """What would make the run fit, and what would make it faster, the best first. `together`: several changes, where no
    single one makes it fit. `largest_terms`: of the three largest terms of memory, then of the three longest phases,
    what lowers each most. `levers`: the same by its former name. `constants`: those that move the result, the one that
    moves it most first."""

    fit: list[PlanChangeOut]
    faster: list[PlanChangeOut]
    together: PlanChangeOut | None
    largest_terms: list[PlanLargestTerm]
    levers: list[PlanLargestTerm] = Field(
        description="Deprecated: the same as `largest_terms`", json_schema_extra={"deprecated": True}
    )
    constants: list[PlanSensitivity]

    @classmethod
    def of(cls, advice: PlanAdvice, moved: Sequence[Sensitivity]) -> "PlanAdviceOut":
        """Return advice as the API gives it."""
        largest_terms = [PlanLargestTerm.of_term(each) for each in advice.largest_terms]
        return cls(
            largest_terms=largest_terms,
            levers=largest_terms,
            constants=[PlanSensitivity.of(each) for each in moved],
            fit=[PlanChangeOut.of(each) for each in advice.fit],
            faster=[PlanChangeOut.of(each) for each in advice.faster],
            together=None if advice.together is None else PlanChangeOut.of(advice.together),
        )


class PlanLayout(Schema):
    """A layout that fits: `changes` take the run there. `cost` of one step, null without a price; `room`: free bytes
    of the fullest device. `is_best_trade`: no other is at once as fast, as cheap and as roomy."""

    changes: dict[str, Value]
    verdict: Literal["fits", "tight", "no"]
    num_devices: int
    seconds: float
    device_seconds: float
    cost: float | None
    room: int
    is_best_trade: bool

    @classmethod
    def of(cls, ranked: RankedLayout) -> "PlanLayout":
        """Return a layout as the API gives it."""
        return cls(
            changes=dict(ranked.changes),
            verdict=ranked.estimate.verdict,
            num_devices=ranked.job.fleet.num_devices,
            seconds=ranked.seconds,
            device_seconds=ranked.device_seconds,
            cost=ranked.cost,
            room=ranked.room,
            is_best_trade=ranked.is_best_trade,
        )


class PlanNearMiss(Schema):
    """A layout that was rejected, and by how much."""

    changes: dict[str, Value]
    says: str


class PlanRejected(Schema):
    """How many layouts were rejected for one reason, and the nearest misses among them."""

    reason: str
    label: str
    count: int
    nearest: list[PlanNearMiss]

    @classmethod
    def of(cls, rejected: RejectionCount) -> "PlanRejected":
        """Return a reason as the API gives it."""
        nearest = [PlanNearMiss(changes=dict(miss.changes), says=miss.message) for miss in rejected.nearest]
        return cls(reason=rejected.reason, label=rejected.label, count=rejected.count, nearest=nearest)


class PlanLayoutsOut(Schema):
    """The best layouts first. considered = listed + `unlisted` + rejected + `skipped` (too many to look at)."""

    goal: str
    considered: int
    layouts: list[PlanLayout]
    unlisted: int
    rejected: list[PlanRejected]
    skipped: int

    @classmethod
    def of(cls, ranked: SearchResult) -> "PlanLayoutsOut":
        """Return a search as the API gives it."""
        return cls(
            goal=ranked.goal,
            considered=ranked.considered,
            layouts=[PlanLayout.of(each) for each in ranked.ranked],
            unlisted=ranked.unlisted,
            rejected=[PlanRejected.of(each) for each in ranked.rejected],
            skipped=ranked.skipped,
        )


def _or_none(value: Interval | None) -> PlanInterval | None:
    return None if value is None else PlanInterval.of(value)
