"""A process holds more memory with every step."""

from collections.abc import Iterator

import numpy as np

from profiling.diagnosis.evaluators import evaluate_worst
from profiling.diagnosis.finding import InsufficientData, Observation, Rule
from profiling.evidence import SETTLE, Evidence, Floats, Ints

_LEAST = 8  # steps: caches fill in the first ones
_MANY, _SUM = 30, 0.15  # steps over which slow growth counts, and how much it has to come to
_RISING = 0.7  # share of steps after which more is held than before


def _observations(evidence: Evidence) -> Iterator[Observation]:
    readings = [*evidence.all_readings("memory_bytes"), *evidence.all_readings("device_memory_bytes")]
    for one in readings:
        keep = np.isfinite(one.value) & (one.value > 0) & (one.step > 1)
        if not keep.any():
            continue
        steps, held = one.step[keep], one.value[keep]
        last = np.append(np.diff(steps) != 0, True)  # the last reading of each step
        steps, held, time = steps[last], held[last], one.time[keep][last]
        if len(np.unique(steps)) < _LEAST:
            continue
        free = _undisturbed(steps, evidence.profiled)
        steps, held, time = steps[free], held[free], time[free]
        if len(np.unique(steps)) < _LEAST:
            continue
        half = len(steps) // 2
        steps, held, time = steps[half // 2 :], held[half // 2 :], time[half // 2 :]
        growth = _slope(steps.astype(float), held) / float(np.median(held))
        rising = float((np.diff(held) > 0).mean())
        what = "device memory" if one.name.startswith("device") else "memory"
        words = {
            "role": one.role,
            "rank": one.rank,
            "what": what,
            "held": f"{held[-1] / 2**30:.2f} GiB",
            "rising": f"{100 * rising:.0f} %",
        }
        yield Observation(
            value=growth,
            begin=int(time[0]),
            end=int(time[-1]),
            words=words,
            is_firing=rising >= _RISING
            and (growth > PLUGIN.watch or (len(steps) >= _MANY and growth * len(steps) > _SUM)),
            role=one.role,
            rank=one.rank,
        )


def _undisturbed(steps: Ints, profiled: tuple[tuple[int, int], ...]) -> slice:
    """Return the longest stretch of steps without a recording: a profiler's buffers grow, and stay for a while."""
    edges = [
        -1,
        *sorted(edge for first, last in profiled for edge in (first - 1, last + SETTLE)),
        int(steps.max()) + 1,
    ]
    stretches = [
        slice(int(np.searchsorted(steps, low, side="right")), int(np.searchsorted(steps, high, side="right")))
        for low, high in zip(edges[::2], edges[1::2], strict=True)
    ]
    return max(stretches, key=lambda one: one.stop - one.start)


def _slope(x: Floats, y: Floats) -> float:
    """Return Theil and Sen's slope, the median over pairs: single jumps do not move it. At most 200
    points are paired."""
    chosen = np.linspace(0, len(x) - 1, min(len(x), 200)).astype(int)
    x, y = x[chosen], y[chosen]
    i, j = np.triu_indices(len(x), 1)
    apart = x[j] != x[i]
    return float(np.median((y[j] - y[i])[apart] / (x[j] - x[i])[apart])) if apart.any() else 0.0


PLUGIN = Rule(
    title="Memory grows",
    question="why",
    definition="Median growth per step (Theil-Sen slope) of a process's memory, divided by what it holds.",
    unit="share",
    watch=0.01,
    bad=0.03,
    source="ours: 1 % a step doubles what a process holds within 70 steps; slower growth fires from 30 steps "
    "and 15 % on",
    needs=("readings",),
    is_live=True,
    fires="{role} {rank} holds {value} more {what} with each step, {held} by now; it rose after {rising} of the steps.",
    clear="The {what} of {role} {rank}, which grows most, changes by {value} a step.",
    advice="Look for lists that keep tensors or samples (detach them), and for caches without a limit; record "
    "a memory snapshot at two steps far apart and compare the holders.",
    evaluate=evaluate_worst(
        _observations,
        missing=InsufficientData(what="readings", text=f"It takes readings of memory over {_LEAST} steps."),
    ),
)
