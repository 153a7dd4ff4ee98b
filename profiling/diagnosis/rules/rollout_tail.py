"""A few long answers keep all others waiting."""

import numpy as np

from profiling.diagnosis.finding import InsufficientData, KnobChange, Observation, Rule
from profiling.evidence import Evidence

_LEAST = 0.1  # of the step


def _evaluate(evidence: Evidence) -> Observation | InsufficientData:
    mean = evidence.reading("response/length_mean", role="driver")
    high = evidence.reading("response/length_max", role="driver") or evidence.reading(
        "response/length_p95", role="driver"
    )
    if mean is None or high is None or not evidence.has_steps:
        return InsufficientData(
            what="readings", text="The trainer reported no response lengths: mean, and p95 or longest."
        )
    typical, longest = evidence.in_steps(mean), evidence.in_steps(high)
    n = min(len(typical), len(longest))
    usable = (typical[:n] > 0) & np.isfinite(longest[:n])
    if not usable.any():
        return InsufficientData(what="readings")
    ratio = float(np.median(longest[:n][usable] / typical[:n][usable]))
    share = evidence.share("rollout") or 0.0
    begin, end = evidence.window
    which = "longest" if high.name.endswith("max") else "95th percentile"
    words = {"which": which, "share": f"{100 * share:.0f} %", "mean": f"{float(np.median(typical)):.0f}"}
    # Long answers cost nothing that matters where generation is a small part of the step.
    is_firing = ratio > PLUGIN.watch and share >= _LEAST
    return Observation(value=ratio, begin=begin, end=end, words=words, is_firing=is_firing, role="vllm", rank=0)


PLUGIN = Rule(
    title="Long tail of responses",
    question="why",
    definition="Median over steps of the longest (or 95th percentile) response's tokens divided by the mean.",
    unit="ratio",
    watch=3.0,
    bad=6.0,
    source="ours, after APRIL (over-provisioning against the tail gave 22.5 % more throughput on average)",
    needs=("readings", "phases"),
    is_live=True,
    fires="The {which} response is {value} times the mean of {mean} tokens; rollout, {share} of the step, "
    "ends with it.",
    clear="The {which} response is {value} times the mean of {mean} tokens.",
    advice="Cap the length, ask for more responses than needed and drop the last, carry unfinished ones "
    "over, or generate during the update.",
    changes=(
        KnobChange("rollout.max_new_tokens", "lower"),
        KnobChange("async.partial_rollout", "on"),
        KnobChange("async.mode", "choose"),
        KnobChange("algorithm.dynamic_sampling", "on"),
    ),
    evaluate=_evaluate,
)
