"""New weights reach the engines too slowly."""

from profiling.finding import Rule, Turn
from profiling.judging import judge_share

PLUGIN = Rule(
    title="Slow weight sync",
    question="where",
    definition="Median over the newest steps of the driver's seconds in weight_sync divided by the step's wall time.",
    unit="share",
    watch=0.05,
    bad=0.15,
    source="ours",
    needs=("phases",),
    is_live=True,
    fires="Weight sync takes {value} of each step (median {seconds} s).",
    clear="Weight sync takes {value} of each step.",
    advice="Send weights in larger buckets, keep policy and engines on one node or on the same devices, or "
    "synchronise less often.",
    turns=(
        Turn("rollout.sync_backend", "choose"),
        Turn("rollout.sync_bucket_mib", "raise"),
        Turn("async.updates_per_sync", "raise"),
        Turn("placement.colocate_all", "on"),
    ),
    judge=judge_share("weight_sync"),
)
