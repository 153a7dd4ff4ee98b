"""How far the times of runs of one configuration lie apart in a project: what no single run's steps can show.

Repeats are finished runs whose specs are equal but for seeds. They are looked for among the newest runs of the project
that are of the base's algorithm, trainer and model, and were made under its conditions.
"""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from jobs.comparison.conditions import RunConditions, differing
from jobs.comparison.environment import conditions_of
from jobs.comparison.measures import MEASURES
from jobs.comparison.phases import PHASE_METRICS, STEP_METRIC
from jobs.comparison.read import SeriesPoints, StepWindow, read_columns_of
from jobs.comparison.stats import MIN_STEPS, pooled_spread
from jobs.comparison.verdict import DROPPED_STEPS, OF_DEMO, RunSpreads, steady
from jobs.models import Run

LOOKED_AT = 100
"""The newest finished runs of the project whose specs are read."""
MOST_REPEATS = 24
"""So many of them are measured: with more, Student's t gets hardly smaller."""
METRICS = (
    STEP_METRIC,
    *PHASE_METRICS,
    *(one.metric for one in MEASURES if one.kind == "median" and one.metric != STEP_METRIC),
)
_STEPS = StepWindow(low=1, high=512, total=512)


def run_spreads(base: Run, conditions: RunConditions) -> RunSpreads:
    """Return the spreads between repeats in the base's project, of each metric that enough of them have.

    `conditions`: those of the base.
    """
    groups = _groups(base)
    runs = [run for group in groups for run in group]
    if not runs:
        return OF_DEMO
    made = conditions_of(runs)
    alike = {run.pk for run in runs if not any(one.is_decisive for one in differing(made[run.pk], conditions))}
    read = read_columns_of(run_ids=alike, names=METRICS, window=_STEPS)
    spreads = {}
    for name in METRICS:
        medians = [[_median(read[run.pk].get(name)) for run in group if run.pk in alike] for group in groups]
        if spread := pooled_spread([[value for value in group if value is not None] for group in medians]):
            spreads[name] = spread
    return RunSpreads(measured=spreads)


def _median(points: SeriesPoints | None) -> float | None:
    """Return the median behind the first steps; None of too few."""
    values = steady(points) if points is not None else np.array([])
    values = values[np.isfinite(values) & (values > 0)]
    return float(np.median(values)) if len(values) >= MIN_STEPS else None


def _groups(base: Run) -> list[list[Run]]:
    """Return repeats, those of the newest run first, at most `MOST_REPEATS` runs in all."""
    rows = Run.objects.filter(project=base.project_id, state="finished", trashed_at=None)
    rows = rows.filter(step__gte=DROPPED_STEPS + MIN_STEPS).only("spec").order_by("-ended_at", "-pk")[:LOOKED_AT]
    kind = _kind(base.spec)
    by_configuration: dict[str, list[Run]] = {}
    for run in rows:
        if _kind(run.spec) == kind:
            by_configuration.setdefault(_configuration(run.spec), []).append(run)
    groups, room = [], MOST_REPEATS
    for group in by_configuration.values():
        if len(group) > 1 and room > 1:
            groups.append(group[:room])
            room -= len(groups[-1])
    return groups


def _kind(spec: Mapping[str, Any]) -> tuple[object, ...]:
    return tuple(json.dumps(spec.get(part), sort_keys=True) for part in ("algorithm", "trainer", "model"))


def _configuration(spec: Mapping[str, Any]) -> str:
    """Return the spec as text, without seeds and what people wrote on it."""
    knobs = {name: _value(held) for name, held in spec.get("knobs", {}).items() if not name.endswith("seed")}
    parts = {name: part for name, part in spec.items() if name not in ("name", "note", "tags")}
    return json.dumps({**parts, "knobs": knobs}, sort_keys=True)


def _value(held: object) -> object:
    """Return a knob's value: whether a person chose it or a recipe is no difference."""
    return held.get("value") if isinstance(held, Mapping) else held
