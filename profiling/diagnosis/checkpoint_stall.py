"""Saving stops training for long."""

import numpy as np

from profiling.evidence import Evidence
from profiling.finding import Missing, Rule, Seen, Turn


def _judge(evidence: Evidence) -> Seen | Missing:
    if not evidence.has_steps:
        return Missing(what="phases")
    if not evidence.has_times:
        return Missing(what="phases", text="The trainer tells no times of saving, only how long its steps took.")
    spans = evidence.spans
    begin, end = evidence.window
    mine = (spans.role == "driver") & (spans.depth == 0) & (spans.phase == "checkpoint")
    saves = spans.take(mine & (spans.start < end) & (spans.start + spans.duration > begin))
    inside = np.minimum(saves.start + saves.duration, end) - np.maximum(saves.start, begin)
    return Seen(
        value=float(inside.sum() / (end - begin)),
        begin=begin,
        end=end,
        words={
            "saves": len(saves),
            "seconds": f"{float(saves.duration.max() / 1e9) if len(saves) else 0.0:.3g}",
            "step": f"{float(np.median(evidence.step_seconds)):.3g}",
        },
        role="driver",
        rank=0,
    )


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
    fires="Saving takes {value} of the time: {saves} checkpoints, the longest {seconds} s, beside steps of {step} s.",
    clear="Saving takes {value} of the time.",
    advice="Save less often, to a faster disk, or in the background.",
    turns=(
        Turn("checkpoint.every_steps", "raise"),
        Turn("checkpoint.async_save", "on"),
        Turn("checkpoint.save_contents", "choose"),
    ),
    judge=_judge,
)
