"""Read what a comparison needs of one run: every point of a window of steps, and extremes of whole series.

Both are read of the clean history (jobs.telemetry.clean_series): what a resumed run did after the restored step is not
compared.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from jobs.catalog.metric import metric
from jobs.comparison.summary import SeriesSummary, summarize
from jobs.models import Metric
from jobs.telemetry.chunks import Floats, Ints
from jobs.telemetry.clean_series import read_clean
from jobs.telemetry.series import MAX_NAMES, MAX_POINTS, Series, SeriesWindow

MAX_STEPS = 5000  # steps that medians and means look at: the newest of the common ones, every point of them
_OVERVIEW_POINTS = 200  # enough that thinned series are thinned by bins, whose extremes are exact
_LOOK_BACK = 100  # steps before the chosen one in which its newest value is looked for, or a fiftieth of them


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesPoints:
    """Every point of one series in a window: steps `x` rising and values `y`, both [n]."""

    x: Ints
    y: Floats


Columns = Mapping[str, SeriesPoints]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepWindow:
    """The steps `low` to `high`, both included, that all compared runs have done. `total` counts those before the cut.

    Only the newest `MAX_STEPS` of the common steps are looked at.
    """

    low: int
    high: int
    total: int


def common_window(steps: Iterable[int]) -> StepWindow | None:
    """Return the window of runs that have done so many steps each; runs before their first step count for nothing."""
    done = [step for step in steps if step > 0]
    if not done:
        return None
    high = min(done)
    return StepWindow(low=max(1, high - MAX_STEPS + 1), high=high, total=high)


def read_columns(*, run_id: str, names: Collection[str], window: StepWindow) -> Columns:
    """Return metric name -> every point of it in the window, of the driver or else of the first role and rank."""
    span = SeriesWindow(low=window.low, high=window.high)
    columns: dict[str, SeriesPoints] = {}
    for part in _parts(sorted(names)):
        answer = read_clean(run_id=run_id, names=part, num_points=MAX_POINTS, window=span)
        for name, series in one_lane(answer.series).items():
            columns[name] = SeriesPoints(x=series.x, y=series.y)
    return columns


def read_summaries(*, run_id: str, names: Collection[str], at: int | None) -> dict[str, SeriesSummary]:
    """Return metric name -> last, best, smallest, largest and at-step value of the run's clean history.

    Extremes are exact: down-sampling keeps each stretch's smallest and largest point. Where a series of more than 200
    points holds an infinity, the extreme of that stretch's finite values may be passed over.
    """
    summaries: dict[str, SeriesSummary] = {}
    for part in _parts(sorted(names)):
        near: dict[str, Series] = {}
        if at is not None:
            back = SeriesWindow(low=at - max(_LOOK_BACK, at // 50), high=at)
            near = one_lane(read_clean(run_id=run_id, names=part, num_points=MAX_POINTS, window=back).series)
        for name, series in one_lane(read_clean(run_id=run_id, names=part, num_points=_OVERVIEW_POINTS).series).items():
            x, y = series.x, series.y
            if name in near:
                x, y = _join(x, y, near[name])
            summaries[name] = summarize(x=x, y=y, better=metric(name).better, at=at)
    return summaries


def read_peaks(*, run_id: str, names: Collection[str]) -> dict[str, float]:
    """Return metric name -> its largest finite value over all roles, ranks and time."""
    peaks: dict[str, float] = {}
    for series in read_clean(run_id=run_id, names=names, num_points=_OVERVIEW_POINTS).series:
        finite = series.y[np.isfinite(series.y)]
        if len(finite):
            peaks[series.name] = max(peaks.get(series.name, -np.inf), float(finite.max()))
    return peaks


def metric_names(run_ids: Collection[str]) -> dict[str, set[str]]:
    """Return run id -> names of its metrics over steps, with one query."""
    by_run: dict[str, set[str]] = {run_id: set() for run_id in run_ids}
    for run_id, name in Metric.objects.filter(run__in=run_ids, kind="metric").values_list("run_id", "name").distinct():
        by_run[run_id].add(name)
    return by_run


def one_lane(series: Iterable[Series]) -> dict[str, Series]:
    """Return one series a name: the driver's, or that of the first role and rank."""
    by_name: dict[str, Series] = {}
    for one in sorted(series, key=lambda s: (s.role != "driver", s.role, s.rank)):
        if one.kind == "metric":
            by_name.setdefault(one.name, one)
    return by_name


def _join(x: Ints, y: Floats, more: Series) -> tuple[Ints, Floats]:
    """Return the points of both, each step once."""
    steps, places = np.unique(np.concatenate([x, more.x]), return_index=True)
    return steps, np.concatenate([y, more.y])[places]


def _parts(names: list[str]) -> Iterable[list[str]]:
    return (names[start : start + MAX_NAMES] for start in range(0, len(names), MAX_NAMES))
