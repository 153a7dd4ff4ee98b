"""Where the steps of a trace begin and end."""

import re
from collections.abc import Sequence

import numpy as np

from profiling.analysis.work import Work
from profiling.evidence import Evidence, PhaseSpans, Step
from profiling.trace.category import Category

_NUMBER = re.compile(r"(\d+)\s*$")


def steps_of(spans: PhaseSpans, works: Sequence[Work], begin: int, end: int) -> tuple[Step, ...]:
    """Return the steps that lie whole in [begin, end) and touch a recording, oldest first, none overlapping another.

    By the controller's phases where there are any, else by ranges of steps in the traces: from the first rank that
    begins a step to the last one that ends it. () where nothing tells of steps.
    """
    found = Evidence(spans=spans).all_steps if len(spans) else ()
    steps = [step for step in found if begin <= step.begin and step.end <= end]
    if works:
        steps = [step for step in steps if any(step.begin < work.end and work.begin < step.end for work in works)]
    if not steps:
        steps = [step for step in _in_traces(works) if begin <= step.begin and step.end <= end]
    return tuple(steps)


def _in_traces(works: Sequence[Work]) -> list[Step]:
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
    found = _NUMBER.search(name)
    return int(found[1]) if found and len(found[1]) < 19 else None
