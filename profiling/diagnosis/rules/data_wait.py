"""The step waits for its data."""

from profiling.diagnosis.evaluators import evaluate_share
from profiling.diagnosis.finding import KnobChange, Rule

PLUGIN = Rule(
    title="Waiting for data",
    question="where",
    definition="Median over the newest steps of the driver's seconds in data_wait divided by the step's wall time.",
    unit="share",
    watch=0.05,
    bad=0.15,
    source="the data loader limit of TensorBoard's torch profiler plugin (5 %)",
    needs=("phases",),
    is_live=True,
    fires="Each step waits {value} of its time for data (median {seconds} s).",
    clear="Waiting for data takes {value} of each step.",
    advice="Load with more workers, tokenise before the run, and keep the data on a local disk.",
    changes=(KnobChange("data.num_workers", "raise"), KnobChange("data.filter_workers", "raise")),
    evaluate=evaluate_share("data_wait", missing="The trainer reported no time of waiting for data."),
)
