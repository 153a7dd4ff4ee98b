"""The device waits for its own memory, while its tensor cores have little to do."""

import numpy as np

from profiling.diagnosis.counters import counters
from profiling.diagnosis.finding import InsufficientData, KnobChange, Observation, Rule
from profiling.evidence import Evidence

_TENSOR = 0.3


def _evaluate(evidence: Evidence) -> Observation | InsufficientData:
    memory = counters(evidence, "DCGM_FI_PROF_DRAM_ACTIVE", "DRAM Active")
    tensor = {
        one.where: float(np.mean(one.value))
        for one in counters(evidence, "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "Tensor Active")
    }
    both = [one for one in memory if one.where in tensor]
    if not both:
        return InsufficientData(what="counters")
    worst = max(both, key=lambda one: float(np.mean(one.value)))
    used, products = float(np.mean(worst.value)), tensor[worst.where]
    return Observation(
        value=used,
        begin=int(worst.time.min()),
        end=int(worst.time.max()),
        words={**worst.words, "tensor": f"{100 * products:.0f} %"},
        is_firing=used > PLUGIN.watch and products < _TENSOR,
        role=worst.recorded.role,
        rank=worst.recorded.rank,
    )


PLUGIN = Rule(
    title="Bound by memory bandwidth",
    question="why",
    definition="Mean of DRAM_ACTIVE; it fires where TENSOR_ACTIVE is below 30 % at the same time. In practice 80 "
    "% is full.",
    unit="share",
    watch=0.60,
    bad=0.75,
    source="DCGM's fields; the thresholds are ours",
    needs=("counters",),
    fires="The memory of {device} is busy for {value} of the time, its tensor cores for {tensor}.",
    clear="The memory of {device} is busy for {value} of the time, its tensor cores for {tensor}.",
    advice="Fuse elementwise work, use flash attention, fewer bytes per number (bf16, fp8), and decode more "
    "sequences at once.",
    changes=(
        KnobChange("kernels.attention", "choose"),
        KnobChange("kernels.liger", "on"),
        KnobChange("kernels.fused_head", "on"),
        KnobChange("quantization.rollout", "choose"),
        KnobChange("rollout.max_num_seqs", "raise"),
    ),
    evaluate=_evaluate,
)
