"""The step waits for its data."""

from profiling.diagnosis.budgets import budgets
from profiling.diagnosis.evaluators import evaluate_share
from profiling.diagnosis.finding import InsufficientData, KnobChange, Observation, Rule
from profiling.evidence import Evidence

_OF_RUN = evaluate_share("data_wait", missing="The trainer reported no time of waiting for data.")


def _evaluate(evidence: Evidence) -> Observation | InsufficientData:
    if evidence.has_steps or not evidence.recorded:
        return _OF_RUN(evidence)
    worst = max(budgets(evidence), key=lambda one: one.share("data_wait"), default=None)
    if worst is None:
        return InsufficientData(what="trace")
    share, seconds = worst.share("data_wait")
    return worst.observation(share, seconds=f"{seconds:.3g}")


PLUGIN = Rule(
    title="Waiting for data",
    question="where",
    definition="Median over steps of the share that the driver spends in data_wait; in files the time in the data "
    "loader while the device is idle, over all steps but the one that waits longest, and without marked steps over all "
    "that was recorded.",
    unit="share",
    watch=0.05,
    bad=0.15,
    source="the data loader limit of TensorBoard's torch profiler plugin (5 %)",
    needs=("phases", "trace"),
    is_live=True,
    fires="{value} of the time goes to waiting for data ({seconds} s of each step or of the recording).",
    clear="Waiting for data takes {value} of the time.",
    advice="Load with more workers, tokenise before the run, and keep the data on a local disk.",
    changes=(KnobChange("data.num_workers", "raise"), KnobChange("data.filter_workers", "raise")),
    evaluate=_evaluate,
)
