"""Two or more runs side by side: verdicts, measures, phases and the table of metrics, as frozen dataclasses.

`runs` are rows that the caller has checked access to, in the order in which they are shown. Nothing is cached: what
live runs report is in the next answer.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from jobs.accounts.access import User, projects_of
from jobs.comparison.conditions import RunConditions, differing, without_recorded
from jobs.comparison.efficiency import EFFICIENCY_METRICS, efficiency_of, with_efficiency
from jobs.comparison.environment import conditions_of
from jobs.comparison.group_verdict import incomparable_in_groups
from jobs.comparison.groups import RunGroup
from jobs.comparison.measures import PEAKS, WINDOWED, MeasureRow, measure_rows, without_words
from jobs.comparison.phases import PHASE_METRICS, STEP_METRIC, PhaseTimes, phase_times
from jobs.comparison.read import (
    Columns,
    StepWindow,
    common_window,
    metric_names,
    read_columns_of,
    read_peaks_of,
    read_summaries_of,
)
from jobs.comparison.repeats import run_spreads
from jobs.comparison.stats import ConfidenceInterval, RunSpread
from jobs.comparison.summary import NOTHING, SeriesSummary
from jobs.comparison.verdict import DROPPED_STEPS, RunVerdict, verdict
from jobs.models import Attempt, Run
from jobs.telemetry.attempt_spec import changed_knobs, merged, with_changes
from jobs.telemetry.chunks import Floats

MAX_RUNS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What may be said of the runs `run_ids` (hidden ones left out), against `base_id`.

    `window` is the common one, None before every run has done a step. `verdicts`, `phases`, `conditions` and
    `efficiency` (tokens per CPU second) are by run id; measures have their cells in the order of `run_ids`. `spread` is
    what the intervals of step times add to the noise between steps.
    """

    run_ids: tuple[str, ...]
    base_id: str
    window: StepWindow | None
    verdicts: Mapping[str, RunVerdict]
    measures: tuple[MeasureRow, ...]
    phases: Mapping[str, PhaseTimes]
    conditions: Mapping[str, RunConditions]
    efficiency: Mapping[str, ConfidenceInterval | None]
    spread: RunSpread

    @property
    def incomparable(self) -> frozenset[str]:
        """The runs whose times say nothing against the base's, as they were measured under other conditions."""
        return frozenset(run_id for run_id, one in self.verdicts.items() if not one.is_speed_comparable)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricRow:
    """One metric over all runs, in their order."""

    name: str
    summaries: tuple[SeriesSummary, ...]


def visible_runs(*, user: User, ids: Sequence[str]) -> list[Run]:
    """Return the runs with these ids that the person may see, in this order; others, and those in the trash, as if
    they did not exist."""
    rows = Run.objects.select_related("project", "created_by").filter(trashed_at=None)
    by_id = rows.filter(project__in=projects_of(user)).in_bulk(list(ids))
    return [by_id[run_id] for run_id in ids if run_id in by_id]


def current_specs(runs: Sequence[Run]) -> list[dict[str, object]]:
    """Return what each run is by now: its spec with what its latest attempt changed of it."""
    rows = Attempt.objects.filter(run__in=runs).values_list("run_id", "number", "overrides")
    overrides = {(run_id, number): changed for run_id, number, changed in rows}
    changed = changed_knobs(run.pk for run in runs)
    latest = [(run.pk, run.latest_attempt) for run in runs]
    by_now = [with_changes(overrides.get(key, {}), changed.get(key)) for key in latest]
    return [merged(run.spec, own) for run, own in zip(runs, by_now, strict=True)]


def window_of(runs: Sequence[Run]) -> StepWindow | None:
    """Return the steps that all runs which have begun have done."""
    return common_window(run.step for run in runs)


def compare(*, runs: Sequence[Run], base_id: str) -> Comparison:
    """Return the comparison of `runs` with the one that has the id `base_id`, which must be among them."""
    window = window_of(runs)
    names = {*WINDOWED, STEP_METRIC, *PHASE_METRICS, *EFFICIENCY_METRICS}
    ids = tuple(run.pk for run in runs)
    begun = [run.pk for run in runs if run.step > 0]
    read = read_columns_of(run_ids=begun, names=names, window=window) if window else {}
    columns: list[Columns] = [read.get(run_id, {}) for run_id in ids]
    peaks = read_peaks_of(run_ids=ids, names=PEAKS)
    base = ids.index(base_id)
    conditions = conditions_of(runs)
    columns = [without_recorded(own, conditions[run_id].captures) for run_id, own in zip(ids, columns, strict=True)]
    span = (window.low, window.high) if window else None
    efficiency = [efficiency_of(own, conditions[run_id]) for run_id, own in zip(ids, columns, strict=True)]
    spreads = run_spreads(runs[base], conditions[base_id])
    measures = measure_rows(columns=columns, peaks=[peaks[run_id] for run_id in ids], base=base, spreads=spreads)
    verdicts = {
        run_id: verdict(
            run_id=run_id,
            run=own,
            base=columns[base],
            conditions=differing(conditions[run_id], conditions[base_id], window=span),
            spreads=spreads,
        )
        for run_id, own in zip(ids, columns, strict=True)
        if run_id != base_id
    }
    comparison = Comparison(
        run_ids=ids,
        base_id=base_id,
        window=window,
        verdicts=verdicts,
        measures=measures,
        phases={run_id: phase_times(_after_first(own)) for run_id, own in zip(ids, columns, strict=True)},
        conditions=conditions,
        efficiency=dict(zip(ids, efficiency, strict=True)),
        spread=spreads.of(STEP_METRIC),
    )
    said = without_words(measures, incomparable=comparison.incomparable, run_ids=ids)
    return replace(comparison, measures=with_efficiency(said, efficiency, base=base, spread=spreads.of(STEP_METRIC)))


def incomparable_runs(*, runs: Sequence[Run], base_id: str, groups: Sequence[RunGroup] = ()) -> frozenset[str]:
    """Return the ids of the runs whose times say nothing against the base's; what `Comparison.incomparable` says.

    Where they are in groups it is those of each group whose verdict says so.
    """
    conditions, window = conditions_of(runs), window_of(runs)
    span = (window.low, window.high) if window else None
    if groups:
        return incomparable_in_groups(groups, base_id=base_id, conditions=conditions, window=span)
    return frozenset(
        run.pk
        for run in runs
        if any(one.is_decisive for one in differing(conditions[run.pk], conditions[base_id], window=span))
    )


def _after_first(columns: Columns) -> dict[str, Floats]:
    """Return the values of each phase without the run's first steps, which pay for warming up.

    They are those that the verdict leaves out, so that both say one step time; a run that has not done more loses its
    first step only.
    """
    last = max(
        (int(columns[name].x[-1]) for name in PHASE_METRICS if name in columns and len(columns[name].x)), default=0
    )
    dropped = DROPPED_STEPS if last > DROPPED_STEPS + 1 else 1
    return {
        name: columns[name].y[columns[name].x > dropped] for name in (STEP_METRIC, *PHASE_METRICS) if name in columns
    }


def metric_table(*, runs: Sequence[Run], at: int | None, names: Collection[str] | None = None) -> tuple[MetricRow, ...]:
    """Return the summaries of every metric over steps that some run has, or of those named, by name.

    `at` is the step of the at-step values; None: none.
    """
    own = metric_names([run.pk for run in runs])
    wanted = {name for values in own.values() for name in values}
    if names is not None:
        wanted &= set(names)
    read = read_summaries_of(run_ids=[run.pk for run in runs], names=wanted, at=at)
    return tuple(
        MetricRow(name=name, summaries=tuple(read[run.pk].get(name, NOTHING) for run in runs))
        for name in sorted(wanted)
    )
