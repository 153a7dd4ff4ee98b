"""Search the layouts of a run: every one that can be, does not break a rule and fits, ranked by time or by cost; every
other one with its reason.

Ways to train and ways to generate are estimated apart and joined (jobs.planner.search.layout_space), so that a thousand
layouts take less than a second.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice, product
from typing import Literal

from jobs.catalog.rules.rule import changed, refused
from jobs.catalog.sentence import Sentence, sentence_of
from jobs.catalog.spec.parse import SpecInvalid, parse_spec
from jobs.catalog.spec.runspec import RunSpec, to_json
from jobs.catalog.value import Value
from jobs.planner.constant import Constants, shipped_constants
from jobs.planner.estimate import Estimator, Fit
from jobs.planner.job import Fleet, Job, Layout
from jobs.planner.read.context import Models, Workload, samples_per_update
from jobs.planner.read.spec import read_models
from jobs.planner.result import TIGHT_FROM, Estimate, JobInvalid
from jobs.planner.search.axes import Changes, powers
from jobs.planner.search.layout_space import Space, spaces_of
from jobs.planner.search.shortfall import Shortfall, no_cache, shortfall_of, too_large
from jobs.planner.search.tunable_knobs import teaches_the_same
from jobs.planner.validity import REASONS, engine_misfit, training_misfit

Goal = Literal["time", "cost", "room"]
GOALS: Mapping[str, str] = {
    "time": "The shortest step",
    "cost": "The cheapest step",
    "room": "The most memory to spare",
}
MAX_LAYOUTS = 1000
_NEAREST = 3
_NOT_SIZES = ("train.", "memory.")
_NOT_LAYOUT = ("train.", "memory.gradient_checkpointing", "memory.megatron_recompute")
_KEEPS: Changes = {"memory.gradient_checkpointing": False, "memory.megatron_recompute": "none"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedLayout:
    """A layout that fits. `changes`: knobs (or fields of hardware) that take the run there, by id, those alone that
    differ. `device_seconds` of one step, `cost` of one step where a price is known, `room`: free bytes of the fullest
    device. `is_best_trade`: no other is at once as fast, as cheap and as roomy."""

    changes: Mapping[str, Value]
    job: Job
    estimate: Estimate
    seconds: float
    device_seconds: float
    cost: float | None
    room: int
    is_best_trade: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NearMiss:
    """A layout that was rejected, among those of its reason the one that came nearest; `message` gives the numbers."""

    changes: Mapping[str, Value]
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectionCount:
    """How many layouts were rejected for one reason, and the nearest misses among them."""

    reason: str
    label: str
    count: int
    nearest: tuple[NearMiss, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """The best layouts in order, one of each kind, how many more fit, and why the others were rejected.

    `considered` = listed + `unlisted` + rejected + `skipped`, which are layouts that were not looked at because there
    were more than the search takes.
    """

    goal: Goal
    considered: int
    ranked: tuple[RankedLayout, ...]
    unlisted: int
    rejected: tuple[RejectionCount, ...]
    skipped: int


@dataclass(slots=True)
class _Way:
    """A way to train that can be; `job` is None until it is read."""

    changes: Changes
    layout: Layout
    job: Job | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    """A layout that fits, of which the whole answer is made once it is listed."""

    changes: Changes
    job: Job
    fit: Fit
    seconds: float
    room: int

    @property
    def device_seconds(self) -> float:
        """Of one step."""
        return self.seconds * self.job.fleet.num_devices


class _Rejections:
    """Counts by reason, and the nearest few of each."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._nearest: dict[str, list[tuple[float, int, Changes, str]]] = {}

    def add(self, reason: str, changes: Changes, message: str, *, distance: float = 0.0, times: int = 1) -> None:
        """Count a layout that misses by `distance` (a share above what there is; 0 where it cannot be measured)."""
        count = self._counts.get(reason, 0)
        self._counts[reason] = count + times
        nearest = self._nearest.setdefault(reason, [])
        nearest.append((distance, count, changes, message))
        nearest.sort(key=lambda entry: entry[:2])
        del nearest[_NEAREST:]

    @property
    def count(self) -> int:
        """Layouts rejected."""
        return sum(self._counts.values())

    def result(self, spec: RunSpec) -> tuple[RejectionCount, ...]:
        """Return the reasons, the most frequent first."""
        return tuple(
            RejectionCount(
                reason=reason,
                label=REASONS[reason],
                count=count,
                nearest=tuple(
                    NearMiss(changes=differences(spec, changes), message=message)
                    for _, _, changes, message in self._nearest[reason]
                ),
            )
            for reason, count in sorted(self._counts.items(), key=lambda item: -item[1])
        )


def search(
    spec: RunSpec,
    models: Models,
    fleet: Fleet,
    *,
    goal: Goal = "time",
    workload: Workload | None = None,
    limit: int = 20,
    most: int = MAX_LAYOUTS,
    constants: Constants | None = None,
) -> SearchResult:
    """Return the best `limit` layouts of a run on the fleet, looking at up to `most`.

    For the shortest step all devices are used; for the others also halves, quarters and eighths of them. A layout is
    listed only if the run that it makes is taken by the validator, breaks no rule that the run itself does not break,
    and learns the same.
    """
    sizes = _sizes(fleet)[: 1 if goal == "time" else None]
    spaces = spaces_of(spec, models.policy, fleet, sizes=sizes)
    hunt = _Hunt(spec, models, fleet, workload or Workload(), constants or shipped_constants())
    total = sum(space.size for space in spaces)
    for space in spaces:
        hunt.look_at(space, most=max(round(most * space.size / max(total, 1)), 1))
    return hunt.result(goal, limit=limit, considered=total)


def differences(spec: RunSpec, changes: Changes) -> dict[str, Value]:
    """Return the changes that change something in the run."""
    now = spec.values() | {f"hardware.{field}": value for field, value in spec.hardware}
    return {name: value for name, value in changes.items() if now.get(name) != value}


def _sizes(fleet: Fleet) -> tuple[int, ...]:
    """Return all devices, and halves, quarters and eighths of them, as far as these are parts of a node or whole nodes;
    the most first."""
    per_node = fleet.devices_per_node
    parts = {fleet.num_devices // share for share in powers(8) if fleet.num_devices // share}
    return tuple(sorted({n if n <= per_node else n // per_node * per_node for n in parts}, reverse=True))


class _Hunt:
    """One search under way."""

    def __init__(self, spec: RunSpec, models: Models, fleet: Fleet, workload: Workload, constants: Constants) -> None:
        self._spec, self._models, self._fleet, self._workload = spec, models, fleet, workload
        self._samples = samples_per_update(spec)
        self._estimator = Estimator(constants)
        self._rejections = _Rejections()
        self._candidates: list[_Candidate] = []
        self._skipped = 0
        self._old_rules = {problem.message for problem in refused(spec)}

    def look_at(self, space: Space, *, most: int) -> None:
        """Estimate a placement's layouts; at most so many."""
        trains = self._ways_to_train(space)
        generates = self._ways_to_generate(space, times=len(trains))
        pairs = len(trains) * len(generates)
        if pairs > most:
            self._skipped += pairs - self._best_first(space, trains, generates, most)
            return
        for train, (generate, engine) in product(trains, generates):
            self._consider({**space.placement, **train.changes, **generate}, _joined(self._job(space, train), engine))

    def _ways_to_train(self, space: Space) -> list[_Way]:
        """Return the ways to train that can be; each of the others stands for so many layouts.

        Only one is read of those that differ in micro-batches and recomputation alone, and one is asked for its sizes
        of those that differ in where states lie as well.
        """
        ways: list[_Way] = []
        sizes: dict[Hashable, Shortfall | None] = {}
        shortfalls: dict[Hashable, tuple[Shortfall | None, Layout]] = {}
        times = len(space.ways_to_generate)
        for changes in space.ways_to_train:
            items = tuple(changes.items())
            of_sizes = tuple(item for item in items if not item[0].startswith(_NOT_SIZES))
            key = tuple(item for item in items if not item[0].startswith(_NOT_LAYOUT))
            job = None
            if (short := sizes.get(of_sizes)) is None and key not in shortfalls:
                job = self._read({**space.placement, **changes})
                if of_sizes not in sizes:
                    misfit = training_misfit(job)
                    short = sizes[of_sizes] = None if misfit is None else Shortfall(misfit, 0.0)
                shortfalls[key] = (short or too_large(job), job.policy.layout)
            short, layout = (short, None) if short is not None else shortfalls[key]
            if short is None and layout is not None:
                ways.append(_Way(changes, layout, job))
            elif short is not None:
                self._reject(short, {**space.placement, **changes}, times=times)
        return ways

    def _ways_to_generate(self, space: Space, *, times: int) -> list[tuple[Changes, Job]]:
        """Return the ways to generate that can be, with their jobs; each of the others stands for so many layouts."""
        ways = []
        for changes in space.ways_to_generate:
            job = self._read({**space.placement, **changes})
            misfit = engine_misfit(job)
            short = no_cache(self._estimator.rollout(job)) if misfit is None else Shortfall(misfit, 0.0)
            if short is None:
                ways.append((changes, job))
            else:
                self._reject(short, {**space.placement, **changes}, times=times)
        return ways

    def _reject(self, short: Shortfall, changes: Changes, *, times: int = 1) -> None:
        self._rejections.add(short.misfit.reason, changes, short.misfit.message, distance=short.share, times=times)

    def _job(self, space: Space, way: _Way) -> Job:
        """Return the job of a way to train, which is read once."""
        if way.job is None:
            way.job = self._read({**space.placement, **way.changes})
        return way.job

    def _best_first(self, space: Space, trains: list[_Way], generates: list[tuple[Changes, Job]], most: int) -> int:
        """Estimate the layouts that promise most, up to so many; return how many.

        First every way to train (if they are too many, evenly from the least divided to the most) beside the engine
        that takes least; then those that fitted, the fastest first, beside every other engine. A way to train that does
        not fit beside the least engine fits beside none.
        """
        if not trains or not generates:
            return 0
        least = min(generates, key=lambda pair: _appetite(pair[1]))
        order = sorted(trains, key=_degree)
        budget = max(most // 2, 1)
        if len(order) > budget:
            order = [order[number * len(order) // budget] for number in range(budget)]
        fitting: list[tuple[float, _Way]] = []
        for way in order:
            job = _joined(self._job(space, way), least[1])
            ranked = self._consider({**space.placement, **way.changes, **least[0]}, job)
            if ranked is not None:
                fitting.append((ranked.seconds, way))
        fitting.sort(key=lambda entry: entry[0])
        rest = [pair for pair in generates if pair is not least]
        seen = len(order)
        for (_, way), (generate, engine) in islice(product(fitting, rest), most - seen):
            self._consider({**space.placement, **way.changes, **generate}, _joined(self._job(space, way), engine))
            seen += 1
        return seen

    def _read(self, changes: Changes) -> Job:
        spec = changed(self._spec, changes)
        return read_models(spec, self._models, self._fleet, self._workload, samples=self._samples)

    def _consider(self, changes: Changes, job: Job) -> _Candidate | None:
        """Estimate whether one layout fits, and how long its step is; return it if it does."""
        try:
            fit = self._estimator.fit(job)
            if short := shortfall_of(fit):
                self._reject(short, changes)
                return None
            seconds = self._estimator.seconds(fit)
        except JobInvalid as invalid:
            self._rejections.add("invalid", changes, sentence_of(invalid))
            return None
        room = min(pool.limit - pool.binding.memory.total for pool in fit.pools)
        candidate = _Candidate(changes=changes, job=job, fit=fit, seconds=seconds, room=room)
        self._candidates.append(candidate)
        return candidate

    def result(self, goal: Goal, *, limit: int, considered: int) -> SearchResult:
        """Return what was found; the best are held against the validator and the rules before they are listed."""
        listed: dict[Hashable, RankedLayout] = {}
        unlisted = 0
        for candidate in sorted(self._candidates, key=_key(goal)):
            kind = _kind(candidate.job)
            if len(listed) == limit or kind in listed:
                unlisted += 1
                continue
            changes = differences(self._spec, candidate.changes)
            problem = self._broken(changes)
            if problem is None:
                listed[kind] = _ranked(changes, candidate, self._estimator.answer(candidate.fit))
            else:
                self._rejections.add("rule", candidate.changes, problem)
        return SearchResult(
            goal=goal,
            considered=considered,
            ranked=tuple(_traded(list(listed.values()))),
            unlisted=unlisted,
            rejected=self._rejections.result(self._spec),
            skipped=self._skipped,
        )

    def _broken(self, changes: Changes) -> str | None:
        """Return why the run with these changes would not be launched, None if it would."""
        return breach(self._spec, changes, allowed=self._old_rules)


def breach(spec: RunSpec, changes: Changes, *, allowed: set[str]) -> str | None:
    """Return why a changed run would not be launched, or would not learn the same; None if neither is so.

    `allowed`: what the rules say of the run as it is, which is not held against a change.
    """
    wanted = changed(spec, changes)
    if not teaches_the_same(spec, wanted):  # before the validator, which takes ten times as long
        return Sentence("It would change what is learned.")
    try:
        after = parse_spec(to_json(wanted))
    except SpecInvalid as invalid:
        return invalid.problems[0].message
    new = [problem.message for problem in refused(after) if problem.message not in allowed]
    return new[0] if new else None


def _joined(train: Job, generate: Job) -> Job:
    """Return the job that trains as the one and generates as the other."""
    return replace(train, engine=generate.engine, engine_devices=generate.engine_devices)


def _appetite(job: Job) -> float:
    """Return the share of a device that an engine takes; of two that take as much the smaller one is hungrier."""
    engine = job.engine
    return 0.0 if engine is None else engine.utilization + 1e-3 / engine.tensor


def _degree(way: _Way) -> tuple[int, int, bool]:
    """Return how far a way to train divides the model: the least comes first, and recomputing before keeping."""
    layout = way.layout
    keeps = any(way.changes.get(knob_id) == value for knob_id, value in _KEEPS.items())
    return layout.tensor * layout.pipeline * layout.context, layout.expert, keeps


def _ranked(changes: Changes, candidate: _Candidate, estimate: Estimate) -> RankedLayout:
    price = candidate.job.fleet.price
    return RankedLayout(
        changes=changes,
        job=candidate.job,
        estimate=estimate,
        seconds=candidate.seconds,
        device_seconds=candidate.device_seconds,
        cost=None if price is None else candidate.device_seconds / 3600 * price,
        room=candidate.room,
    )


def _key(goal: Goal) -> Callable[[_Candidate], tuple[bool, float, int]]:
    """Return the order of a goal. A tight layout comes after all that fit: it is the first to fail. Of two that differ
    by less than a hundredth, the one with more room comes first."""

    def key(ranked: _Candidate) -> tuple[bool, float, int]:
        is_tight = max(pool.share for pool in ranked.fit.pools) > TIGHT_FROM
        measure = {"time": ranked.seconds, "cost": ranked.device_seconds, "room": -float(ranked.room)}[goal]
        return is_tight, measure if goal == "room" else float(f"{measure:.2e}"), -ranked.room

    return key


def _kind(job: Job) -> Hashable:
    """Return what makes a layout another one for people: sizes, what is on the host, what is recomputed; of layouts
    that differ in micro-batches and memory share alone the best stands for all."""
    policy, engine = job.policy, job.engine
    serving = () if engine is None else (engine.num_engines, engine.tensor)
    hosted = tuple((frozen.role, frozen.is_offloaded) for frozen in job.frozen)
    return job.placement, policy.layout, policy.offload, policy.checkpointing, serving, hosted


def _traded(ranked: list[RankedLayout]) -> Iterator[RankedLayout]:
    """Yield the layouts, those marked that none of the others beats in time, cost and room at once."""
    for one in ranked:
        beaten = any(
            other is not one
            and other.seconds <= one.seconds
            and other.device_seconds <= one.device_seconds
            and other.room >= one.room
            and (other.seconds, other.device_seconds, other.room) != (one.seconds, one.device_seconds, one.room)
            for other in ranked
        )
        yield replace(one, is_best_trade=not beaten)
