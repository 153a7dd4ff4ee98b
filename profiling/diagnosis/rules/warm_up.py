"""The first step pays for what later ones have ready; it must not stand in a comparison."""

import numpy as np

from profiling.diagnosis.finding import InsufficientData, Observation, Rule
from profiling.evidence import Evidence


def _evaluate(evidence: Evidence) -> Observation | InsufficientData:
    if not evidence.has_steps:
        return InsufficientData(what="phases")
    if evidence.all_steps[0].number != evidence.first_step:
        return InsufficientData(what="phases", text="The first step is not part of what is looked at.")
    first = evidence.all_steps[0]
    ratio = float(first.seconds / np.median(evidence.step_seconds))
    words = {"seconds": f"{first.seconds:.3g}"}
    recorded = evidence.capture.steps if evidence.capture else None
    # Every other number leaves it out, so it is in nobody's way but a recording's.
    is_firing = ratio > PLUGIN.watch and recorded is not None and recorded[0] <= evidence.first_step
    return Observation(
        value=ratio, begin=first.begin, end=first.end, words=words, is_firing=is_firing, role="driver", rank=0
    )


PLUGIN = Rule(
    title="Warm-up in the sample",
    question="helped",
    definition="Wall time of the first step divided by the median of the others; it fires where a capture recorded it.",
    unit="ratio",
    watch=3.0,
    bad=10.0,
    source="common practice",
    needs=("phases",),
    is_live=True,
    fires="The first step took {seconds} s, {value} times the median: it compiles, allocates and fills caches.",
    clear="The first step took {value} times the median of the others, and is not part of what is looked at.",
    advice="Leave the first step out when you compare or record; record from step 3 on.",
    evaluate=_evaluate,
)
