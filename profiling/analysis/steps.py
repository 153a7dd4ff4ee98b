"""Where the steps of a trace begin and end."""

import re
from collections.abc import Sequence

import numpy as np

from profiling.analysis.work import WorkerEvents
from profiling.evidence import Evidence, PhaseSpans, Step
from profiling.trace.category import Category

_NUMBER = re.compile(r"(\d+)\s*$")


def steps_of(
    spans: PhaseSpans, works: Sequence[WorkerEvents], begin: int, end: int, *, is_whole: bool = False
) -> tuple[Step, ...]:
    """Return the steps that lie whole in [begin, end), oldest first, none overlapping another.

    By the controller's phases where there are any, else by ranges of steps in the traces: from the first rank that
    begins a step to the last one that ends it. () where nothing tells of steps. `is_whole`: all of the recording is
    meant; a step counts then if half of it was recorded, since its phases may begin a little before its first event.
    """
    every = Evidence(spans=spans).all_steps if len(spans) else ()
    if is_whole and works:
        steps = [step for step in every if max(_overlap(step, work) for work in works) >= (step.end - step.begin) / 2]
    else:
        steps = [step for step in every if begin <= step.begin and step.end <= end]
        steps = [step for step in steps if not works or any(_overlap(step, work) > 0 for work in works)]
    return tuple(steps or [step for step in _in_traces(works) if begin <= step.begin and step.end <= end])


def _overlap(step: Step, work: WorkerEvents) -> int:
    return min(step.end, work.end) - max(step.begin, work.begin)


def _in_traces(works: Sequence[WorkerEvents]) -> list[Step]:
    bounds: dict[int, tuple[int, int]] = {}
    for work in works:
        marks = work.events.of(Category.STEP)
        numbers = {name: number_of(work.name(name)) for name in np.unique(marks.name).tolist()}
        for name, ts, until in zip(marks.name.tolist(), marks.ts.tolist(), marks.end.tolist(), strict=True):
            number = numbers[name]
            if number is not None:
                first, last = bounds.get(number, (ts, until))
                bounds[number] = (min(first, ts), max(last, until))
    steps: list[Step] = []
    for number, (first, last) in sorted(bounds.items(), key=lambda item: item[1]):
        first = max(first, steps[-1].end) if steps else first
        if last > first:
            steps.append(Step(number=number, begin=first, end=last))
    return steps


def number_of(name: str) -> int | None:
    """Return the step that a range is called after: 1009 for "ProfilerStep#1009"; None if it names none."""
    match = _NUMBER.search(name)
    return int(match[1]) if match and len(match[1]) < 19 else None
