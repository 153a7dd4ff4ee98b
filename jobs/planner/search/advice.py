"""What would make a run fit, and what would make it faster: changes of knobs, each estimated anew, the best first.

Only performance knobs change (jobs.planner.search.tunable_knobs): never the learning rate, KL, lengths or the batch of
a step. What does not do what it promises is not listed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from jobs.catalog.rules.rule import changed, refused
from jobs.catalog.spec.runspec import RunSpec
from jobs.catalog.value import Value
from jobs.planner.constant import Constants, shipped_constants
from jobs.planner.estimate import estimate
from jobs.planner.job import Fleet, Job
from jobs.planner.read.context import Models, Workload, samples_per_update
from jobs.planner.read.spec import read_models
from jobs.planner.result import Estimate, JobInvalid, PoolEstimate, Verdict
from jobs.planner.search.layouts import breach, differences
from jobs.planner.search.plan_changes import Situation, plan_changes
from jobs.planner.validity import misfit_of

_WORTH_SECONDS = 0.005  # of a step: below, a change is not worth a line
_WORTH_SHARE = 0.005  # of a term: a change that lowers it by less is no largest term
_MOST_STEPS = 6
_NUM_TERMS = 3
_RANKS: Mapping[Verdict, int] = {"fits": 0, "tight": 1, "no": 2}
TOGETHER = "All of these together"
"""The title of several changes that do it together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """How a run does: the verdict; bytes and limit of the pool that binds, or bound before; its phase; a step."""

    verdict: Verdict
    pool: str
    phase: str
    needed: int
    limit: int
    seconds: float

    @property
    def fits(self) -> bool:
        """True if it does, tightly or not: what is above the limit by less than is known does not."""
        return self.verdict != "no" and self.needed <= self.limit


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedChange:
    """A change on offer. `changes`: values by knob id or field of hardware; `parts`: the titles of the changes in it.

    `saved_bytes` and `saved_seconds` are before less after, of the pool that binds and of a step.
    """

    id: str
    title: str
    changes: Mapping[str, Value]
    parts: tuple[str, ...]
    before: Figures
    after: Figures

    @property
    def saved_bytes(self) -> int:
        """Bytes that the peak of the pool goes down by."""
        return self.before.needed - self.after.needed

    @property
    def saved_seconds(self) -> float:
        """Seconds that a step takes less."""
        return self.before.seconds - self.after.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class LargestTerm:
    """One of the largest parts of an answer, and the change that lowers it most, None if none lowers it: of memory a
    term of the phase that binds, in bytes, of time a phase of the step, in seconds; `now` and `after` the change. No
    change counts with which the run fits less well than before."""

    of: Literal["memory", "time"]
    key: str
    now: float
    after: float
    change: OfferedChange | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanAdvice:
    """What would make a run fit, and what would make it faster. `together`: several changes, where none alone does it;
    None where one does, where the run fits as it is, or where no changes do. `largest_terms`: of the largest terms of
    memory, then of the longest phases, what moves each most."""

    fit: tuple[OfferedChange, ...]
    faster: tuple[OfferedChange, ...]
    together: OfferedChange | None
    largest_terms: tuple[LargestTerm, ...]


def advise(
    spec: RunSpec,
    models: Models,
    fleet: Fleet,
    *,
    workload: Workload | None = None,
    constants: Constants | None = None,
) -> PlanAdvice:
    """Return what would help a run on a fleet.

    Raises: JobInvalid if the run as it is cannot be estimated.
    """
    adviser = _Adviser(spec, models, fleet, workload or Workload(), constants or shipped_constants())
    fit = adviser.fit()
    needs_more = adviser.before.verdict == "no" and not any(each.after.fits for each in fit)
    return PlanAdvice(
        fit=fit,
        faster=adviser.faster(),
        together=adviser.together() if needs_more else None,
        largest_terms=adviser.largest_terms(),
    )


class _Adviser:
    """One run whose changes are estimated once."""

    def __init__(self, spec: RunSpec, models: Models, fleet: Fleet, workload: Workload, constants: Constants) -> None:
        self._spec, self._models, self._fleet, self._workload, self._constants = (
            spec,
            models,
            fleet,
            workload,
            constants,
        )
        self._samples = samples_per_update(spec)
        self._refusals = {problem.message for problem in refused(spec)}
        self._job = self._read(spec)
        self._before = estimate(self._job, constants)
        self.before = _figures(self._before, self._before.pool)
        self._after: dict[str, Estimate] = {}
        self._single = self._tried(spec, self._job, {}, ())

    def _read(self, spec: RunSpec) -> Job:
        return read_models(spec, self._models, self._fleet, self._workload, samples=self._samples)

    def _tried(
        self, spec: RunSpec, job: Job, sofar: Mapping[str, Value], parts: tuple[str, ...]
    ) -> list[OfferedChange]:
        """Return every plan change from a run, on top of what was changed so far, that the run takes and that is
        estimated."""
        here = Situation(spec=spec, job=job, fleet=self._fleet)
        by_changes: dict[tuple[tuple[str, Value], ...], OfferedChange] = {}
        for plan_change in plan_changes():
            made = plan_change.make(here)
            if not made or not _is_taken(spec, made):
                continue
            changes = differences(self._spec, {**sofar, **made})
            key = tuple(sorted(changes.items(), key=lambda item: item[0]))
            if changes and key not in by_changes and (after := self._estimated(changes)) is not None:
                if not parts:
                    self._after[plan_change.id] = after
                by_changes[key] = OfferedChange(
                    id=plan_change.id,
                    title=plan_change.title,
                    changes=changes,
                    parts=(*parts, plan_change.title),
                    before=self.before,
                    after=_figures(after, self.before.pool),
                )
        return list(by_changes.values())

    def _estimated(self, changes: Mapping[str, Value]) -> Estimate | None:
        """Return the estimate of the run with these changes; None if its layout cannot be."""
        job = self._read(changed(self._spec, changes))
        if job.fleet.num_devices > self._fleet.num_devices or misfit_of(job) is not None:
            return None
        try:
            return estimate(job, self._constants)
        except JobInvalid:
            return None

    def _is_allowed(self, advised: OfferedChange) -> bool:
        return breach(self._spec, advised.changes, allowed=self._refusals) is None

    def fit(self) -> tuple[OfferedChange, ...]:
        """Return the changes that lower the peak: first those with which the run fits, the fastest of them first."""
        helpful = [each for each in self._single if each.saved_bytes > 0 and self._is_allowed(each)]
        return tuple(sorted(helpful, key=_by_relief))

    def faster(self) -> tuple[OfferedChange, ...]:
        """Return the changes that shorten a step of a run that then fits, those that save most first."""
        worth = _WORTH_SECONDS * self.before.seconds
        helpful = [
            each for each in self._single if each.saved_seconds > worth and each.after.fits and self._is_allowed(each)
        ]
        return tuple(sorted(helpful, key=lambda each: -each.saved_seconds))

    def largest_terms(self) -> tuple[LargestTerm, ...]:
        """Return what moves each of the largest terms of memory, and of the longest phases, most."""
        terms, phases = _terms(self._before, self._before), _phases(self._before)
        memory = (self._term_row("memory", key, terms[key]) for key in _largest(terms))
        return (*memory, *(self._term_row("time", key, phases[key]) for key in _largest(phases)))

    def _term_row(self, of: Literal["memory", "time"], key: str, now: float) -> LargestTerm:
        by_term: list[tuple[float, OfferedChange]] = []
        for each in self._single:
            after = self._after[each.id]
            if _RANKS[after.verdict] > _RANKS[self._before.verdict] or (of == "time" and after.verdict == "no"):
                continue
            parts = _terms(after, self._before) if of == "memory" else _phases(after)
            if parts and parts.get(key, 0.0) < now * (1 - _WORTH_SHARE):
                by_term.append((parts.get(key, 0.0), each))
        by_term.sort(key=lambda entry: entry[0])
        best = next((entry for entry in by_term if self._is_allowed(entry[1])), None)
        return LargestTerm(of=of, key=key, now=now, after=now if best is None else best[0], change=best and best[1])

    def together(self) -> OfferedChange | None:
        """Return changes that make the run fit together, each the one that helps most after those before it."""
        offered = self._single
        for _ in range(_MOST_STEPS):
            best = next((each for each in sorted(offered, key=_by_relief) if self._is_allowed(each)), None)
            if best is None or best.saved_bytes <= 0:
                return None
            if best.after.fits:
                return _named(best, TOGETHER)
            spec = changed(self._spec, best.changes)
            offered = [
                each
                for each in self._tried(spec, self._read(spec), best.changes, best.parts)
                if each.after.needed < best.after.needed
            ]
            if not offered:
                return None
        return None


def _terms(estimate: Estimate, before: Estimate) -> dict[str, float]:
    """Return bytes by term, of the phase that bound before; none if it is not there any more."""
    pools = (pool for pool in estimate.pools if pool.name == before.pool)
    phases = (phase for pool in pools for phase in pool.phases if phase.phase == before.phase)
    return {term: float(size) for phase in phases for term, size in phase.memory.terms.items()}


def _phases(estimate: Estimate) -> dict[str, float]:
    """Return seconds by phase."""
    return {key: seconds.middle for key, seconds in estimate.time.phases.items()}


def _largest(parts: Mapping[str, float]) -> list[str]:
    return sorted((key for key in parts if parts[key] > 0), key=lambda key: -parts[key])[:_NUM_TERMS]


def _is_taken(spec: RunSpec, changes: Mapping[str, Value]) -> bool:
    return all(name in spec.knobs or name.startswith("hardware.") for name in changes)


def _named(advised: OfferedChange, title: str) -> OfferedChange:
    return OfferedChange(
        id="together",
        title=title,
        changes=advised.changes,
        parts=advised.parts,
        before=advised.before,
        after=advised.after,
    )


def _by_relief(advised: OfferedChange) -> tuple[int, float]:
    rank = _RANKS[advised.after.verdict]
    return (rank, advised.after.seconds) if rank < 2 else (rank, -float(advised.saved_bytes))


def _figures(estimate: Estimate, pool_name: str) -> Figures:
    """Return an estimate's figures, of the pool that bound before if it is still there."""
    pool = _pool(estimate, pool_name)
    return Figures(
        verdict=estimate.verdict,
        pool=pool.name,
        phase=pool.binding.phase,
        needed=pool.binding.memory.total,
        limit=pool.limit,
        seconds=estimate.time.step.middle,
    )


def _pool(estimate: Estimate, name: str) -> PoolEstimate:
    return next(
        (p for p in estimate.pools if p.name == name), next(p for p in estimate.pools if p.name == estimate.pool)
    )
