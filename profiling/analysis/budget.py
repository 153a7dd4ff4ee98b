"""The budget of a step: where its wall time goes, per worker and along the critical path, to the last nanosecond.

Every moment of a step has one phase and one kind. What keeps the device busy comes first: compute, then communication
that nothing hides, then copies; what is left is idle, by cause. All parts are lengths of disjoint sets, so they add up
to the wall time exactly.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from profiling.analysis import idle
from profiling.analysis.intervals import (
    Intervals,
    covered,
    difference,
    gaps,
    intersection,
    interval,
    joined,
    partition,
)
from profiling.analysis.phases import CONTROLLER, WorkerPhases, by_phase, last_in, moments, phases_of
from profiling.analysis.work import WorkerEvents
from profiling.evidence import PhaseSpans, Step
from profiling.trace.category import Category

KINDS = ("compute", "communication", "copy", *(key for key in idle.CAUSES if key != "communication"), "not_recorded")
"""In the order in which a bar shows them. communication: not hidden by compute; copy: hidden by neither."""

Worker = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetPart:
    """Time of one phase ("" outside of all) and kind, by a worker. [ns]"""

    role: str
    rank: int
    phase: str
    kind: str
    ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBudget:
    """The parts of one step; they add up to `wall` [ns]."""

    step: int
    begin: int
    wall: int
    parts: tuple[BudgetPart, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerBudget:
    """The budget of one worker, step by step. `is_recorded`: a trace tells what it did, not its phases only."""

    role: str
    rank: int
    is_recorded: bool
    has_device: bool
    steps: tuple[StepBudget, ...]

    def by_kind(self) -> dict[str, int]:
        """Return the time of each kind over all steps [ns]; without what never occurs, in the order of KINDS."""
        return totals(self.steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """All of it. `path` is the budget along the critical path, () where no phases are known."""

    steps: tuple[Step, ...]
    workers: tuple[WorkerBudget, ...]
    path: tuple[StepBudget, ...]


def totals(steps: Sequence[StepBudget]) -> dict[str, int]:
    """Return the time of each kind over some steps [ns], in the order of KINDS."""
    by_kind: dict[str, int] = {}
    for step in steps:
        for part in step.parts:
            by_kind[part.kind] = by_kind.get(part.kind, 0) + part.ns
    return {kind: by_kind[kind] for kind in KINDS if kind in by_kind}


def kinds_of(work: WorkerEvents | None, phases: WorkerPhases, whole: Intervals) -> dict[str, Intervals]:
    """Share out a set of moments of one worker by kind."""
    if work is None or not work.tells_work:
        return partition(whole, [("waiting", phases.other_workers)], "not_recorded")
    begin, end = (int(whole.begin[0]), int(whole.end[-1])) if len(whole) else (0, 0)
    outside = gaps(interval(work.begin, work.end), begin, end)
    communication = joined(work.collectives.union, work.host.of(Category.COMMUNICATION).union)
    wanted = [("not_recorded", outside), ("compute", work.compute), ("communication", communication)]
    if work.has_device:
        wanted.append(("copy", work.device.of(Category.COPY, Category.MEMSET).union))
    return partition(whole, [*wanted, *idle.claims(work, phases)], "unattributed")


def budget(works: Mapping[Worker, WorkerEvents], spans: PhaseSpans, steps: Sequence[Step]) -> Budget:
    """Return the budget of the steps, which do not overlap: of each worker with a trace or phases, by role and rank."""
    with_phases = {
        (str(role), int(rank)) for role, rank in zip(spans.role, spans.rank, strict=True) if role != CONTROLLER
    }
    workers, kinds = [], {}
    whole = joined(*(interval(step.begin, step.end) for step in steps))
    for role, rank in sorted({*with_phases, *works}):
        work = works.get((role, rank))
        phases = phases_of(spans, role=role, rank=rank, work=work)
        kinds[role, rank] = kinds_of(work, phases, whole)
        workers.append(
            WorkerBudget(
                role=role,
                rank=rank,
                is_recorded=work is not None and work.tells_work,
                has_device=work is not None and work.has_device,
                steps=_table((role, rank), phases, kinds[role, rank], whole, steps),
            )
        )
    return Budget(steps=tuple(steps), workers=tuple(workers), path=_path(spans, kinds, steps))


def _table(
    worker: Worker,
    phases: WorkerPhases,
    kinds: Mapping[str, Intervals],
    whole: Intervals,
    steps: Sequence[Step],
) -> tuple[StepBudget, ...]:
    """Return the steps of one worker by phase and kind."""
    begins = np.array([step.begin for step in steps], np.int64)
    ends = np.array([step.end for step in steps], np.int64)
    rows: list[tuple[str, str, Any]] = []
    for phase, own in partition(whole, phases.own.items(), "").items():
        for kind, of_kind in kinds.items():
            rows.append((phase, kind, covered(begins, ends, intersection(own, of_kind))))
    order = {kind: i for i, kind in enumerate(KINDS)}
    rows.sort(key=lambda row: order[row[1]])
    return tuple(
        StepBudget(
            step=step.number,
            begin=step.begin,
            wall=step.end - step.begin,
            parts=tuple(
                BudgetPart(role=worker[0], rank=worker[1], phase=phase, kind=kind, ns=int(ns[i]))
                for phase, kind, ns in rows
                if ns[i]
            ),
        )
        for i, step in enumerate(steps)
    )


def _path(
    spans: PhaseSpans, kinds: Mapping[Worker, Mapping[str, Intervals]], steps: Sequence[Step]
) -> tuple[StepBudget, ...]:
    """Return the budget along the critical path: the controller's phases, each as the worker spent it that ended last.

    Where no worker has the phase the controller works itself, of which there is no recording.
    """
    leading = by_phase(spans.take(spans.role == CONTROLLER))
    if not leading:
        return ()
    budgets = []
    for step in steps:
        whole = interval(step.begin, step.end)
        parts: dict[tuple[str, int, str, str], int] = {}
        for phase, during in partition(whole, leading.items(), "").items():
            worker = last_in(spans, phase, step.begin, step.end) if phase else None
            active = intersection(during, moments(spans, *worker, phase)) if worker else during
            if worker:
                for kind, own_kind in kinds[worker].items():
                    _add(parts, (*worker, phase, kind), intersection(active, own_kind))
                _add(parts, (CONTROLLER, 0, phase, "not_recorded"), difference(during, active))
            else:
                _add(parts, (CONTROLLER, 0, phase, "not_recorded"), during)
        budgets.append(
            StepBudget(
                step=step.number,
                begin=step.begin,
                wall=step.end - step.begin,
                parts=tuple(
                    BudgetPart(role=role, rank=rank, phase=phase, kind=kind, ns=ns)
                    for (role, rank, phase, kind), ns in parts.items()
                ),
            )
        )
    return tuple(budgets)


def _add(parts: dict[tuple[str, int, str, str], int], key: tuple[str, int, str, str], intervals: Intervals) -> None:
    ns = int(intervals.lengths.sum())
    if ns:
        parts[key] = parts.get(key, 0) + ns
