"""Python's garbage collector stops the thread that launches the work."""

import re
from collections.abc import Iterator

import numpy as np

from profiling.analysis.intervals import total, union
from profiling.diagnosis.evaluators import evaluate_worst
from profiling.diagnosis.finding import InsufficientData, Observation, Rule
from profiling.evidence import Evidence
from profiling.trace.category import Category
from profiling.trace.names import numbers_of

_NAME = re.compile(r"gc\.collect|python gc|garbage", re.I)
_NOT_SAID = "No file says when the garbage collector ran: record with the torch profiler, with Python stacks."


def _observations(evidence: Evidence) -> Iterator[Observation]:
    for recorded in evidence.recorded:
        store = recorded.store
        named = numbers_of(store.names, _NAME)
        events = recorded.events(
            categories=[Category.COLLECTOR, Category.PYTHON, Category.RANGE], columns=("ts", "dur", "name", "cat")
        )
        is_pause = (events["cat"] == Category.COLLECTOR) | np.isin(events["name"], named)
        if not is_pause.any() and not store.meta.get("has_collector"):
            continue
        pauses = union(events["ts"][is_pause], (events["ts"] + events["dur"])[is_pause])
        at = int(pauses.lengths.argmax()) if len(pauses) else -1
        yield Observation(
            value=total(pauses) / recorded.window,
            begin=int(pauses.begin[at]) if len(pauses) else recorded.begin,
            end=int(pauses.end[at]) if len(pauses) else recorded.end,
            words={"count": len(pauses), "longest": f"{pauses.lengths.max() / 1e6 if len(pauses) else 0:.1f} ms"},
            role=recorded.role,
            rank=recorded.rank,
        )


PLUGIN = Rule(
    title="Garbage collection",
    question="why",
    definition="Time in Python's garbage collector divided by the recorded time, of the file with most.",
    unit="share",
    watch=0.01,
    bad=0.05,
    source="lists of root causes of slow steps; 1 % is ours",
    needs=("trace",),
    fires="The garbage collector takes {value} of the time, in {count} pauses of up to {longest}.",
    clear="The garbage collector takes {value} of the time.",
    advice="Freeze what lives on after loading (gc.freeze), and collect between steps rather than within them.",
    evaluate=evaluate_worst(_observations, missing=InsufficientData(what="trace", text=_NOT_SAID)),
)
