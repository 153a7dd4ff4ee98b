"""The reward holds up the step."""

from profiling.finding import Rule
from profiling.judging import judge_share

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
    knobs=("reward.num_workers", "reward.sandbox_concurrency"),
    judge=judge_share("reward"),
)
