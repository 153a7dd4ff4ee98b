"""A device counts as used although most of its processors have nothing to do."""

import numpy as np

from profiling.counters import counters
from profiling.evidence import Evidence
from profiling.finding import Missing, Rule, Seen, Turn


def _judge(evidence: Evidence) -> Seen | Missing:
    active = counters(evidence, "DCGM_FI_PROF_SM_ACTIVE", "SM Active", "SMs Active")
    if not active:
        return Missing(what="counters")
    worst = min(active, key=lambda one: float(np.mean(one.value)))
    return Seen(
        value=float(np.mean(worst.value)),
        begin=int(worst.time.min()),
        end=int(worst.time.max()),
        words=worst.words,
        role=worst.recorded.role,
        rank=worst.recorded.rank,
    )


PLUGIN = Rule(
    title="Processors of the device idle",
    question="why",
    definition="Mean of SM_ACTIVE (share of time in which a streaming multiprocessor has work), of the lowest device.",
    unit="share",
    watch=0.80,
    bad=0.50,
    is_low_bad=True,
    source="NVIDIA's guidance for DCGM: 80 % for good use, below 50 % poor",
    needs=("counters",),
    fires="On average {value} of the processors of {device} have work.",
    clear="On average {value} of the processors of {device} have work.",
    advice="Larger batches, fewer and larger kernels.",
    turns=(
        Turn("train.micro_batch_size", "raise"),
        Turn("rollout.max_num_seqs", "raise"),
        Turn("kernels.torch_compile", "on"),
    ),
    judge=_judge,
)
