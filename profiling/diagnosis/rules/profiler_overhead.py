"""The profiler's own work stands in the recording."""

from collections.abc import Iterator

import numpy as np

from profiling.analysis.idle import OF_PROGRAM
from profiling.analysis.intervals import clipped, total, union
from profiling.diagnosis.device_work import at_work
from profiling.diagnosis.evaluators import evaluate_worst
from profiling.diagnosis.finding import InsufficientData, Observation, Rule
from profiling.evidence import Evidence
from profiling.trace.category import Category
from profiling.trace.names import numbers_of


def _observations(evidence: Evidence) -> Iterator[Observation]:
    for recorded in evidence.recorded:
        window = at_work(recorded) if recorded.shows_work else None
        if window is None:
            continue
        begin, end = window
        events = recorded.events(categories=[Category.OVERHEAD], columns=("ts", "dur", "name"))
        program = numbers_of(recorded.store.names, OF_PROGRAM)
        keep = ~np.isin(events["name"], program)
        own = clipped(union(events["ts"][keep], (events["ts"] + events["dur"])[keep]), begin, end)
        yield Observation(
            value=total(own) / max(1, end - begin),
            begin=begin,
            end=end,
            words={"milliseconds": f"{total(own) / 1e6:.1f}"},
            role=recorded.role,
            rank=recorded.rank,
        )


PLUGIN = Rule(
    title="Profiler's own work",
    question="helped",
    definition="Time that the profiler says it took itself, divided by the recorded time, of the file with most, over "
    "the steps, or from the first to the last work; what the driver takes (a full queue of launches, loading of code) "
    "is none.",
    unit="share",
    watch=0.05,
    bad=0.20,
    source="ours",
    needs=("trace",),
    fires="The profiler's own work is {value} of the recorded time ({milliseconds} ms).",
    clear="The profiler says that it took {value} of the recorded time.",
    advice="Record fewer kinds of events (no stacks, shapes or memory), fewer ranks, or a shorter window.",
    evaluate=evaluate_worst(_observations, missing=InsufficientData(what="trace")),
)
