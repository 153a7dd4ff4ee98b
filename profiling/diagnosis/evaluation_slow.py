"""Evaluating stops training for long."""

from profiling.finding import Rule, Turn
from profiling.judging import judge_pauses

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
    turns=(
        Turn("eval.every_steps", "raise"),
        Turn("eval.num_prompts", "lower"),
        Turn("eval.max_samples", "lower"),
        Turn("eval.samples_per_prompt", "lower"),
    ),
    judge=judge_pauses("eval", missing="The trainer reports only how long its steps took, not when it evaluated."),
)
