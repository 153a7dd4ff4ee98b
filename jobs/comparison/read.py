"""Read what a comparison needs of its runs: every point of a window of steps, and what is known of whole series.

Both are read of the clean history (jobs.telemetry.clean_series): what a resumed run did after the restored step is not
compared.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from jobs.catalog.metric import metric
from jobs.comparison.summary import SeriesSummary, summary_of
from jobs.models import Metric
from jobs.telemetry.chunks import Floats, Ints
from jobs.telemetry.clean_series import read_clean_of
from jobs.telemetry.clean_statistics import read_facts
from jobs.telemetry.series import MAX_POINTS, Series, SeriesRequest, SeriesWindow, series_rows

MAX_STEPS = 5000  # steps that medians and means look at: the newest of the common ones, every point of them


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
    return read_columns_of(run_ids=[run_id], names=names, window=window)[run_id]


def read_columns_of(*, run_ids: Collection[str], names: Collection[str], window: StepWindow) -> dict[str, Columns]:
    """Return run id -> what `read_columns` returns of it, with as many statements for many runs as for one."""
    span = SeriesWindow(low=window.low, high=window.high)
    request = SeriesRequest(num_points=MAX_POINTS, smoothing=None, window=span)
    answers = read_clean_of(run_ids=run_ids, names=names, request=request)
    return {
        run_id: {name: SeriesPoints(x=s.x, y=s.y) for name, s in one_lane(answer.series).items()}
        for run_id, answer in answers.items()
    }


def read_summaries_of(
    *, run_ids: Collection[str], names: Collection[str], at: int | Mapping[str, int] | None
) -> dict[str, dict[str, SeriesSummary]]:
    """Return run id -> metric name -> last, best, mean, smallest, largest and at-step value of its clean history.

    `at` is a step, or run id -> its own. All are kept when points are written: no series is read, and no statement is
    of one run or metric alone.
    """
    metrics = {pk: m for pk, m in series_rows(run_ids=run_ids, names=names).items() if m.kind == "metric"}
    facts = read_facts(run_ids=run_ids, metrics=metrics, at=at)
    summaries: dict[str, dict[str, SeriesSummary]] = {run_id: {} for run_id in run_ids}
    for pk in sorted(facts, key=lambda pk: lane_order(metrics[pk])):
        own = metrics[pk]
        summaries[own.run_id].setdefault(own.name, summary_of(facts[pk], better=metric(own.name).better))
    return summaries


def read_peaks_of(*, run_ids: Collection[str], names: Collection[str]) -> dict[str, dict[str, float]]:
    """Return run id -> metric name -> its largest finite value over all roles, ranks and time."""
    metrics = series_rows(run_ids=run_ids, names=names)
    peaks: dict[str, dict[str, float]] = {run_id: {} for run_id in run_ids}
    for pk, facts in read_facts(run_ids=run_ids, metrics=metrics).items():
        high, own = facts.statistics.high, peaks[metrics[pk].run_id]
        if high is not None:
            own[metrics[pk].name] = max(own.get(metrics[pk].name, high.y), high.y)
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
    for one in sorted(series, key=lane_order):
        if one.kind == "metric":
            by_name.setdefault(one.name, one)
    return by_name


def lane_order(series: Series | Metric) -> tuple[bool, str, int]:
    """Return the order in which lanes are taken: the driver's, then the first role and rank."""
    return series.role != "driver", series.role, series.rank
