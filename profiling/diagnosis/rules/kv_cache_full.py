"""The engine runs out of KV cache: requests are thrown out and computed again."""

from profiling.diagnosis.evaluators import whole_window
from profiling.diagnosis.finding import InsufficientData, KnobChange, Observation, Rule
from profiling.evidence import Evidence


def _evaluate(evidence: Evidence) -> Observation | InsufficientData:
    readings = evidence.all_readings("preemptions")
    if not readings:
        return InsufficientData(what="readings")
    sums = [(float(evidence.in_steps(one).sum()), one) for one in readings]
    count, worst = max(sums, key=lambda pair: pair[0])
    used = evidence.reading("kv_cache_percent", role=worst.role, rank=worst.rank)
    peak = float(evidence.in_steps(used).max()) if used is not None and len(evidence.in_steps(used)) else float("nan")
    begin, end = whole_window(worst, evidence)
    words = {"role": worst.role, "rank": worst.rank, "used": f"{peak:.0f} %" if peak == peak else "—"}
    return Observation(value=count, begin=begin, end=end, words=words, role=worst.role, rank=worst.rank)


PLUGIN = Rule(
    title="KV cache full",
    question="why",
    definition="Requests that an engine put back and computed again, over the newest steps, of the engine with most.",
    unit="count",
    watch=0,
    bad=50,
    source="vLLM's own warning: a preemption is work done twice",
    needs=("readings",),
    is_live=True,
    fires="{role} {rank} put {value} requests back; its KV cache was {used} full at most.",
    clear="No engine put a request back; the KV cache of {role} {rank} was {used} full at most.",
    advice="Give the engine more memory, run fewer sequences at once, or quantise the KV cache.",
    changes=(
        KnobChange("rollout.gpu_memory_fraction", "raise"),
        KnobChange("rollout.kv_cache_mib", "raise"),
        KnobChange("rollout.max_num_seqs", "lower"),
        KnobChange("quantization.kv_cache", "choose"),
    ),
    evaluate=_evaluate,
)
