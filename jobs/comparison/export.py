"""A comparison as CSV: the table of metrics, and every point of chosen series. UTF-8, one line each."""

from collections.abc import Collection, Iterator, Sequence

from jobs.catalog.metric import metric
from jobs.comparison.compare import MetricRow, metric_table
from jobs.comparison.read import StepWindow, metric_names, read_columns
from jobs.comparison.summary import STATISTICS, delta
from jobs.models import Run
from jobs.telemetry.csv_text import csv_cell, csv_line

_STEPS_AT_ONCE = 5000
_NAMES = {"low": "min", "high": "max"}
TABLE_FIELDS = ("metric", "label", "unit", "better", "run", "name", "is_base")


def table_csv(*, runs: Sequence[Run], base_id: str, at: int | None) -> Iterator[str]:
    """Yield a head and one line a metric and run: value and step of each statistic, and the difference to the base."""
    parts = [f"{_NAMES.get(name, name)}{part}" for name in STATISTICS for part in _parts(name)]
    yield csv_line([*TABLE_FIELDS, *parts])
    base = [run.pk for run in runs].index(base_id)
    for row in metric_table(runs=runs, at=at):
        for i, run in enumerate(runs):
            yield csv_line([*_head(row, run, base_id), *_cells(row, i, base)])


def _parts(statistic: str) -> tuple[str, ...]:
    return ("", "_minus_base") if statistic == "mean" else ("", "_step", "_minus_base")


def _head(row: MetricRow, run: Run, base_id: str) -> list[str | float]:
    about = metric(row.name)
    texts = (row.name, about.label, about.unit, about.better, run.pk, run.name)
    return [*map(csv_cell, texts), int(run.pk == base_id)]


def _cells(row: MetricRow, place: int, base: int) -> list[str | float]:
    cells: list[str | float] = []
    for statistic in STATISTICS:
        spot, theirs = row.summaries[place].spot(statistic), row.summaries[base].spot(statistic)
        if spot is None:
            cells += [""] * len(_parts(statistic))
            continue
        change = delta(spot.value, theirs.value, better="") if theirs else None
        cells += [spot.value, *([] if spot.step is None else [spot.step]), change.difference if change else ""]
    return cells


def series_csv(*, runs: Sequence[Run], names: Collection[str]) -> Iterator[str]:
    """Yield a head and one line a point of the runs' clean histories: every point, none left out.

    A run is read in windows of 5,000 steps, so that no more of it is in memory at once; "" stands for an empty one, so
    that whoever sends the lines can end there: a run may say that it is at step two billion.
    """
    yield csv_line(["run", "name", "metric", "step", "value"])
    own = metric_names([run.pk for run in runs])
    for run in runs:
        wanted = own[run.pk] & set(names)
        for low in range(0, max(run.step, run.num_steps) + 1, _STEPS_AT_ONCE) if wanted else ():
            window = StepWindow(low=low, high=low + _STEPS_AT_ONCE - 1, total=run.step)
            columns = read_columns(run_id=run.pk, names=wanted, window=window)
            if not columns:
                yield ""
            for name in sorted(columns):
                head = [csv_cell(text) for text in (run.pk, run.name, name)]
                column = columns[name]
                for step, value in zip(column.x.tolist(), column.y.tolist(), strict=True):
                    yield csv_line([*head, step, value])
