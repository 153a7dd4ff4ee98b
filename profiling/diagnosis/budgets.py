"""The budget of recorded files, for rules: where the time of each worker goes, over its steps or over the window."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from profiling.analysis.budget import WorkerBudget, budget
from profiling.analysis.summary import MOST_EVENTS, open_works
from profiling.analysis.work import WorkerEvents
from profiling.analysis.workers import device_words
from profiling.diagnosis.device_work import DeviceWork
from profiling.diagnosis.finding import Observation
from profiling.evidence import Evidence, RecordedTrace, Step, phase_spans

_MANY = 3
"""From so many steps on one of them is left out."""


@dataclass(frozen=True, kw_only=True)
class FileBudget:
    """One worker's budget; without marked steps (`has_steps`) the window counts as one."""

    recorded: RecordedTrace
    work: WorkerEvents
    budget: WorkerBudget
    has_steps: bool

    @property
    def begin(self) -> int:
        """When its first step begins, in Unix ns."""
        return self.budget.steps[0].begin

    @property
    def end(self) -> int:
        """When its last step ends, in Unix ns."""
        return self.budget.steps[-1].begin + self.budget.steps[-1].wall

    @property
    def by_kind(self) -> Mapping[str, int]:
        """The time of each kind that was recorded [ns]."""
        return {kind: ns for kind, ns in self.budget.by_kind().items() if kind != "not_recorded"}

    def share(self, kind: str) -> tuple[float, float]:
        """Return the share of a kind in what was recorded of the steps, and its time in one of them. [s]

        Of three steps and more the one with most of it is left out, since what happens once is no habit (a loader
        starts its workers). A median would hide what comes round every few steps: batches of a loader come from its
        workers in turn, so those that fall behind are waited for together.
        """
        sides = []
        for step in self.budget.steps:
            of_kind = sum(part.ns for part in step.parts if part.kind == kind)
            sides.append((of_kind, sum(part.ns for part in step.parts if part.kind != "not_recorded")))
        if len(sides) >= _MANY:
            sides.remove(max(sides))
        whole = sum(recorded for _, recorded in sides)
        spent = sum(of_kind for of_kind, _ in sides)
        return (spent / whole, spent / len(sides) / 1e9) if whole else (0.0, 0.0)

    @property
    def words(self) -> dict[str, object]:
        """How a sentence calls the worker, its device and over what it was looked at."""
        devices = sorted({lane.device for lane in self.work.lanes.values() if lane.kind == "stream"})
        whose = f"{self.work.role} {self.work.rank}" if self.work.role else ""
        device = device_words(next(iter(devices), None), whose=whose)
        return {"device": device, "steps": len(self.budget.steps) if self.has_steps else 0}

    def observation(self, value: float, **words: object) -> Observation:
        """Return what a rule measured of it."""
        return Observation(
            value=value,
            begin=self.begin,
            end=self.end,
            words={**self.words, **words},
            role=self.work.role.partition("/")[0],
            rank=self.work.rank,
        )


_READ: WeakKeyDictionary[Evidence, tuple[FileBudget, ...]] = WeakKeyDictionary()
"""What was read for the rules that look at the same evidence, for as long as it is there."""


def budgets(evidence: Evidence) -> tuple[FileBudget, ...]:
    """Return the budget of each worker in the files of a capture; () where no file tells when anything was at work.

    Of files with very many events the first of them, as on the page *Summary*.
    """
    file_budgets = _READ.get(evidence)
    if file_budgets is None:
        file_budgets = _READ[evidence] = _budgets(evidence)
    return file_budgets


def share_of_device(evidence: Evidence, work: DeviceWork, *kinds: str) -> float | None:
    """Return the share of some kinds of time in the steps of a device, None without its budget."""
    for one in budgets(evidence):
        owners = {(lane.pid, lane.device) for lane in one.work.lanes.values() if lane.kind == "stream"}
        if one.recorded is work.recorded and (work.pid, work.device) in owners:
            whole = sum(one.by_kind.values())
            return sum(one.by_kind.get(kind, 0) for kind in kinds) / whole if whole else None
    return None


def _budgets(evidence: Evidence) -> tuple[FileBudget, ...]:
    recorded = [one for one in evidence.recorded if one.shows_work]
    most = MOST_EVENTS // max(1, len(recorded))
    return tuple(own for one in recorded for own in _of_file(one, most))


def _of_file(recorded: RecordedTrace, most: int) -> Iterator[FileBudget]:
    """Yield the budgets of the workers of one file: its steps are its own, whatever other files mark."""
    works, marked, is_cut = open_works([recorded], phase_spans(()), most_events=most)
    for key, work in works.items():
        if work.tells_work:
            end = min(work.end, int(work.events.ts.max()) + 1) if is_cut else work.end
            steps = tuple(step for step in marked if step.begin < end and work.begin < step.end)
            window = (Step(number=-1, begin=work.begin, end=max(end, work.begin + 1)),)
            (own,) = budget({key: work}, phase_spans(()), steps or window).workers
            yield FileBudget(recorded=recorded, work=work, budget=own, has_steps=bool(steps))
