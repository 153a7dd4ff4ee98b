"""Torch holds much device memory that it cannot give out: free blocks are in the wrong sizes."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from profiling.diagnosis.counters import Counter, counters, memory_of_device
from profiling.diagnosis.evaluators import evaluate_worst
from profiling.diagnosis.finding import InsufficientData, KnobChange, Observation, Rule
from profiling.evidence import Evidence

_FULL = 0.80  # of the device's memory: below, what lies idle is in nobody's way
_NO_TOTAL = (
    "A large part of the reserved memory was not in use, but no file says how much memory the device has: bring a "
    "trace of the torch profiler or nsys too, or let the run report its device memory."
)


def _evaluate(evidence: Evidence) -> Observation | InsufficientData:
    peaks = list(_peaks(evidence))
    unmeasured = [peak for peak, whole in peaks if not whole and peak.value > PLUGIN.watch]
    observations = [_with_total(peak, whole) for peak, whole in peaks if whole or peak.value <= PLUGIN.watch]
    if unmeasured and not any(peak.is_firing for peak in observations):
        return InsufficientData(what="memory", text=_NO_TOTAL)
    return evaluate_worst(lambda _: observations, missing=InsufficientData(what="memory"))(evidence)


def _peaks(evidence: Evidence) -> Iterator[tuple[Observation, float]]:
    """Yield what each device held at its peak, and all of its memory in bytes, 0 where that is not known."""
    held = counters(evidence, "Total Reserved", "reserved", "reserved_bytes")
    allocations = counters(evidence, "Total Allocated", "allocated", "allocated_bytes")
    for reserved in held:
        if reserved.device < 0:  # the host has no allocator of its own
            continue
        same_place = [one for one in allocations if one.where == reserved.where]
        if same_place and reserved.value.max() > 0:
            yield _at_the_peak(reserved, same_place[0]), memory_of_device(evidence, reserved)


def _at_the_peak(reserved: Counter, allocated: Counter) -> Observation:
    """Return the share that was not given out when the most was, at or before the highest reservation."""
    most = float(allocated.value.max())
    at = int(allocated.value.argmax())
    then = int(np.searchsorted(reserved.time, allocated.time[at], side="right")) - 1
    total = float(reserved.value[max(0, then)])
    return Observation(
        value=max(0.0, 1 - most / total) if total else 0.0,
        begin=int(allocated.time[at]),
        end=int(allocated.time[at]),
        words={**reserved.words, "reserved": total, "allocated": f"{most / 2**30:.2f} GiB"},
        role=reserved.recorded.role,
        rank=reserved.recorded.rank,
    )


def _with_total(peak: Observation, whole: float) -> Observation:
    """Return what is said of a peak on a device with so much memory: it fires only where the device is nearly full."""
    reserved = peak.words["reserved"]
    full = f" ({100 * reserved / whole:.0f} %)" if whole else ""
    return replace(
        peak,
        words={**peak.words, "reserved": f"{reserved / 2**30:.2f} GiB", "full": full},
        is_firing=bool(whole) and reserved > _FULL * whole and peak.value > PLUGIN.watch,
    )


PLUGIN = Rule(
    title="Fragmented memory",
    question="why",
    definition="(Reserved - allocated) / reserved of torch's allocator, at the moment when most was allocated; it "
    "fires where more than 80 % of the device's memory was reserved.",
    unit="share",
    watch=0.20,
    bad=0.40,
    source="the wording of torch's out-of-memory message; 20 % is ours",
    needs=("memory",),
    fires="At its peak {device} had {reserved} of its memory reserved{full} and {allocated} in use: {value} lay idle "
    "in fragments.",
    clear="At its peak {device} had {reserved} of its memory reserved{full} and {allocated} in use: {value} lay idle.",
    advice="Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, keep shapes alike, and empty the cache "
    "between rollout and training.",
    changes=(KnobChange("train.packing", "on"), KnobChange("memory.pad_to_length", "on")),
    evaluate=_evaluate,
)
