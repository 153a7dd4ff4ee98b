"""Shapes of comparisons on the API. An interval is the estimate with the two ends of its 95 % interval."""

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from django.urls import reverse
from ninja import Field, Schema

from console.api.runs.captures import CaptureOut, capture_out
from console.api.runs.series_schema import Number
from jobs.catalog.metric import metric
from jobs.comparison.compare import Comparison, MetricRow, current_specs
from jobs.comparison.condition_rows import condition_rows
from jobs.comparison.config import SettingRow, setting_rows
from jobs.comparison.point import RunPoint
from jobs.comparison.stats import ConfidenceInterval
from jobs.comparison.summary import STATISTICS, Spot
from jobs.comparison.targets import Target
from jobs.comparison.traces import TraceRow, Traces
from jobs.models import Run
from profiling.events import encode_number


class IntervalOut(Schema):
    """An estimate, its 95 % interval, and from how many steps."""

    value: float
    low: float
    high: float
    n: int


class ConditionOut(Schema):
    """A condition that differs. `is_decisive`: step times are not comparable for it."""

    kind: str = Field(description="load, devices, cpu, node, driver, python, packages, code or captures")
    name: str = Field(description='of the package, else ""')
    run: str
    base: str
    is_decisive: bool


class ReasonOut(Schema):
    """A phase, and the ratio of its median seconds, run over base."""

    phase: str
    ratio: IntervalOut


class LoadOut(Schema):
    """Shares of the processors of the run's busiest node while it trained. `taken`: by others while it was full."""

    own: float
    others: float
    taken: float


class VerdictOut(Schema):
    """A run against the base. `outcome` names the metric that decides, "" if they share none."""

    badge: str = Field(description="better, worse, no_difference, not_comparable or not_enough")
    outcome: str
    gain: IntervalOut | None = Field(description="run minus base, mean of the last 20 common steps")
    speed: IntervalOut | None = Field(description="ratio of median step times, run over base: below 1 is faster")
    is_speed_comparable: bool = Field(description="False: a condition differs that step times hang on")
    conditions: list[ConditionOut]
    reason: ReasonOut | None = Field(description="the phase that most of the difference in step time comes from")


class ComparedRunOut(Schema):
    """One run. `verdict` is None for the base; `phases` are median seconds of a step after the first."""

    id: str
    name: str
    state: str
    step: int
    verdict: VerdictOut | None
    phases: dict[str, float]
    step_seconds: float | None
    load: LoadOut | None
    tokens_per_cpu_second: IntervalOut | None


class WindowOut(Schema):
    """The steps that count: `low` to `high`, both included."""

    low: int
    high: int


class SpotOut(Schema):
    """A value and its step."""

    step: int
    value: Number


class SummaryOut(Schema):
    """One metric of one run; None where there is no such value. `at` is the newest at or before the chosen step.

    `mean` is over all finite values.
    """

    run: str
    last: SpotOut | None
    best: SpotOut | None
    mean: Number | None
    min: SpotOut | None
    max: SpotOut | None
    at: SpotOut | None


class RunPointOut(Schema):
    """A run at a place of the x axis; `step` is null where it has not come that far, or has not measured the axis."""

    run: str
    step: int | None
    value: SpotOut | None = Field(description="the newest at or before that step")


class ComparePointOut(Schema):
    """The runs at a place of the axis `x`, in the order in which they were named."""

    x: str
    at: float
    runs: list[RunPointOut]


class MetricRowOut(Schema):
    """One metric over all runs; `better` is higher, lower or "" where neither is."""

    name: str
    label: str
    unit: str
    better: str
    runs: list[SummaryOut]


class SettingOut(Schema):
    """One value of one run; `origin` is default, recipe, you or tuner."""

    value: Any
    origin: str


class KnobDifferenceOut(Schema):
    """A knob or field of the spec in which runs differ; None where it does not apply."""

    id: str
    values: dict[str, SettingOut | None]


class ComparedCaptureOut(CaptureOut):
    """A capture; `is_dead` where its run was resumed from before its steps.

    `summary_url` says where its time goes, `difference_url` what it does differently from the base's capture of
    the same steps (also GET /api/traces/<base's>/difference?other=<this one>); null until the files were imported.
    """

    is_dead: bool
    summary_url: str | None
    difference_url: str | None


class CaptureRowOut(Schema):
    """Captures with one tool of steps that overlap, by run id; `steps` None: those whose steps are not known yet."""

    tool: str
    steps: tuple[int, int] | None
    runs: dict[str, list[ComparedCaptureOut]]


class ReachedOut(Schema):
    """When a run first reached the level; null: no step times, or no GPUs."""

    step: int
    seconds: float | None
    gpu_hours: float | None


class TargetOut(Schema):
    """A level of the outcome, and when the mean of five steps of each run first reached it; null: it did not."""

    metric: str
    value: float
    runs: dict[str, ReachedOut | None]


class RunSpreadOut(Schema):
    """By how much step times of two runs of one configuration may differ: what the intervals of times cover."""

    ratio: float = Field(description="in 95 of 100 pairs the longer time is at most so many times the shorter one")
    num_repeats: int = Field(description="runs of the project that it is from; 0: the seeds of the demo on CPU")


class CompareOut(Schema):
    """A comparison. `window` is None before every run has done a step."""

    base: str
    step: int | None = Field(description="the step of the at-step values")
    window: WindowOut | None
    runs: list[ComparedRunOut]
    metrics: list[MetricRowOut]
    differences: list[KnobDifferenceOut]
    num_equal: int
    spread: RunSpreadOut
    environment: list[KnobDifferenceOut] = Field(description="what differs in hardware, packages, code and data")
    captures: list[CaptureRowOut] = Field(description="by step; of each run the newest 50")
    target: TargetOut | None = Field(
        description="null where they share no reward or loss, or are more than ten and no level is named"
    )


class CompareSeriesOut(Schema):
    """One series of one run: `n` points standing for `of`. Numbers not finite are "NaN", "Infinity"..."""

    run: str
    name: str
    role: str
    rank: int
    n: int
    of: int
    x: list[float] = Field(description="step, or place on the axis")
    y: list[Number]
    smooth: list[Number] | None


class CompareSeriesListOut(Schema):
    """Series of several runs."""

    series: list[CompareSeriesOut]


class CompareColumnsLineOut(Schema):
    """One series by columns that hold points, `n` of them, made of `of` points. Null: no finite point there."""

    run: str
    name: str
    role: str
    rank: int
    n: int
    of: int
    odd: list[tuple[int, str]] = Field(description="columns with values not finite, and the first of them")
    column: list[int]
    y: list[float | None] = Field(description="mean")
    low: list[float | None]
    high: list[float | None]
    smooth: list[float | None] | None = Field(description="at the last point of the column")


class CompareColumnsOut(Schema):
    """Series of several runs on one grid: column k begins at `low` + k * `width`.

    `unplaced` are the runs that have not measured the axis: their lines have no columns.
    """

    x: str
    low: float
    width: float
    unplaced: list[str]
    series: list[CompareColumnsLineOut]


def compare_out(
    *,
    runs: Sequence[Run],
    comparison: Comparison,
    table: Sequence[MetricRow],
    at: int | None,
    traces: Traces,
    target: Target | None,
) -> CompareOut:
    """Return a comparison as it travels."""
    ids = [run.pk for run in runs]
    base = ids.index(comparison.base_id)
    settings = setting_rows(current_specs(runs), base=base)
    environment = condition_rows([comparison.conditions[run_id] for run_id in ids], base=base)
    return CompareOut(
        base=comparison.base_id,
        step=at,
        window=WindowOut(low=comparison.window.low, high=comparison.window.high) if comparison.window else None,
        runs=[_run(run, comparison) for run in runs],
        metrics=[_metric(row, ids) for row in table],
        differences=_differences(settings, ids),
        environment=_differences(environment, ids),
        num_equal=sum(1 for row in settings if not row.is_different),
        captures=[_captures(row, runs, ids.index(comparison.base_id)) for row in traces.rows],
        spread=RunSpreadOut(ratio=math.exp(comparison.spread.reach), num_repeats=comparison.spread.num_runs),
        target=_target(target) if target else None,
    )


def _target(target: Target) -> TargetOut:
    reached = {run_id: ReachedOut(**asdict(one)) if one else None for run_id, one in target.reached.items()}
    return TargetOut(metric=target.metric, value=target.value, runs=reached)


def _differences(rows: Sequence[SettingRow], ids: Sequence[str]) -> list[KnobDifferenceOut]:
    return [
        KnobDifferenceOut(
            id=row.id,
            values={
                run_id: SettingOut(value=setting.value, origin=setting.origin) if setting else None
                for run_id, setting in zip(ids, row.settings, strict=True)
            },
        )
        for row in rows
        if row.is_different
    ]


def _captures(row: TraceRow, runs: Sequence[Run], base: int) -> CaptureRowOut:
    base_trace = row.opened_of(base)
    return CaptureRowOut(
        tool=row.tool,
        steps=row.steps,
        runs={
            run.pk: [
                ComparedCaptureOut(
                    **capture_out(run, trace.capture).model_dump(),
                    is_dead=trace.is_dead,
                    summary_url=reverse("trace-summary", args=[trace.opened]) if trace.opened else None,
                    difference_url=f"{reverse('trace-difference', args=[base_trace])}?other={trace.opened}"
                    if base_trace and trace.opened and run.pk != runs[base].pk
                    else None,
                )
                for trace in own
            ]
            for run, own in zip(runs, row.captures, strict=True)
        },
    )


def _run(run: Run, comparison: Comparison) -> ComparedRunOut:
    verdict, times = comparison.verdicts.get(run.pk), comparison.phases[run.pk]
    load = comparison.conditions[run.pk].load
    return ComparedRunOut(
        id=run.pk,
        name=run.name,
        state=run.state,
        step=run.step,
        verdict=VerdictOut(
            badge=verdict.badge,
            outcome=verdict.outcome,
            gain=_interval(verdict.gain),
            speed=_interval(verdict.speed),
            is_speed_comparable=verdict.is_speed_comparable,
            conditions=[ConditionOut(**asdict(one)) for one in verdict.conditions],
            reason=ReasonOut(phase=verdict.reason.phase, ratio=_some(verdict.reason.ratio)) if verdict.reason else None,
        )
        if verdict
        else None,
        phases=dict(times.seconds),
        step_seconds=times.step,
        load=LoadOut(own=load.own, others=load.others, taken=load.taken) if load else None,
        tokens_per_cpu_second=_interval(comparison.efficiency[run.pk]),
    )


def _interval(interval: ConfidenceInterval | None) -> IntervalOut | None:
    return _some(interval) if interval else None


def _some(interval: ConfidenceInterval) -> IntervalOut:
    return IntervalOut(value=interval.value, low=interval.low, high=interval.high, n=interval.n)


def point_out(point: RunPoint) -> RunPointOut:
    """Return a run at a place of a chart."""
    return RunPointOut(run=point.run_id, step=point.step, value=_spot(point.value))


def _metric(row: MetricRow, ids: Sequence[str]) -> MetricRowOut:
    about = metric(row.name)
    names = {"low": "min", "high": "max"}
    summaries = []
    for run_id, summary in zip(ids, row.summaries, strict=True):
        spots = {names.get(name, name): _spot(summary.spot(name)) for name in STATISTICS if name != "mean"}
        mean = encode_number(summary.mean.value) if summary.mean else None
        summaries.append(SummaryOut(run=run_id, mean=mean, **spots))
    return MetricRowOut(name=row.name, label=about.label, unit=about.unit, better=about.better, runs=summaries)


def _spot(spot: Spot | None) -> SpotOut | None:
    return SpotOut(step=spot.step, value=encode_number(spot.value)) if spot and spot.step is not None else None
