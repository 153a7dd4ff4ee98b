"""Generation takes nearly all of the step."""

from profiling.diagnosis.evaluators import evaluate_share
from profiling.diagnosis.finding import KnobChange, Rule

PLUGIN = Rule(
    title="Rollout dominates",
    question="where",
    definition="Median over the newest steps of the driver's seconds in rollout divided by the step's wall time.",
    unit="share",
    watch=0.7,
    bad=0.85,
    source="OpenRLHF's performance guide (about 80 % of a step is generation); the threshold is ours",
    needs=("phases",),
    is_live=True,
    fires="Rollout takes {value} of each step (median {seconds} s); more than {threshold} leaves the "
    "trainer's devices waiting.",
    clear="Rollout takes {value} of each step.",
    advice="Give generation more engines, a smaller tensor parallel size, CUDA graphs or prefix caching; or "
    "let it run during the update (asynchronous).",
    changes=(
        KnobChange("placement.rollout_engines", "raise"),
        KnobChange("placement.rollout_tensor_parallel", "lower"),
        KnobChange("rollout.enforce_eager", "off"),
        KnobChange("rollout.enable_prefix_caching", "on"),
        KnobChange("async.mode", "choose"),
    ),
    evaluate=evaluate_share("rollout"),
)
