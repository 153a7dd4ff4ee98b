"""New weights reach the engines too slowly."""

from profiling.diagnosis.evaluators import evaluate_share
from profiling.diagnosis.finding import KnobChange, Rule

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
    changes=(
        KnobChange("rollout.sync_backend", "choose"),
        KnobChange("rollout.sync_bucket_mib", "raise"),
        KnobChange("async.updates_per_sync", "raise"),
        KnobChange("placement.colocate_all", "on"),
    ),
    evaluate=evaluate_share("weight_sync"),
)
