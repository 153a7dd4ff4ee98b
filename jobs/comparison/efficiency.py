"""Tokens per second of CPU time: what a run gets out of the CPU cores that it was given.

Beside other programs a run on CPUs takes longer for the same work, and this stays. It says nothing of runs whose work
devices do.
"""

from collections.abc import Sequence

import numpy as np

from jobs.catalog.metric import metric
from jobs.comparison.conditions import RunConditions
from jobs.comparison.measures import Measure, MeasureCell, MeasureRow, Words
from jobs.comparison.phases import STEP_METRIC
from jobs.comparison.read import Columns, SeriesPoints
from jobs.comparison.stats import ConfidenceInterval, RunSpread, median_interval, ratio_interval
from jobs.comparison.summary import delta
from jobs.comparison.verdict import steady

TOKENS_PER_CPU_SECOND = "throughput/tokens_per_cpu_second"
"""A measure of comparisons alone: no run reports it."""
_TOKENS = (  # speed and time of the phase whose tokens are counted: those learned, or else those generated
    ("throughput/update_tokens_per_second", "time/update_seconds"),
    ("throughput/rollout_tokens_per_second", "time/rollout_seconds"),
)
EFFICIENCY_METRICS = tuple(name for pair in _TOKENS for name in pair)


def efficiency_of(columns: Columns, conditions: RunConditions) -> ConfidenceInterval | None:
    """Return tokens of a step / (its seconds x cores that the run took), with its interval; None where one is missing.

    The first is the median over the steps of tokens per second, the second the mean over the readings of the run. None
    of a run that has GPUs.
    """
    load = conditions.load
    if load is None or load.cores_taken is None or STEP_METRIC not in columns or conditions.has_gpus:
        return None
    for speed, seconds in _TOKENS:
        if speed in columns and seconds in columns:
            tokens = _joined(columns[speed], columns[seconds], np.multiply)
            pace = median_interval(steady(_joined(tokens, columns[STEP_METRIC], np.divide)))
            return ratio_interval(pace, load.cores_taken) if pace else None
    return None


def with_efficiency(
    rows: Sequence[MeasureRow], values: Sequence[ConfidenceInterval | None], *, base: int, spread: RunSpread
) -> tuple[MeasureRow, ...]:
    """Return the measures with this one behind the step time, where some run has it."""
    if not any(values):
        return tuple(rows)
    measure = Measure(metric=TOKENS_PER_CPU_SECOND, kind="whole")
    cells = tuple(_cell(own, None if place == base else values[base], spread) for place, own in enumerate(values))
    place = next((i + 1 for i, row in enumerate(rows) if row.measure.metric == STEP_METRIC), 0)
    return (*rows[:place], MeasureRow(measure=measure, cells=cells), *rows[place:])


def _cell(own: ConfidenceInterval | None, base: ConfidenceInterval | None, spread: RunSpread) -> MeasureCell:
    if own is None:
        return MeasureCell(value=None)
    if base is None:
        return MeasureCell(value=own.value, spread=own)
    change = delta(own.value, base.value, better=metric(TOKENS_PER_CPU_SECOND).better)
    ratio = ratio_interval(own, base)
    contrast = spread.widened(ratio) if ratio else None
    word: Words = ""
    if change is not None and contrast is not None:
        word = change.word if contrast.excludes(1) else "not_shown"
    return MeasureCell(value=own.value, spread=own, change=change, contrast=contrast, word=word)


def _joined(one: SeriesPoints, other: SeriesPoints, how: np.ufunc) -> SeriesPoints:
    x, own, theirs = np.intersect1d(one.x, other.x, return_indices=True)
    return SeriesPoints(x=x, y=how(one.y[own], other.y[theirs]))
