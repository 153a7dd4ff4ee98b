"""Groups whose answers all got the same reward were generated and updated on for nothing."""

from profiling.diagnosis.evaluators import evaluate_median
from profiling.diagnosis.finding import KnobChange, Rule

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
    evaluate=evaluate_median("groups/zero_variance_fraction"),
)
