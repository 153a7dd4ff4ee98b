"""What several rules of diagnosis do alike."""

from collections.abc import Callable, Iterable

import numpy as np

from profiling.diagnosis.finding import InsufficientData, Observation
from profiling.evidence import Evidence, Readings

NO_PHASE = "The run has no such phase, or its trainer does not report how long it takes."


def evaluate_share(phase: str, *, missing: str = "") -> Callable[[Evidence], Observation | InsufficientData]:
    """Return an evaluator of the median share of step time that a phase takes on the driver."""

    def evaluate(evidence: Evidence) -> Observation | InsufficientData:
        if not evidence.has_steps:
            return InsufficientData(what="phases")
        share = evidence.share(phase)
        if share is None:
            return InsufficientData(what="phases", text=missing or NO_PHASE)
        seconds = evidence.phase_seconds(phase)
        assert seconds is not None
        begin, end = evidence.window
        words = {"seconds": f"{float(np.nanmedian(seconds)):.3g}", "steps": len(evidence.steps)}
        return Observation(value=share, begin=begin, end=end, words=words, role="driver", rank=0)

    return evaluate


def evaluate_pauses(phase: str, *, missing: str) -> Callable[[Evidence], Observation | InsufficientData]:
    """Return an evaluator of the share of the newest steps' wall time that a phase takes which not every step has."""

    def evaluate(evidence: Evidence) -> Observation | InsufficientData:
        if not evidence.has_steps:
            return InsufficientData(what="phases")
        if not evidence.has_times:
            return InsufficientData(what="phases", text=missing)
        spans = evidence.spans
        begin, end = evidence.window
        is_pause = (spans.role == "driver") & (spans.depth == 0) & (spans.phase == phase)
        pauses = spans.take(is_pause & (spans.start < end) & (spans.start + spans.duration > begin))
        inside = np.minimum(pauses.start + pauses.duration, end) - np.maximum(pauses.start, begin)
        words = {
            "times": len(pauses),
            "seconds": f"{float(pauses.duration.max() / 1e9) if len(pauses) else 0.0:.3g}",
            "step": f"{float(np.median(evidence.step_seconds)):.3g}",
        }
        value = float(inside.sum() / (end - begin))
        return Observation(value=value, begin=begin, end=end, words=words, role="driver", rank=0)

    return evaluate


def evaluate_median(name: str) -> Callable[[Evidence], Observation | InsufficientData]:
    """Return an evaluator of the median of a metric of the driver over the steps looked at."""

    def evaluate(evidence: Evidence) -> Observation | InsufficientData:
        reading = evidence.reading(name, role="driver")
        if reading is None or not len(evidence.in_steps(reading)):
            return InsufficientData(what="readings")
        begin, end = whole_window(reading, evidence)
        return Observation(
            value=float(np.median(evidence.in_steps(reading))), begin=begin, end=end, role="driver", rank=0
        )

    return evaluate


def evaluate_worst(
    look: Callable[[Evidence], Iterable[Observation]], *, missing: InsufficientData, is_low_bad: bool = False
) -> Callable[[Evidence], Observation | InsufficientData]:
    """Return an evaluator of the worst that `look` yields, of devices or files say: what fires first, then by value."""
    sign = -1 if is_low_bad else 1

    def evaluate(evidence: Evidence) -> Observation | InsufficientData:
        return max(
            look(evidence),
            key=lambda observation: (bool(observation.is_firing), sign * observation.value),
            default=missing,
        )

    return evaluate


def whole_window(one: Readings, evidence: Evidence) -> tuple[int, int]:
    """Return the window of the steps looked at, or of the series where there are none."""
    return evidence.window if evidence.steps else (int(one.time.min()), int(one.time.max()))
