"""Saving stops training for long."""

from profiling.diagnosis.evaluators import evaluate_pauses
from profiling.diagnosis.finding import KnobChange, Rule

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
    fires="Saving takes {value} of the time: {times} checkpoints, the longest {seconds} s, against steps of {step} s.",
    clear="Saving takes {value} of the time.",
    advice="Save less often, to a faster disk, or in the background.",
    changes=(
        KnobChange("checkpoint.every_steps", "raise"),
        KnobChange("checkpoint.async_save", "on"),
        KnobChange("checkpoint.save_contents", "choose"),
    ),
    evaluate=evaluate_pauses("checkpoint", missing="The trainer does not report saves, only how long steps took."),
)
