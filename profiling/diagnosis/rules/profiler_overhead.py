"""The profiler's own work stands in the recording."""

from collections.abc import Iterator

from profiling.analysis.intervals import total, union
from profiling.diagnosis.evaluators import evaluate_worst
from profiling.diagnosis.finding import InsufficientData, Observation, Rule
from profiling.evidence import Evidence
from profiling.trace.category import Category


def _observations(evidence: Evidence) -> Iterator[Observation]:
    for recorded in evidence.recorded:
        if not recorded.shows_work:
            continue
        events = recorded.events(categories=[Category.OVERHEAD], columns=("ts", "dur"))
        own = union(events["ts"], events["ts"] + events["dur"])
        yield Observation(
            value=total(own) / recorded.window,
            begin=recorded.begin,
            end=recorded.end,
            words={"milliseconds": f"{total(own) / 1e6:.1f}"},
            role=recorded.role,
            rank=recorded.rank,
        )


PLUGIN = Rule(
    title="Profiler's own work",
    question="helped",
    definition="Time that the profiler says it took itself, divided by the recorded time, of the file with most.",
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
