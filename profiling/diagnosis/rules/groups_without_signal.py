"""Groups whose answers all got the same reward were generated and updated on for nothing."""

import numpy as np

from profiling.diagnosis.evaluators import evaluate_median
from profiling.diagnosis.finding import InsufficientData, KnobChange, Observation, Rule
from profiling.evidence import Evidence

SOLVED = 0.8  # of the responses right: groups have zero variance because the policy knows the answer
_of_groups = evaluate_median("groups/zero_variance_fraction")


def _evaluate(evidence: Evidence) -> Observation | InsufficientData:
    for name, newest in (("reward/correct", 10), ("eval/accuracy", 2)):
        right = evidence.reading(name, role="driver")
        if right is not None and len(right.value) and float(np.median(right.value[-newest:])) >= SOLVED:
            return InsufficientData(what="readings", text=DONE)
    return _of_groups(evidence)


DONE = "Most responses are right: groups have zero variance because there is little left to learn."

PLUGIN = Rule(
    title="Zero-variance groups",
    question="why",
    definition="Median over steps of the fraction of groups in which all responses got the same reward.",
    unit="share",
    watch=0.5,
    bad=0.8,
    source="ours, after DAPO, which filters such groups",
    needs=("readings",),
    is_live=True,
    fires="{value} of the groups have zero variance: their rollout and update change nothing.",
    clear="{value} of the groups have zero variance.",
    advice="Filter prompts that are too easy or too hard (dynamic sampling), or take more responses a prompt.",
    changes=(KnobChange("algorithm.dynamic_sampling", "on"), KnobChange("rollout.samples_per_prompt", "raise")),
    evaluate=_evaluate,
)
