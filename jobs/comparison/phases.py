"""Where a step's time goes: the median seconds of each phase, run by run. Pure arithmetic."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from jobs.comparison.stats import ConfidenceInterval, median_interval
from jobs.telemetry.chunks import Floats
from profiling.phases import STEP_PHASES


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseTimes:
    """The median step of one run, in seconds.

    `seconds` holds the median of each phase that was measured, in the order of a step; `step` is the median of whole
    steps. `spreads` are the intervals of these medians where there are enough steps, those of whole steps under "step".
    `rest` is what of `step` no phase covers (None if steps were not measured): medians do not add up exactly, and
    phases that overlap make it negative, which counts as 0.
    """

    seconds: Mapping[str, float]
    step: float | None
    spreads: Mapping[str, ConfidenceInterval]

    @property
    def total(self) -> float:
        """The sum of its phases."""
        return sum(self.seconds.values())

    @property
    def rest(self) -> float | None:
        """What of the step no phase covers."""
        return None if self.step is None else max(0.0, self.step - self.total)


def phase_metric(phase: str) -> str:
    """Return the name of the metric with a phase's seconds."""
    return f"time/{phase}_seconds"


STEP_METRIC = "time/step_seconds"
PHASE_METRICS = {phase_metric(phase): phase for phase in STEP_PHASES}


def phase_times(columns: Mapping[str, Floats]) -> PhaseTimes:
    """Return the median step of `columns`: metric name -> its values [n] in the window, n may differ."""
    medians = {phase: _median(columns.get(name)) for name, phase in PHASE_METRICS.items()}
    intervals = {
        key: median_interval(columns[name])
        for name, key in (*PHASE_METRICS.items(), (STEP_METRIC, "step"))
        if name in columns
    }
    return PhaseTimes(
        seconds={phase: value for phase, value in medians.items() if value is not None},
        step=_median(columns.get(STEP_METRIC)),
        spreads={key: interval for key, interval in intervals.items() if interval is not None},
    )


def _median(values: Floats | None) -> float | None:
    if values is None:
        return None
    finite = values[np.isfinite(values)]
    return float(np.median(finite)) if len(finite) else None


def phase_deltas(one: PhaseTimes, base: PhaseTimes) -> dict[str, float]:
    """Return phase -> seconds more (or less) than the base's; a phase that only one of them has counts as 0 there."""
    phases = [phase for phase in STEP_PHASES if phase in one.seconds or phase in base.seconds]
    return {phase: one.seconds.get(phase, 0.0) - base.seconds.get(phase, 0.0) for phase in phases}
