"""What several rules of diagnosis do alike."""

from collections.abc import Callable

import numpy as np

from profiling.evidence import Evidence, Readings
from profiling.finding import Missing, Seen


def judge_share(phase: str, *, missing: str = "") -> Callable[[Evidence], Seen | Missing]:
    """Return a judge of the median share of step time that a phase takes on the driver."""

    def judge(evidence: Evidence) -> Seen | Missing:
        if not evidence.has_steps:
            return Missing(what="phases")
        share = evidence.share(phase)
        if share is None:
            return Missing(what="phases", text=missing)
        seconds = evidence.phase_seconds(phase)
        assert seconds is not None
        begin, end = evidence.window
        words = {"seconds": f"{float(np.nanmedian(seconds)):.3g}", "steps": len(evidence.steps)}
        return Seen(value=share, begin=begin, end=end, words=words, role="driver", rank=0)

    return judge


def largest(found: tuple[Readings, ...], evidence: Evidence) -> tuple[float, Readings] | None:
    """Return the largest value over several series in the steps looked at, and whose it is; None without a value."""
    best: tuple[float, Readings] | None = None
    for one in found:
        values = evidence.in_steps(one)
        values = values[np.isfinite(values)]
        if len(values) and (best is None or values.max() > best[0]):
            best = float(values.max()), one
    return best


def whole_window(one: Readings, evidence: Evidence) -> tuple[int, int]:
    """Return the window of the steps looked at, or of the series where there are none."""
    return evidence.window if evidence.steps else (int(one.time.min()), int(one.time.max()))
