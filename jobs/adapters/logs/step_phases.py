"""The timeline of a step whose trainer tells only how long each phase took, when the step is over.

The seconds are the trainer's own. Where they lie is inferred: one after the other in the order in which a step runs
them, so that the last one ends when the step was told; what no timer covers stands before the first. A step whose
phases add up to more than itself overlaps them (asynchronous rollouts do), and nothing can be placed. Saving and
evaluating count for that apart: a trainer may or may not time them as a part of the step.
"""

import math
from collections.abc import Iterator, Mapping

from profiling.events import SpanEvent, span
from profiling.phases import PHASES, STEP_PHASES

STEP = "time/step_seconds"
_FURTHER = {"old_logprobs": ("time/values_seconds", "values"), "update": ("time/critic_update_seconds", "critic")}
"""Metrics that belong to a phase beside its own, with what the span is called; the critic works before the policy."""

_TOGETHER = ("time/experience_seconds", "reward", "rewards, log-probs and values, told as one")
"""Several phases as one: a detail, so that nobody takes it for the reward alone."""

_TOLERANCE = 1.02  # timers of a step and of its phases are stopped one after the other


def whole_seconds(values: Mapping[str, float]) -> float:
    """Return the wall time of a step with what is saved and evaluated after it; 0 where no time is told."""
    return max(_step_seconds(values), sum(seconds for _, _, _, seconds in _parts(values)))


def step_spans(values: Mapping[str, float], *, step: int, end: int) -> Iterator[SpanEvent]:
    """Yield the spans of a step that was over at `end` (Unix ns), by canonical names of `time/..._seconds`."""
    parts = list(_parts(values))
    inside = sum(seconds for phase, _, _, seconds in parts if phase in STEP_PHASES)
    if step < 1 or not parts or 0 < _step_seconds(values) * _TOLERANCE < inside:
        return
    start = max(0, end - round(sum(seconds for _, _, _, seconds in parts) * 1e9))
    for phase, name, depth, seconds in parts:
        duration = round(seconds * 1e9)
        event = span(phase, start=start, duration=duration, attempt=0, step=step, role="driver", depth=depth, name=name)
        yield {**event, "is_told_later": True}
        start += duration


def _parts(values: Mapping[str, float]) -> Iterator[tuple[str, str, int, float]]:
    """Yield phase, name, depth and seconds of what was timed, in the order of a step."""
    for phase in PHASES:
        own, further = f"time/{phase.key}_seconds", _FURTHER.get(phase.key)
        candidates = [(own, phase.key, "", 0)]
        if further is not None:
            candidates.insert(phase.key != "update", (further[0], phase.key, further[1], 0))
        if phase.key == _TOGETHER[1]:
            candidates.append((*_TOGETHER, 1))
        for metric, key, name, depth in candidates:
            seconds = values.get(metric, math.nan)
            if _is_time(seconds):
                yield key, name, depth, seconds


def _step_seconds(values: Mapping[str, float]) -> float:
    seconds = values.get(STEP, math.nan)
    return seconds if _is_time(seconds) else 0.0


def _is_time(seconds: float) -> bool:
    return math.isfinite(seconds) and 0 < seconds < 1e7
