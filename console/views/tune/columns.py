"""What the page of a sweep says of each run beside last and best: a column a knob, a value, an effort."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest
from django.utils.translation import gettext as _

from console.labels.catalog import metric_label
from jobs.catalog.knob import knobs
from jobs.catalog.metric import metric
from jobs.catalog.value import value_text
from jobs.comparison.read import read_summaries_of
from jobs.comparison.targets import Reached, reach_level
from jobs.models import Run
from jobs.sweeps.table import StudyRow, StudyTable

MOST_METRICS = 40
"""Of the metrics beside the one that runs are judged by, so many newest values can be drawn."""
_MAX_STEP = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepQuery:
    """What the address asks for: the metric that runs are judged by, a step, and a level of the metric, or None."""

    metric: str
    step: int | None
    target: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEffort:
    """Of a run: the metric's newest value at or before the step, and when it first had the level; None: not asked, or
    not there.
    """

    at: float | None = None
    reached: Reached | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepColumn:
    """Something that runs of a sweep differ in, as charts draw it. `words` are its values where they are no numbers."""

    id: str
    label: str
    unit: str
    is_knob: bool
    is_log: bool
    words: Sequence[str]


def read_query(request: HttpRequest) -> SweepQuery:
    """Return what the request asks for; a value that is wrong counts as none."""
    get = request.GET
    step, target = get.get("step", ""), get.get("target", "")
    is_step = re.fullmatch(r"[0-9]{1,10}", step) is not None and int(step) <= _MAX_STEP
    is_level = re.fullmatch(r"-?[0-9]{1,12}(\.[0-9]{1,12})?([eE]-?[0-9]{1,2})?", target) is not None
    return SweepQuery(
        metric=get.get("metric", "").replace("\0", "")[:120],
        step=int(step) if is_step else None,
        target=float(target) if is_level else None,
    )


def read_efforts(table: StudyTable, query: SweepQuery) -> dict[str, RunEffort]:
    """Return run id -> what the query asks of it besides, with as many statements for many runs as for one."""
    ids, name = [row.header.id for row in table.rows], table.header.metric
    at: dict[str, float | None] = {}
    if query.step is not None:
        for run_id, own in read_summaries_of(run_ids=ids, names=[name], at=query.step).items():
            spot = own[name].at if name in own else None
            at[run_id] = spot.value if spot else None
    reached: Mapping[str, Reached | None] = {}
    if query.target is not None:
        runs = list(Run.objects.filter(pk__in=ids))
        reached = reach_level(runs=runs, name=name, value=query.target).reached
    return {run_id: RunEffort(at=at.get(run_id), reached=reached.get(run_id)) for run_id in ids}


def chart_data(table: StudyTable, query: SweepQuery, efforts: Mapping[str, RunEffort]) -> dict[str, object]:
    """Return what the charts draw, JSON-able: the columns, and per run its color and its value of each."""
    names = [knob["id"] for knob in table.header.knobs]
    label = metric_label(table.header.metric)
    unit = metric(table.header.metric).unit
    columns = [_knob_column(name, [row.values.get(name) for row in table.rows]) for name in names]
    columns += [
        _number("best", _("%(metric)s, best") % {"metric": label}, unit),
        _number("last", _("%(metric)s, last") % {"metric": label}, unit),
    ]
    if query.step is not None:
        columns.append(_number("at", _("%(metric)s at step %(n)s") % {"metric": label, "n": f"{query.step:,}"}, unit))
    if query.target is not None:
        columns.append(_number("target_seconds", _("Time to %(level)s") % {"level": query.target}, "s"))
        columns.append(_number("target_gpu_hours", _("GPU hours to %(level)s") % {"level": query.target}, "h"))
    columns += [_number("seconds", _("Time it ran"), "s"), _number("gpu_hours", _("GPU hours"), "h")]
    others = [name for name in table.metrics if name != table.header.metric][:MOST_METRICS]
    columns += [
        _number(name, _("%(metric)s, last") % {"metric": metric_label(name)}, metric(name).unit) for name in others
    ]
    runs = []
    for row in table.rows:
        numbers = _numbers(row, efforts[row.header.id], others)
        chosen = {name: _plain(row.values[name]) for name in names if name in row.values}
        values = chosen | {name: value for name, value in numbers.items() if value is not None}
        header = row.header
        runs.append({"id": header.id, "name": header.name, "color": header.color % 10, "values": values})
    present = {name for run in runs for name in run["values"]}  # type: ignore[attr-defined]
    shown = [column for column in columns if column.is_knob or column.id in present]
    return {"columns": [_column_json(column) for column in shown], "runs": runs}


def _numbers(row: StudyRow, effort: RunEffort, others: Sequence[str]) -> dict[str, float | None]:
    header, reached = row.header, effort.reached
    seconds = header.elapsed_seconds
    newest = {name: header.latest_values.get(name) for name in others}
    return {
        **{name: float(value) if isinstance(value, (int, float)) else None for name, value in newest.items()},
        "best": row.best,
        "last": row.last,
        "at": effort.at,
        "target_seconds": reached.seconds if reached else None,
        "target_gpu_hours": reached.gpu_hours if reached else None,
        "seconds": seconds,
        "gpu_hours": seconds * header.num_gpus / 3600 if seconds is not None and header.num_gpus else None,
    }


def _knob_column(name: str, values: Sequence[Any]) -> SweepColumn:
    numbers = [v for v in values if isinstance(v, (int, float)) and not isinstance(v, bool)]
    is_number = bool(numbers) and len(numbers) == len(values)
    knob = knobs().get(name)
    return SweepColumn(
        id=name,
        label=_(knob.label) if knob else name,
        unit="",
        is_knob=True,
        is_log=is_number and min(numbers) > 0 and max(numbers) >= 10 * min(numbers),
        words=() if is_number else tuple(sorted({value_text(v) for v in values if v is not None})),
    )


def _number(name: str, label: str, unit: str) -> SweepColumn:
    return SweepColumn(id=name, label=label, unit=unit, is_knob=False, is_log=False, words=())


def _plain(value: Any) -> Any:
    return value_text(value) if isinstance(value, (bool, str)) else value


def _column_json(column: SweepColumn) -> dict[str, object]:
    return {
        "id": column.id,
        "label": column.label,
        "unit": column.unit,
        "isKnob": column.is_knob,
        "isLog": column.is_log,
        "words": list(column.words),
    }
