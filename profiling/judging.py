"""What several rules of diagnosis do alike."""

from collections.abc import Callable, Iterable

import numpy as np

from profiling.evidence import Evidence, Readings
from profiling.finding import Missing, Seen

NO_PHASE = "The run has no such phase, or its trainer does not tell how long it takes."


def judge_share(phase: str, *, missing: str = "") -> Callable[[Evidence], Seen | Missing]:
    """Return a judge of the median share of step time that a phase takes on the driver."""

    def judge(evidence: Evidence) -> Seen | Missing:
        if not evidence.has_steps:
            return Missing(what="phases")
        share = evidence.share(phase)
        if share is None:
            return Missing(what="phases", text=missing or NO_PHASE)
        seconds = evidence.phase_seconds(phase)
        assert seconds is not None
        begin, end = evidence.window
        words = {"seconds": f"{float(np.nanmedian(seconds)):.3g}", "steps": len(evidence.steps)}
        return Seen(value=share, begin=begin, end=end, words=words, role="driver", rank=0)

    return judge


def judge_pauses(phase: str, *, missing: str) -> Callable[[Evidence], Seen | Missing]:
    """Return a judge of the share of the newest steps' wall time that a phase takes which not every step has."""

    def judge(evidence: Evidence) -> Seen | Missing:
        if not evidence.has_steps:
            return Missing(what="phases")
        if not evidence.has_times:
            return Missing(what="phases", text=missing)
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
        return Seen(value=value, begin=begin, end=end, words=words, role="driver", rank=0)

    return judge


def judge_median(name: str) -> Callable[[Evidence], Seen | Missing]:
    """Return a judge of the median of a metric of the driver over the steps looked at."""

    def judge(evidence: Evidence) -> Seen | Missing:
        told = evidence.reading(name, role="driver")
        if told is None or not len(evidence.in_steps(told)):
            return Missing(what="readings")
        begin, end = whole_window(told, evidence)
        return Seen(value=float(np.median(evidence.in_steps(told))), begin=begin, end=end, role="driver", rank=0)

    return judge


def judge_worst(
    look: Callable[[Evidence], Iterable[Seen]], *, missing: Missing, is_low_bad: bool = False
) -> Callable[[Evidence], Seen | Missing]:
    """Return a judge of the worst that `look` yields, of devices or files say: what fires first, then by value."""
    sign = -1 if is_low_bad else 1

    def judge(evidence: Evidence) -> Seen | Missing:
        return max(look(evidence), key=lambda seen: (bool(seen.is_firing), sign * seen.value), default=missing)

    return judge


def whole_window(one: Readings, evidence: Evidence) -> tuple[int, int]:
    """Return the window of the steps looked at, or of the series where there are none."""
    return evidence.window if evidence.steps else (int(one.time.min()), int(one.time.max()))
