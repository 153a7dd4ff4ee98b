"""Many answers end at the longest length allowed: their reward is noise, and each fills the engine to its limit."""

from profiling.diagnosis.evaluators import evaluate_median
from profiling.diagnosis.finding import KnobChange, Rule

PLUGIN = Rule(
    title="Responses are cut",
    question="why",
    definition="Median over steps of the fraction of responses that ended at the longest length allowed.",
    unit="share",
    watch=0.10,
    bad=0.30,
    source="the healthy band of the metric response/truncated_fraction",
    needs=("readings",),
    is_live=True,
    fires="{value} of the responses end at the longest length allowed; each costs the most time and its "
    "reward is not earned.",
    clear="{value} of the responses end at the longest length allowed.",
    advice="Allow longer responses, punish overlong ones softly, or leave cut ones out of the loss.",
    changes=(
        KnobChange("rollout.max_new_tokens", "raise"),
        KnobChange("reward.overlong_penalty", "choose"),
        KnobChange("reward.overlong_buffer_tokens", "raise"),
    ),
    evaluate=evaluate_median("response/truncated_fraction"),
)
