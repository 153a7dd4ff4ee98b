"""What pages and API read of sweeps: each run's knob values beside the last and best value of one metric."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from django.db.models import Min

from jobs.catalog.knob import knobs
from jobs.catalog.metric import current_name, metric, metrics
from jobs.models import ENDED, LIVE, Project, Run, Study
from jobs.runs.filter import main_metric
from jobs.runs.header import RunHeader, run_headers
from jobs.runs.sparklines import spark_line
from jobs.sweeps.importance import KnobImportance, knob_importance
from jobs.telemetry.clean_series import read_clean

StudyState = Literal["queued", "running", "stopping", "finished", "failed", "stopped"]

PAGE_SIZE = 15
_POINTS = 60
_KEPT = 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricCurve:
    """A metric over a run's clean history: finite (step, value) points, and the best value there was, with its step."""

    points: tuple[tuple[int, float], ...] = ()
    best: float | None = None
    best_step: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyHeader:
    """A sweep at a glance. `counts`: state -> runs; `best` is None before any run has a value of `metric`.

    `knobs` are {"id", "values"} or {"id", "low", "high", "scale"}. Runs that were deleted count in `num_runs` alone,
    those in the trash in `num_trashed` too.
    """

    id: str
    name: str
    project: str
    state: StudyState
    algorithm: str
    knobs: tuple[Mapping[str, Any], ...]
    method: str
    seed: int
    num_runs: int
    max_concurrent: int
    is_stop_requested: bool
    counts: Mapping[str, int]
    num_trashed: int
    metric: str
    best: float | None
    best_run: str | None
    best_values: Mapping[str, Any]
    author: str
    created_at: str

    @property
    def num_ended(self) -> int:
        """Runs that have ended, whichever way."""
        return sum(self.counts.get(state, 0) for state in ENDED)

    @property
    def num_live(self) -> int:
        """Runs that hold resources of the cluster."""
        return sum(self.counts.get(state, 0) for state in LIVE)

    @property
    def is_over(self) -> bool:
        """True once no run waits or runs."""
        return self.state in ENDED


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyRow:
    """A run of a sweep: its values by knob, and of the metric the last and best value, and the step of the best.

    `differs` names the knobs whose value is not the catalogue's default.
    """

    header: RunHeader
    values: Mapping[str, Any]
    differs: tuple[str, ...]
    last: float | None
    best: float | None
    best_step: int | None
    points: tuple[tuple[int, float], ...]

    def spark(self, *, width: int, height: int) -> str:
        """Return its curve as SVG points, "" without two points."""
        return spark_line(self.points, num_steps=self.header.num_steps, width=width, height=height)


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyTable:
    """A sweep and its runs in the order of its points; `metrics` are those that one can choose."""

    header: StudyHeader
    rows: tuple[StudyRow, ...]
    metrics: tuple[str, ...]


def studies_of(project: Project, *, page: int = 1, page_size: int = PAGE_SIZE) -> tuple[list[StudyHeader], int]:
    """Return a page of the project's sweeps, newest first, and how many there are."""
    studies = Study.objects.filter(project=project)
    total = studies.count()
    start = (page - 1) * page_size
    newest = studies.select_related("project", "created_by").order_by("-created_at", "-pk")
    chosen = list(newest[start : start + page_size])
    runs: dict[str, list[Run]] = {study.pk: [] for study in chosen}
    for run in Run.objects.filter(study__in=chosen).defer("spec", "note").order_by("created_at", "pk"):
        runs[str(run.study_id)].append(run)
    return [_summary(study, runs[study.pk]) for study in chosen], total


def study_table(study: Study, *, metric_name: str = "") -> StudyTable:
    """Return the sweep with its runs; `metric_name` "" is the main metric of its algorithm."""
    study_runs = Run.objects.filter(study=study).select_related("project", "created_by")
    runs = list(study_runs.annotate(place=Min("attempts__pk")).order_by("place"))
    name = current_name(metric_name) or main_metric(study.spec.get("algorithm", ""))
    shown = [run for run in runs if run.trashed_at is None]
    rows = tuple(_row(run, header, name) for run, header in zip(shown, run_headers(shown), strict=True))
    names = {metric_id for run in shown for metric_id in run.latest_values}
    ordered = [metric_id for metric_id in metrics() if metric_id in names] + sorted(names - set(metrics()))
    chosen = (*ordered, *(() if name in ordered else (name,)))
    header = _header(study, runs, name, [(row.best, row.header.id) for row in rows])
    return StudyTable(header=header, rows=rows, metrics=chosen)


def table_importance(table: StudyTable) -> list[KnobImportance]:
    """Return what each knob of the sweep explains of the order of its runs by the best value of the metric."""
    importance = knob_importance(
        knobs=[knob["id"] for knob in table.header.knobs],
        values=[row.values for row in table.rows],
        outcomes=[row.best for row in table.rows],
    )
    return list(importance)


def is_better(name: str, value: float, than: float) -> bool:
    """Return True if `value` of the metric is better; of one without a better direction the higher counts."""
    return value < than if metric(name).better == "lower" else value > than


def study_state(counts: Mapping[str, int], *, is_stop_requested: bool) -> StudyState:
    """Return the state of a study whose runs are in these states, so many in each.

    Running while a run is starting or running, and between two runs; stopping while the last live ones stop; queued
    before the first. Then stopped if it was told to and a run obeyed, failed if every run failed, finished otherwise.
    """
    states = {state for state, number in counts.items() if number}
    if states & {"starting", "running"}:
        return "running"
    if "queued" in states:
        return "running" if states - {"queued"} else "queued"
    if "stopping" in states:
        return "stopping"
    if is_stop_requested and "stopped" in states:
        return "stopped"
    return "failed" if states == {"failed"} else "finished"


def _summary(study: Study, runs: Sequence[Run]) -> StudyHeader:
    name = main_metric(study.spec.get("algorithm", ""))
    return _header(study, runs, name, [(_curve(run, name).best, run.pk) for run in runs if run.trashed_at is None])


def _header(study: Study, runs: Sequence[Run], name: str, bests: Sequence[tuple[float | None, str]]) -> StudyHeader:
    shown = [run for run in runs if run.trashed_at is None]
    counts = Counter(run.state for run in shown)
    best: float | None = None
    best_run: str | None = None
    for value, run_id in bests:
        if value is not None and (best is None or is_better(name, value, best)):
            best, best_run = value, run_id
    values: Mapping[str, Any] = next((run.study_values for run in runs if run.pk == best_run), {})
    return StudyHeader(
        id=study.pk,
        name=study.name,
        project=study.project.slug,
        state=study_state(counts, is_stop_requested=study.is_stop_requested),
        algorithm=study.spec.get("algorithm", ""),
        knobs=tuple(study.knobs),
        method=study.method,
        seed=study.seed,
        num_runs=study.num_runs,
        max_concurrent=study.max_concurrent,
        is_stop_requested=study.is_stop_requested,
        counts=dict(counts),
        num_trashed=len(runs) - len(shown),
        metric=name,
        best=best,
        best_run=best_run,
        best_values=values,
        author=study.created_by.get_username() if study.created_by else "",
        created_at=study.created_at.isoformat(),
    )


def _row(run: Run, header: RunHeader, name: str) -> StudyRow:
    curve = _curve(run, name)
    catalogue = knobs()
    differs = tuple(
        knob_id
        for knob_id, value in run.study_values.items()
        if knob_id in catalogue and value != catalogue[knob_id].default_for(header.algorithm)
    )
    return StudyRow(
        header=header,
        values=run.study_values,
        differs=differs,
        last=curve.points[-1][1] if curve.points else None,
        best=curve.best,
        best_step=curve.best_step,
        points=curve.points,
    )


def _curve(run: Run, name: str) -> MetricCurve:
    """Return the driver's metric over the run's clean history, thinned; read once per newest frame and attempt."""
    return _read_curve(run.pk, name, run.latest_attempt, run.seq) if run.seq and name else MetricCurve()


@lru_cache(maxsize=_KEPT)
def _read_curve(run_id: str, name: str, _attempt: int, _seq: int) -> MetricCurve:
    answer = read_clean(run_id=run_id, names=[name], num_points=_POINTS)
    own_series = [s for s in answer.series if s.kind == "metric" and s.role == "driver"]
    if not own_series:
        return MetricCurve()
    series = own_series[0]
    points = tuple((int(x), float(y)) for x, y in zip(series.x, series.y, strict=True) if math.isfinite(y))
    # A thinned point stands for a stretch: its extremes are exact, where in the stretch they lie is not.
    extremes = series.low if metric(name).better == "lower" else series.high
    best: float | None = None
    best_step: int | None = None
    for x, value in zip(series.x, extremes, strict=True):
        if math.isfinite(value) and (best is None or is_better(name, float(value), best)):
            best, best_step = float(value), int(x)
    return MetricCurve(points=points, best=best, best_step=best_step)
