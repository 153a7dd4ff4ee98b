"""The driver's own loop, between the phases, takes time while every device waits."""

import numpy as np

from profiling.diagnosis.finding import InsufficientData, KnobChange, Observation, Rule
from profiling.evidence import Evidence


def _evaluate(evidence: Evidence) -> Observation | InsufficientData:
    spans = evidence.spans
    driver_spans = spans.take((spans.role == "driver") & (spans.depth == 0))
    if not evidence.has_steps or not len(driver_spans):
        return InsufficientData(what="phases")
    order = np.argsort(driver_spans.start, kind="stable")
    start, end = driver_spans.start[order], (driver_spans.start + driver_spans.duration)[order]
    shares = []
    for step in evidence.steps:
        inside = (end > step.begin) & (start < step.end)
        begins, ends = start[inside].clip(step.begin, step.end), end[inside].clip(step.begin, step.end)
        before = np.concatenate(([step.begin], np.maximum.accumulate(ends)[:-1])) if len(ends) else np.array([])
        covered = np.maximum(0, ends - np.maximum(begins, before)).sum() if len(ends) else 0
        shares.append(1 - covered / (step.end - step.begin))
    value = float(np.median(shares))
    begin, last = evidence.window
    seconds = value * float(np.median(evidence.step_seconds))
    return Observation(value=value, begin=begin, end=last, words={"seconds": f"{seconds:.3g}"}, role="driver", rank=0)


PLUGIN = Rule(
    title="Host-bound loop",
    question="where",
    definition="Median fraction of step time that lies in no phase of the driver.",
    unit="share",
    watch=0.05,
    bad=0.15,
    source="ours",
    needs=("phases",),
    is_live=True,
    fires="{value} of each step ({seconds} s) lies between the phases, in the driver's own loop.",
    clear="{value} of each step lies between the phases.",
    advice="Move work off the driver's loop: logging of samples, conversions of batches, callbacks.",
    changes=(KnobChange("logging.samples_per_step", "lower"), KnobChange("logging.every_steps", "raise")),
    evaluate=_evaluate,
)
