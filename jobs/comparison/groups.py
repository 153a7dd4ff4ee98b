"""Runs grouped by the value that a knob has in them, as a sweep sets it."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jobs.comparison.summary import GroupValue, SeriesSummary, over_group
from jobs.models import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class RunGroup:
    """Runs in which the knob has the same value; None where it does not apply."""

    value: Any
    run_ids: tuple[str, ...]


def knob_value(run: Run, knob_id: str) -> Any:
    """Return what the sweep gave the run, or what its spec says; None if it has no such knob."""
    if knob_id in run.study_values:
        return run.study_values[knob_id]
    chosen = run.spec.get("knobs", {}).get(knob_id)
    return chosen.get("value") if isinstance(chosen, Mapping) else chosen


def group_runs(runs: Sequence[Run], *, knob_id: str) -> tuple[RunGroup, ...]:
    """Return the runs by the knob's value: numbers rising, then texts, runs without it last."""
    by_value: dict[tuple[int, float, str], tuple[Any, list[str]]] = {}
    for run in runs:
        value = knob_value(run, knob_id)
        by_value.setdefault(_place(value), (value, []))[1].append(run.pk)
    return tuple(RunGroup(value=value, run_ids=tuple(ids)) for _, (value, ids) in sorted(by_value.items(), key=_first))


def _first(item: tuple[tuple[int, float, str], Any]) -> tuple[int, float, str]:
    return item[0]


def _place(value: Any) -> tuple[int, float, str]:
    if value is None:
        return (3, 0.0, "")
    if isinstance(value, bool):
        return (0, float(value), "")
    if isinstance(value, (int, float)):
        return (1, float(value), "")
    return (2, 0.0, str(value))


def swept_knobs(runs: Sequence[Run], *, first: Collection[str] = ()) -> tuple[str, ...]:
    """Return the knobs by which the runs can be grouped: those of their sweep, else those in which they differ."""
    swept = dict.fromkeys([*first, *(knob for run in runs for knob in run.study_values)])
    if swept:
        return tuple(swept)
    names = dict.fromkeys(name for run in runs for name in run.spec.get("knobs", {}))
    return tuple(name for name in names if len({_place(knob_value(run, name)) for run in runs}) > 1)


def group_values(
    groups: Sequence[RunGroup], summaries: Mapping[str, SeriesSummary], statistic: str
) -> tuple[GroupValue | None, ...]:
    """Return a statistic over each group's runs. `summaries` maps run id -> summary of one metric."""
    return tuple(
        over_group([summaries[run_id].spot(statistic) for run_id in group.run_ids if run_id in summaries])
        for group in groups
    )
