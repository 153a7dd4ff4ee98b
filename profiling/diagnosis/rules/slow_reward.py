"""The reward holds up the step."""

from profiling.diagnosis.evaluators import evaluate_share
from profiling.diagnosis.finding import KnobChange, Rule

PLUGIN = Rule(
    title="Slow reward",
    question="where",
    definition="Median over the newest steps of the driver's seconds in reward divided by the step's wall time.",
    unit="share",
    watch=0.1,
    bad=0.25,
    source="ours: scoring is a few milliseconds where rules do it",
    needs=("phases",),
    is_live=True,
    fires="The reward takes {value} of each step (median {seconds} s) while every device waits.",
    clear="The reward takes {value} of each step.",
    advice="Score in more processes, move slow checks (sandbox, remote models) off the step, or score while "
    "others still generate.",
    changes=(KnobChange("reward.num_workers", "raise"), KnobChange("reward.sandbox_concurrency", "raise")),
    evaluate=evaluate_share("reward"),
)
