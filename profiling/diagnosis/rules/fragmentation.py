"""Torch holds much device memory that it cannot give out: free blocks are in the wrong sizes."""

from collections.abc import Iterator

import numpy as np

from profiling.diagnosis.counters import Counter, counters
from profiling.diagnosis.evaluators import evaluate_worst
from profiling.diagnosis.finding import InsufficientData, KnobChange, Observation, Rule
from profiling.evidence import Evidence


def _observations(evidence: Evidence) -> Iterator[Observation]:
    held = counters(evidence, "Total Reserved", "reserved", "reserved_bytes")
    allocations = counters(evidence, "Total Allocated", "allocated", "allocated_bytes")
    for reserved in held:
        if reserved.device < 0:  # the host has no allocator of its own
            continue
        same_place = [one for one in allocations if one.where == reserved.where]
        if same_place and reserved.value.max() > 0:
            yield _at_the_peak(reserved, same_place[0])


def _at_the_peak(reserved: Counter, allocated: Counter) -> Observation:
    """Return the share that was not given out when the most was, at or before the highest reservation."""
    most = float(allocated.value.max())
    at = int(allocated.value.argmax())
    then = int(np.searchsorted(reserved.time, allocated.time[at], side="right")) - 1
    total = float(reserved.value[max(0, then)])
    words = {**reserved.words, "reserved": f"{total / 2**30:.2f} GiB", "allocated": f"{most / 2**30:.2f} GiB"}
    return Observation(
        value=max(0.0, 1 - most / total) if total else 0.0,
        begin=int(allocated.time[at]),
        end=int(allocated.time[at]),
        words=words,
        role=reserved.recorded.role,
        rank=reserved.recorded.rank,
    )


PLUGIN = Rule(
    title="Fragmented memory",
    question="why",
    definition="(Reserved - allocated) / reserved of torch's allocator, at the moment when most was allocated.",
    unit="share",
    watch=0.20,
    bad=0.40,
    source="the wording of torch's out-of-memory message; 20 % is ours",
    needs=("memory",),
    fires="At its peak {device} had {reserved} reserved and {allocated} in use: {value} lay idle in fragments.",
    clear="At its peak {device} had {reserved} reserved and {allocated} in use.",
    advice="Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, keep shapes alike, and empty the cache "
    "between rollout and training.",
    changes=(KnobChange("train.packing", "on"), KnobChange("memory.pad_to_length", "on")),
    evaluate=evaluate_worst(_observations, missing=InsufficientData(what="memory")),
)
