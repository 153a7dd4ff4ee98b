"""Scoring with the reference model takes much of the step."""

from profiling.diagnosis.evaluators import evaluate_share
from profiling.diagnosis.finding import KnobChange, Rule

PLUGIN = Rule(
    title="Slow reference",
    question="where",
    definition="Median over the newest steps of the driver's seconds in reference divided by the step's wall time.",
    unit="share",
    watch=0.2,
    bad=0.35,
    source="ours: one forward pass is about a third of an update",
    needs=("phases",),
    is_live=True,
    fires="The reference model takes {value} of each step (median {seconds} s).",
    clear="The reference model takes {value} of each step.",
    advice="Score larger micro-batches, score together with the old log-probabilities, or drop the KL term if the "
    "recipe allows it.",
    changes=(
        KnobChange("train.score_micro_batch_size", "raise"),
        KnobChange("train.score_max_tokens_per_gpu", "raise"),
        KnobChange("memory.reference_offload", "off"),
    ),
    evaluate=evaluate_share("reference"),
)
