"""Saving stops training for long."""

from profiling.finding import Rule, Turn
from profiling.judging import judge_pauses

PLUGIN = Rule(
    title="Checkpoint stalls",
    question="where",
    definition="Seconds of saving within the newest steps, divided by their wall time.",
    unit="share",
    watch=0.05,
    bad=0.15,
    source="ours",
    needs=("phases",),
    is_live=True,
    fires="Saving takes {value} of the time: {times} checkpoints, the longest {seconds} s, beside steps of {step} s.",
    clear="Saving takes {value} of the time.",
    advice="Save less often, to a faster disk, or in the background.",
    turns=(
        Turn("checkpoint.every_steps", "raise"),
        Turn("checkpoint.async_save", "on"),
        Turn("checkpoint.save_contents", "choose"),
    ),
    judge=judge_pauses("checkpoint", missing="The trainer tells no times of saving, only how long its steps took."),
)
