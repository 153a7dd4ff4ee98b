"""The recorded steps were slower because they were recorded."""

import numpy as np

from profiling.diagnosis.finding import InsufficientData, Observation, Rule
from profiling.evidence import Evidence


def _evaluate(evidence: Evidence) -> Observation | InsufficientData:
    capture = evidence.capture
    if capture is None or capture.steps is None:
        return InsufficientData(what="capture")
    first, last = capture.steps
    inside = [step for step in evidence.all_steps if first <= step.number <= last]
    width = max(5, 2 * len(inside))
    around = [
        step
        for step in evidence.all_steps
        if step.number > 1 and (first - width <= step.number < first or last < step.number <= last + width)
    ]
    if not inside or len(around) < 2:
        text = (
            "There are no steps besides the recorded ones to compare with: let the run continue, or record later steps."
        )
        return InsufficientData(what="phases", text=text)
    usual = float(np.median([step.seconds for step in around]))
    ratio = float(np.median([step.seconds for step in inside]) / usual)
    words = {"first": first, "last": last, "seconds": f"{usual:.3g}", "others": len(around)}
    return Observation(value=ratio, begin=inside[0].begin, end=inside[-1].end, words=words, role="driver", rank=0)


PLUGIN = Rule(
    title="Profiler inflates",
    question="helped",
    definition="Median wall time of the recorded steps divided by the median of the steps around them.",
    unit="ratio",
    watch=1.10,
    bad=1.5,
    source="ours",
    needs=("phases", "capture"),
    fires="Recorded steps {first} to {last} took {value} times the {seconds} s of the {others} steps around them.",
    clear="Recorded steps took {value} times the {seconds} s of the steps around them.",
    advice="Compare shares, not seconds, of this capture; record fewer ranks, no stacks and no shapes.",
    evaluate=_evaluate,
)
