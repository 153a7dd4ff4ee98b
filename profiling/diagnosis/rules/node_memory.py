"""A node is about to run out of memory: the system then ends a process without a word."""

from profiling.diagnosis.evaluators import whole_window
from profiling.diagnosis.finding import InsufficientData, KnobChange, Observation, Rule
from profiling.evidence import Evidence


def _evaluate(evidence: Evidence) -> Observation | InsufficientData:
    best: Observation | None = None
    for used in evidence.all_readings("memory_used_bytes"):
        total = evidence.reading("memory_total_bytes", role=used.role, rank=used.rank)
        if total is None or not total.finite.max() > 0:
            continue
        share = float(used.finite.max() / total.finite.max())
        begin, end = whole_window(used, evidence)
        words = {"node": used.rank, "total": f"{total.finite.max() / 2**30:.0f} GiB"}
        seen = Observation(value=share, begin=begin, end=end, words=words, role=used.role, rank=used.rank)
        if best is None or seen.value > best.value:
            best = seen
    return best or InsufficientData(what="readings")


PLUGIN = Rule(
    title="Node memory nearly full",
    question="why",
    definition="Most memory in use on a node divided by its memory.",
    unit="share",
    watch=0.90,
    bad=0.97,
    source="Ray ends tasks at 95 % by default",
    needs=("readings",),
    is_live=True,
    fires="Node {node} has {value} of its {total} in use; Ray ends processes at 95 %.",
    clear="Node {node} has {value} of its {total} in use at most.",
    advice="Offload less to the host, load fewer data workers, or spread the run over more nodes.",
    changes=(
        KnobChange("memory.optimizer_offload", "off"),
        KnobChange("memory.param_offload", "off"),
        KnobChange("data.num_workers", "lower"),
        KnobChange("rollout.sleep", "choose"),
    ),
    evaluate=_evaluate,
)
