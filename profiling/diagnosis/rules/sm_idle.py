"""A device counts as used although most of its CPUs have nothing to do."""

import numpy as np

from profiling.diagnosis.counters import counters
from profiling.diagnosis.finding import InsufficientData, KnobChange, Observation, Rule
from profiling.evidence import Evidence


def _evaluate(evidence: Evidence) -> Observation | InsufficientData:
    active = counters(evidence, "DCGM_FI_PROF_SM_ACTIVE", "SM Active", "SMs Active")
    if not active:
        return InsufficientData(what="counters")
    worst = min(active, key=lambda one: float(np.mean(one.value)))
    return Observation(
        value=float(np.mean(worst.value)),
        begin=int(worst.time.min()),
        end=int(worst.time.max()),
        words=worst.words,
        role=worst.recorded.role,
        rank=worst.recorded.rank,
    )


PLUGIN = Rule(
    title="Streaming multiprocessors idle",
    question="why",
    definition="Mean of SM_ACTIVE (fraction of time in which a streaming multiprocessor has work), of the "
    "lowest device.",
    unit="share",
    watch=0.80,
    bad=0.50,
    is_low_bad=True,
    source="NVIDIA's guidance for DCGM: 80 % for good use, below 50 % poor",
    needs=("counters",),
    fires="On average {value} of the streaming multiprocessors of {device} have work.",
    clear="On average {value} of the streaming multiprocessors of {device} have work.",
    advice="Larger batches, fewer and larger kernels.",
    changes=(
        KnobChange("train.micro_batch_size", "raise"),
        KnobChange("rollout.max_num_seqs", "raise"),
        KnobChange("kernels.torch_compile", "on"),
    ),
    evaluate=_evaluate,
)
