"""The measures of a comparison: one number a run over the common window, and how it stands to the base's."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from jobs.catalog.metric import metric
from jobs.comparison.read import Columns, SeriesPoints
from jobs.comparison.stats import MEAN_STEPS, ConfidenceInterval, RunSpread, median_interval
from jobs.comparison.summary import Better, Delta, delta
from jobs.comparison.verdict import OF_DEMO, RunSpreads, paired_difference, paired_mean_ratio, paired_ratio, steady

Kind = Literal["median", "mean", "newest", "peak", "whole"]
Words = Literal["better", "worse", "higher", "lower", "same", "not_shown", "not_comparable", ""]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """How a metric becomes one number.

    median: of the common steps after the first three; mean: of the last 20 common steps; newest: the newest value in
    the window; peak: the largest value of the whole run; whole: over all that was read since the trainer was ready.
    Of a metric that grows by factors, `by_ratio`, means are compared by their ratio where all values are above 0.
    """

    metric: str
    kind: Kind
    by_ratio: bool = False


MEASURES = (
    Measure(metric="time/step_seconds", kind="median"),
    Measure(metric="reward/mean", kind="mean"),
    Measure(metric="loss/sft", kind="mean"),
    Measure(metric="teacher/gap", kind="mean"),
    Measure(metric="pairs/accuracy", kind="mean"),
    Measure(metric="labels/accuracy", kind="mean"),
    Measure(metric="loss/pairs", kind="mean"),
    Measure(metric="loss/labels", kind="mean"),
    Measure(metric="eval/accuracy", kind="newest"),
    Measure(metric="eval/pairs_accuracy", kind="newest"),
    Measure(metric="eval/labels_accuracy", kind="newest"),
    Measure(metric="eval/loss", kind="newest"),
    Measure(metric="throughput/rollout_tokens_per_second", kind="median"),
    Measure(metric="throughput/update_tokens_per_second", kind="median"),
    Measure(metric="device_memory_bytes", kind="peak"),
    Measure(metric="trainer_memory_bytes", kind="peak"),
    Measure(metric="kl/reference", kind="mean", by_ratio=True),
    Measure(metric="groups/zero_variance_fraction", kind="mean"),
    Measure(metric="response/length_mean", kind="mean"),
)
MAX_ROWS = 8
PEAKS = tuple(measure.metric for measure in MEASURES if measure.kind == "peak")
WINDOWED = tuple(measure.metric for measure in MEASURES if measure.kind != "peak")


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureCell:
    """One run's number. `spread` is its own interval (medians only).

    Against the base: `change` with its sign, `contrast` the interval of the ratio (`is_ratio`) or of the difference,
    `word` better, worse, higher, lower, same, not_shown where the interval reaches no difference, or not_comparable
    where conditions differ that it hangs on; "" where no interval tells a difference from noise (newest, peak).
    """

    value: float | None
    step: int | None = None
    spread: ConfidenceInterval | None = None
    change: Delta | None = None
    contrast: ConfidenceInterval | None = None
    is_ratio: bool = False
    word: Words = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureRow:
    """A measure over all runs, in their order."""

    measure: Measure
    cells: tuple[MeasureCell, ...]


def measure_rows(
    *, columns: Sequence[Columns], peaks: Sequence[Mapping[str, float]], base: int, spreads: RunSpreads = OF_DEMO
) -> tuple[MeasureRow, ...]:
    """Return the measures that some run has, at most eight. `base` is the base's place among the runs, `spreads`
    those between the times of runs of one configuration."""
    rows = []
    for measure in MEASURES:
        if measure.kind == "peak":
            cells = [_peak(measure.metric, own, peaks[base]) for own in peaks]
        else:
            cells = [_cell(measure, own, columns[base], spreads, is_base=i == base) for i, own in enumerate(columns)]
        if any(cell.value is not None for cell in cells):
            rows.append(MeasureRow(measure=measure, cells=tuple(cells)))
    return tuple(rows[:MAX_ROWS])


def without_words(
    rows: Sequence[MeasureRow], *, incomparable: Collection[str], run_ids: Sequence[str]
) -> tuple[MeasureRow, ...]:
    """Return the rows in which times and speeds of the runs named are called neither better nor worse."""
    return tuple(
        replace(row, cells=tuple(_unsaid(cell, run_ids[i] in incomparable) for i, cell in enumerate(row.cells)))
        if row.measure.kind == "median"
        else row
        for row in rows
    )


def _unsaid(cell: MeasureCell, is_incomparable: bool) -> MeasureCell:
    return replace(cell, word="not_comparable") if is_incomparable and cell.word else cell


def _peak(name: str, own: Mapping[str, float], base: Mapping[str, float]) -> MeasureCell:
    if name not in own:
        return MeasureCell(value=None)
    change = delta(own[name], base[name], better=metric(name).better) if name in base and own is not base else None
    return MeasureCell(value=own[name], change=change)


def _cell(measure: Measure, own: Columns, base: Columns, spreads: RunSpreads, *, is_base: bool) -> MeasureCell:
    column = own.get(measure.metric)
    if column is None or not np.isfinite(column.y).any():
        return MeasureCell(value=None)
    theirs = None if is_base else base.get(measure.metric)
    better = metric(measure.metric).better
    if measure.kind == "median":
        return _median(column, theirs, better, spreads.of(measure.metric))
    if measure.kind == "newest":
        return _newest(column, theirs, better)
    ratio = paired_mean_ratio(column, theirs) if measure.by_ratio and theirs else None
    return _mean(column, theirs, better, ratio)


def _median(own: SeriesPoints, base: SeriesPoints | None, better: Better, spread: RunSpread) -> MeasureCell:
    values = steady(own) if np.isfinite(steady(own)).any() else own.y
    noise, other = median_interval(steady(own)), median_interval(steady(base)) if base else None
    contrast = paired_ratio(own, base, spread) if base else None
    change = delta(noise.value, other.value, better=better) if noise and other else None
    return MeasureCell(
        value=float(np.median(values[np.isfinite(values)])),
        spread=noise,
        change=change,
        contrast=contrast,
        is_ratio=True,
        word=_word(change, contrast, neutral=1),
    )


def _mean(
    own: SeriesPoints, base: SeriesPoints | None, better: Better, ratio: ConfidenceInterval | None
) -> MeasureCell:
    value = float(np.mean(own.y[np.isfinite(own.y)][-MEAN_STEPS:]))
    if ratio is not None:
        change = delta(ratio.value, 1, better=better)
        word = _word(change, ratio, neutral=1)
        return MeasureCell(value=value, change=change, contrast=ratio, is_ratio=True, word=word)
    contrast = paired_difference(own, base) if base else None
    change = delta(value, value - contrast.value, better=better) if contrast else None
    return MeasureCell(value=value, change=change, contrast=contrast, word=_word(change, contrast, neutral=0))


def _newest(own: SeriesPoints, base: SeriesPoints | None, better: Better) -> MeasureCell:
    place = int(np.flatnonzero(np.isfinite(own.y))[-1])
    value, step = float(own.y[place]), int(own.x[place])
    change = None
    if base is not None and step in base.x:
        change = delta(value, float(base.y[base.x == step][-1]), better=better)
    return MeasureCell(value=value, step=step, change=change)


def _word(change: Delta | None, contrast: ConfidenceInterval | None, *, neutral: float) -> Words:
    if change is None or contrast is None:
        return ""
    is_one_way = (contrast.value > neutral) == (change.difference > 0)  # medians may lie the other way
    return change.word if contrast.excludes(neutral) and is_one_way else "not_shown"
