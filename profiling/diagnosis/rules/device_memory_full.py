"""A device has next to no memory left: the next longer batch ends the run."""

import re

from profiling.diagnosis.evaluators import whole_window
from profiling.diagnosis.finding import InsufficientData, KnobChange, Observation, Rule
from profiling.evidence import Evidence

_USED = re.compile(r"^gpu(\d+)_memory_used_bytes$")


def _evaluate(evidence: Evidence) -> Observation | InsufficientData:
    best: Observation | None = None
    for used in evidence.readings:
        name = _USED.match(used.name)
        total = name and evidence.reading(f"gpu{name[1]}_memory_total_bytes", role=used.role, rank=used.rank)
        if not name or not total or not len(used.finite) or not total.finite.max() > 0:
            continue
        begin, end = whole_window(used, evidence)
        words = {"node": used.rank, "index": int(name[1]), "total": f"{total.finite.max() / 2**30:.0f} GiB"}
        seen = Observation(
            value=float(used.finite.max() / total.finite.max()),
            begin=begin,
            end=end,
            words=words,
            role=used.role,
            rank=used.rank,
        )
        if best is None or seen.value > best.value:
            best = seen
    return best or InsufficientData(
        what="readings", text="No node reported GPU memory: NVML is read where there is a GPU."
    )


PLUGIN = Rule(
    title="Device memory nearly full",
    question="why",
    definition="Most memory in use on a GPU, as NVML reports it, divided by its memory.",
    unit="share",
    watch=0.95,
    bad=0.99,
    source="TensorBoard's torch profiler plugin warns at 90 % of what torch reserved; engines fill a device on purpose",
    needs=("readings",),
    is_live=True,
    fires="GPU {index} of node {node} has {value} of its {total} in use.",
    clear="GPU {index} of node {node} has {value} of its {total} in use at most.",
    advice="Smaller micro-batches, activation checkpointing, offload, or a smaller share of memory for the engine.",
    changes=(
        KnobChange("train.micro_batch_size", "lower"),
        KnobChange("memory.gradient_checkpointing", "on"),
        KnobChange("memory.optimizer_offload", "on"),
        KnobChange("rollout.gpu_memory_fraction", "lower"),
    ),
    evaluate=_evaluate,
)
