"""What of a trace its numbers are of: steps that a run or a trace marks, iterations that repeat, or one window.

All that computes with steps (summary, difference, rules) asks here, so that a trace without marks has numbers as well,
and so that it can be said what one of them is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from profiling.analysis.intervals import Intervals, interval, joined
from profiling.analysis.repetition import common, found_steps
from profiling.analysis.steps import WorkerSteps, across, worker_steps
from profiling.analysis.work import WorkerEvents
from profiling.evidence import Evidence, PhaseSpans, Step

if TYPE_CHECKING:
    from profiling.trace.store import Store

Worker = tuple[str, int]
Source = Literal["phases", "marks", "repetition", "window"]
"""phases: of the run. marks: ranges of steps in the trace. repetition: iterations that were found. window: none."""
By = Literal["steps", "window"]
"""What is wanted: steps where there are any, or the window as one."""
WHOLE = -1
"""The number of a window that counts as one step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretches:
    """The steps in a window, oldest first, none overlapping another; () only where the window is empty.

    `by_worker` tells of each worker whose steps are marked what its device still had to do when they began and ended.
    """

    source: Source
    steps: tuple[Step, ...]
    by_worker: Mapping[Worker, WorkerSteps] = field(default_factory=dict)

    def on_host(self, worker: Worker, steps: Sequence[Step] | None = None) -> Intervals | None:
        """Return when the CPU of a worker was in some of the steps (all); None where that is when its device was.

        What launches the work of a step lies there: the device comes to it later.
        """
        marked = self.by_worker.get(worker)
        if marked is None or not marked.host:
            return None
        numbers = {step.number for step in (self.steps if steps is None else steps)}
        return joined(*(interval(one.begin, one.end) for one in marked.host if one.number in numbers))

    @property
    def has_steps(self) -> bool:
        """Return False where the window counts as one."""
        return self.source != "window"


def stretches_of(
    spans: PhaseSpans,
    works: Mapping[Worker, WorkerEvents],
    stores: Mapping[Worker, "Store"],
    begin: int,
    end: int,
    *,
    is_whole: bool = False,
    by: By = "steps",
) -> Stretches:
    """Return what numbers of [begin, end) are of: steps that lie whole in it, else the window.

    By the controller's phases where there are any, else by marks in the traces, else by what repeats; `stores` are
    those that the events of `works` are from. Marks and repetitions are looked for in all of the recording, so that a
    step is the same one in every window. `is_whole`: all of the recording is meant; a step of phases counts then if
    half of it was recorded, since its phases may begin a little before its first event.
    """
    if by == "steps":
        steps = _of_phases(spans, list(works.values()), begin, end, is_whole=is_whole)
        if steps:
            return Stretches(source="phases", steps=steps)
        marked = {key: worker_steps(stores[key], work.lanes.values()) for key, work in works.items()}
        steps = _within(across(marked.values()), begin, end)
        if steps:
            return Stretches(source="marks", steps=steps, by_worker=marked)
        if not any(one.host for one in marked.values()):
            busiest = sorted(works, key=lambda key: (-len(works[key].device), key))
            sides = [found_steps(stores[key], works[key].lanes.values()) for key in busiest if works[key].has_device]
            steps = _within(common(sides), begin, end)
            if steps:
                return Stretches(source="repetition", steps=steps)
    whole = (Step(number=WHOLE, begin=begin, end=end),) if end > begin else ()
    return Stretches(source="window", steps=whole)


def _within(steps: Sequence[Step], begin: int, end: int) -> tuple[Step, ...]:
    return tuple(step for step in steps if begin <= step.begin and step.end <= end)


def _of_phases(
    spans: PhaseSpans, works: Sequence[WorkerEvents], begin: int, end: int, *, is_whole: bool
) -> tuple[Step, ...]:
    every = Evidence(spans=spans).all_steps if len(spans) else ()
    if is_whole and works:
        steps = [step for step in every if max(_overlap(step, work) for work in works) >= (step.end - step.begin) / 2]
        return tuple(steps)
    inside = _within(every, begin, end)
    return tuple(step for step in inside if not works or any(_overlap(step, work) > 0 for work in works))


def _overlap(step: Step, work: WorkerEvents) -> int:
    return min(step.end, work.end) - max(step.begin, work.begin)
