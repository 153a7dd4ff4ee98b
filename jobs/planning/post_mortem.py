"""A run that died of memory, held against its plan: where, which term was too large, and what would have fitted.

    post_mortem(run, user=user, state=cluster_state()) -> PostMortem | None

The plan is that of the run's spec on what it ran on. Where the message tells what the device held and what was asked
for, the plan is off by demanded / planned, and a change fits if the plan with it, off by as much, is below what there
was. On the CPU the same goes for the process: what it held when it was last read, plus what it asked for. A plan counts
as too large only where the phase had been whole before, in an earlier step: what died half-way wanted more.
"""

import math
from dataclasses import dataclass, field
from typing import Literal

from jobs.accounts.access import User
from jobs.catalog.spec.runspec import RunSpec
from jobs.cluster.ray_api import ClusterState
from jobs.models import Run
from jobs.planner.job import Fleet
from jobs.planner.result import Estimate, PhaseMemory, PoolEstimate, Term
from jobs.planner.search.remedy import Ground, SmallestChange, smallest
from jobs.planning.memory_failure import MemoryFailure, memory_failure
from jobs.planning.plan_vs_measured import BANDS, STATES, RunMeasurements, read_measured
from jobs.planning.question import PlannerQuestion, estimate_of
from jobs.planning.run_plan import question_of

KnownBy = Literal["measured", "allocation", "rest", "plan"]
BELOW = 0.95
"""Of what the process is known to have got, so much may be planned: the reading is some moments old."""
_LIKE = 0.02  # of one tensor: messages round to two decimals
_MORE = 1.25  # of a cache that was too small
_SHORT = 0.9  # of the plan is all that is taken to have been there, where nothing tells


@dataclass(frozen=True, slots=True, kw_only=True)
class PostMortem:
    """What happened. `term` is what was too large ("host": a node's own memory beside GPUs), `known_by` how that is
    known: a state that was measured above its plan, the size of the last allocation, the rest that is above the plan
    where states are as planned, or the plan alone, whose largest part of the phase it is. `planned` and `demanded`:
    bytes of the place in that phase, of the device, the process or the node; `limit`: what there was; None where it is
    not known. `terms`: the plan of the role, by term. `remedy`: the smallest change with which it fits, estimated with
    `factor`, by which the plan was off; None if no knob does it."""

    failure: MemoryFailure
    spec: RunSpec
    role: str
    phase: str
    is_phase_told: bool
    term: Term | Literal["host"]
    known_by: KnownBy
    term_planned: int
    term_measured: int | None
    planned: int
    demanded: int | None
    limit: int | None
    factor: float
    remedy: SmallestChange | None
    terms: dict[Term, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where it died in the plan: of which pool, phase and role."""

    pool: str
    phase: str
    role: str


def post_mortem(run: Run, *, user: User, state: ClusterState) -> PostMortem | None:
    """Return what a failed run died of, None where that was not memory. Raises: PlanRefused, where there is no plan."""
    failure = memory_failure(run.cause) if run.state == "failed" else None
    if failure is None:
        return None
    measured = read_measured(run.pk)
    return examine(failure, question_of(run, user=user, state=state, measured=measured, reads=False), measured)


def examine(failure: MemoryFailure, question: PlannerQuestion, measured: RunMeasurements) -> PostMortem:
    """Return what a run died of that told this much. Raises: PlanRefused, where its sizes cannot be laid out."""
    made = estimate_of(question)
    if failure.memory == "host" and not question.fleet.accelerator.is_host:
        return _of_node(failure, question, made)
    return _of_role(failure, question, made, measured)


def _of_role(
    failure: MemoryFailure, question: PlannerQuestion, made: Estimate, measured: RunMeasurements
) -> PostMortem:
    place = _place(made, failure)
    is_host = question.fleet.accelerator.is_host
    pool, phase = _found(made, place)
    terms = dict(phase.by_role[place.role].terms)
    planned = _needed(made, place, is_host=is_host)
    is_whole = (place.role, place.phase) in measured.peaks  # in an earlier step, so that it is known what it takes
    if is_host:
        held = max((size for (role, _), size in measured.peaks.items() if role == place.role), default=0.0)
        demanded = held + failure.wanted if held and failure.wanted else None
        if demanded and demanded < planned and not is_whole:
            demanded = None  # what other phases held says nothing of a limit
        limit = held * BELOW if demanded else None
    else:
        demanded, limit = failure.demanded, failure.total or pool.limit
    factor = (demanded or limit or planned) / planned
    if factor < 1 and not (demanded and is_whole):
        factor = 1.0
    room = (limit if limit is not None else planned) / factor
    if factor < 1 or limit is None or room >= planned:  # it was not enough, and how much more it wanted is not known
        room = min(room, planned) * _SHORT
    is_short = limit is not None and sum(terms.get(state, 0) for state in STATES) > limit
    is_beyond = demanded is not None and demanded > planned
    term, known_by = _term(failure, place, question, terms, measured, is_short=is_short, is_beyond=is_beyond)
    remedy = (
        smallest(question.spec, _ground(question), needed=_cache_lack, limit=_MORE * _cache_lack(made, is_before=True))
        if failure.is_cache
        else smallest(
            question.spec, _ground(question), needed=lambda each: _needed(each, place, is_host=is_host), limit=room
        )
    )
    return PostMortem(
        failure=failure,
        spec=question.spec,
        role=place.role,
        phase=place.phase,
        is_phase_told=bool(failure.phase),
        term=term,
        known_by=known_by,
        term_planned=terms.get(term, 0),
        term_measured=_rounded(measured.states.get((place.role, term))),
        planned=round(planned),
        demanded=_rounded(demanded),
        limit=_rounded(limit),
        factor=factor,
        remedy=remedy,
        terms=terms,
    )


def _of_node(failure: MemoryFailure, question: PlannerQuestion, made: Estimate) -> PostMortem:
    """Return what a run on GPUs died of whose node ran out of its own memory."""
    planned = made.host_bytes
    limit = question.fleet.host_bytes or None
    factor = max((limit or 0) / planned, 1.0)
    room = min((limit or planned) / factor, planned) * _SHORT
    return PostMortem(
        failure=failure,
        spec=question.spec,
        role=failure.role,
        phase=failure.phase,
        is_phase_told=bool(failure.phase),
        term="host",
        known_by="plan",
        term_planned=planned,
        term_measured=None,
        planned=planned,
        demanded=None,
        limit=limit,
        factor=factor,
        remedy=smallest(question.spec, _ground(question), needed=lambda each: _host_needed(each), limit=room),
    )


def _ground(question: PlannerQuestion) -> Ground:
    fleet: Fleet = question.fleet
    return Ground(models=question.models, fleet=fleet, workload=question.workload, constants=question.constants)


def _host_needed(made: Estimate) -> float:
    """Return the host bytes of a plan whose devices hold it, else more than anything."""
    fits = made.verdict != "no" or all(pool.binding.memory.total <= pool.limit for pool in made.pools)
    return float(made.host_bytes) if fits else math.inf


def _place(made: Estimate, failure: MemoryFailure) -> _Place:
    """Return the place in the plan of the role and phase that the cause names; without them, where the plan needs most
    of what is left."""
    places = [
        (pool, phase, role)
        for pool in made.pools
        for phase in pool.phases
        for role in phase.by_role
        if role == phase.role or phase.phase == "rollout"
    ]
    for wanted in (
        lambda phase, role: (not failure.phase or phase == failure.phase) and role == failure.role,
        lambda phase, _role: phase == failure.phase,
        lambda _phase, role: role == failure.role,
        lambda _phase, _role: True,
    ):
        if fitting := [each for each in places if wanted(each[1].phase, each[2])]:
            pool, phase, role = max(fitting, key=lambda each: (each[1].memory.total, each[1].by_role[each[2]].total))
            return _Place(pool=pool.name, phase=phase.phase, role=role)
    raise AssertionError("a plan has phases")


def _found(made: Estimate, place: _Place) -> tuple[PoolEstimate, PhaseMemory]:
    """Return the pool and phase of a place; where a change has moved the role, its phase that needs most."""
    held = [
        (pool, phase)
        for pool in made.pools
        for phase in pool.phases
        if phase.phase == place.phase and place.role in phase.by_role
    ]
    return max(held, key=lambda each: (each[0].name == place.pool, each[1].memory.total))


def _needed(made: Estimate, place: _Place, *, is_host: bool) -> float:
    """Return the bytes that decide: of the device in that phase, or on the CPU of the role's process. A change that
    only moves the peak to another phase of the device, above what there is, is no remedy."""
    pool, phase = _found(made, place)
    there = phase.by_role[place.role].total if is_host else phase.memory.total
    beyond = (each.memory.total for each in pool.phases if each.memory.total > pool.limit)
    return float(max(there, *beyond, 0))


def _term(
    failure: MemoryFailure,
    place: _Place,
    question: PlannerQuestion,
    terms: dict[Term, int],
    measured: RunMeasurements,
    *,
    is_short: bool,
    is_beyond: bool,
) -> tuple[Term, KnownBy]:
    """Return the term that was too large, and by what that is known."""
    if failure.is_cache:
        return "kv_cache", "allocation"
    above = {
        term: size / terms[term]
        for term in STATES
        if terms.get(term)
        and (size := measured.states.get((place.role, term), 0.0))
        > terms[term] * (1 + question.constants.value(BANDS[term]))
    }
    if above:
        return max(above, key=lambda term: above[term]), "measured"
    states = {term: size for term, size in terms.items() if term in STATES}
    if is_short:
        return max(states, key=lambda term: states[term]), "plan"
    training = question.job.policy
    of_logits: list[float] = [training.tokens * training.model.vocab * width for width in (2, 4)]
    tensors: dict[Term, list[float]] = {"logits": of_logits, "gradients": [terms.get("gradients", 0)]}
    for term, sizes in tensors.items():
        if terms.get(term) and any(abs((failure.wanted or 0) - size) <= _LIKE * size for size in sizes):
            return term, "allocation"
    passing = {term: size for term, size in terms.items() if term in ("activations", "logits", "kv_cache")}
    if is_beyond and passing:
        return max(passing, key=lambda term: passing[term]), "rest"
    changing = {term: size for term, size in terms.items() if term not in ("overhead", "graphs")} or terms
    return max(changing, key=lambda term: changing[term]), "plan"


def _cache_lack(made: Estimate, *, is_before: bool = False) -> float:
    """Return the bytes of the engine's cache, negative, as more is better; more than anything where the engine would
    not start."""
    if made.verdict == "no" and not is_before:
        return math.inf
    caches = (
        held.terms.get("kv_cache", 0)
        for pool in made.pools
        for phase in pool.phases
        for role, held in phase.by_role.items()
        if role == "vllm"
    )
    return -float(max(caches, default=0))


def _rounded(value: float | None) -> int | None:
    return None if value is None else round(value)
