"""Evaluating stops training for long."""

from profiling.diagnosis.evaluators import evaluate_pauses
from profiling.diagnosis.finding import KnobChange, Rule

PLUGIN = Rule(
    title="Evaluations take long",
    question="where",
    definition="Seconds of evaluating within the newest steps, divided by their wall time.",
    unit="share",
    watch=0.1,
    bad=0.3,
    source="ours",
    needs=("phases",),
    is_live=True,
    fires="Evaluating takes {value} of the time: {times} evaluations, the longest {seconds} s; a step takes {step} s.",
    clear="Evaluating takes {value} of the time.",
    advice="Evaluate less often, on fewer prompts, or with fewer responses per prompt.",
    changes=(
        KnobChange("eval.every_steps", "raise"),
        KnobChange("eval.num_prompts", "lower"),
        KnobChange("eval.max_samples", "lower"),
        KnobChange("eval.samples_per_prompt", "lower"),
    ),
    evaluate=evaluate_pauses("eval", missing="The trainer does not report evaluations, only how long steps took."),
)
