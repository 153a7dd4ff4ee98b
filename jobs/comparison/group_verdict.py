"""What may be said of groups of runs: each run is one value, and the spread between runs is the noise."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from jobs.catalog.metric import metric
from jobs.comparison.conditions import RunConditions, differing, of_group
from jobs.comparison.groups import RunGroup
from jobs.comparison.measures import Measure, MeasureRow
from jobs.comparison.phases import STEP_METRIC
from jobs.comparison.stats import ConfidenceInterval, welch_interval
from jobs.comparison.summary import Delta, GroupValue, delta
from jobs.comparison.verdict import OUTCOMES, RunVerdict, decide
from jobs.telemetry.chunks import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCell:
    """A measure over a group's runs. `contrast` is Welch's interval of its mean minus the base's group's, or of the
    ratio of their geometric means (`is_ratio`)."""

    value: GroupValue | None
    change: Delta | None
    contrast: ConfidenceInterval | None
    is_ratio: bool = False

    @property
    def is_shown(self) -> bool:
        """Whether the spread between the runs leaves a difference."""
        return self.contrast is not None and self.contrast.excludes(1 if self.is_ratio else 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    """A measure over all groups, in their order."""

    measure: Measure
    cells: tuple[GroupCell, ...]


def group_rows(
    *, rows: Sequence[MeasureRow], run_ids: Sequence[str], groups: Sequence[RunGroup], base: int
) -> tuple[GroupRow, ...]:
    """Return the measures by group. Cells of `rows` are in the order of `run_ids`; `base` is a place in `groups`."""
    return tuple(
        GroupRow(measure=row.measure, cells=_cells(row, [_of(row, run_ids, group) for group in groups], base))
        for row in rows
    )


def _cells(row: MeasureRow, columns: Sequence[Floats], base: int) -> tuple[GroupCell, ...]:
    better = metric(row.measure.metric).better
    cells = []
    for i, own in enumerate(columns):
        if i == base or not len(own) or not len(columns[base]):
            cells.append(GroupCell(value=_value(own), change=None, contrast=None))
            continue
        sides = (own, columns[base])
        is_ratio = row.measure.by_ratio and all((side > 0).all() for side in sides)
        ratio = _log_contrast(sides) if is_ratio else None
        change = delta(ratio.value, 1, better=better) if ratio else None
        cells.append(
            GroupCell(
                value=_value(own),
                change=change or delta(float(own.mean()), float(columns[base].mean()), better=better),
                contrast=ratio or _contrast(sides),
                is_ratio=ratio is not None,
            )
        )
    return tuple(cells)


def group_verdicts(
    *,
    rows: Sequence[MeasureRow],
    run_ids: Sequence[str],
    groups: Sequence[RunGroup],
    base: int,
    conditions: Mapping[str, RunConditions],
    window: tuple[int, int] | None = None,
) -> dict[int, RunVerdict]:
    """Return place of the group -> verdict against the base's group; `speed` is the ratio of mean log step times.

    `conditions` are those of each run: where they differ between two groups, step times are not compared. On which
    node a run was is among what the spread between runs covers.
    """
    by_name: Mapping[str, MeasureRow] = {row.measure.metric: row for row in rows}
    outcome = next((name for name in OUTCOMES if name in by_name), "")
    verdicts = {}
    for i, group in enumerate(groups):
        if i == base:
            continue
        sides = (group, groups[base])
        gain = _contrast([_of(by_name[outcome], run_ids, side) for side in sides]) if outcome else None
        speed = None
        if STEP_METRIC in by_name:
            speed = _log_contrast([_positive(_of(by_name[STEP_METRIC], run_ids, side)) for side in sides])
        own, theirs = (of_group([conditions[one] for one in side.run_ids if one in conditions]) for side in sides)
        differ = tuple(differing(own, theirs, window=window))
        is_comparable = not any(one.is_decisive for one in differ)
        verdicts[i] = RunVerdict(
            run_id=str(i),
            badge=decide(speed=speed, outcome=outcome, gain=gain, is_comparable=is_comparable),
            speed=speed,
            times=None,
            outcome=outcome,
            gain=gain,
            conditions=differ,
        )
    return verdicts


def incomparable_in_groups(
    groups: Sequence[RunGroup],
    *,
    base_id: str,
    conditions: Mapping[str, RunConditions],
    window: tuple[int, int] | None,
) -> frozenset[str]:
    """Return the ids of the runs of each group whose times say nothing against those of the base's group."""
    of = {
        group.run_ids: of_group([conditions[one] for one in group.run_ids if one in conditions])
        for group in groups
        if any(one in conditions for one in group.run_ids)
    }
    base = next(own for run_ids, own in of.items() if base_id in run_ids)
    far = [ids for ids, own in of.items() if any(one.is_decisive for one in differing(own, base, window=window))]
    return frozenset(run_id for run_ids in far for run_id in run_ids)


def _contrast(sides: Sequence[Floats]) -> ConfidenceInterval | None:
    return welch_interval(sides[0], sides[1])


def _log_contrast(sides: Sequence[Floats]) -> ConfidenceInterval | None:
    """Return the ratio of the geometric means of positive values."""
    logs = _contrast([np.log(side) for side in sides])
    return logs.exp if logs else None


def _of(row: MeasureRow, run_ids: Sequence[str], group: RunGroup) -> Floats:
    """Return the measure's finite values in the group's runs. [n]"""
    cells = dict(zip(run_ids, row.cells, strict=True))
    values = [cells[run_id].value for run_id in group.run_ids if run_id in cells]
    return np.array([value for value in values if value is not None and math.isfinite(value)], float)


def _positive(values: Floats) -> Floats:
    return values[values > 0]


def _value(values: Floats) -> GroupValue | None:
    if not len(values):
        return None
    return GroupValue(mean=float(values.mean()), low=float(values.min()), high=float(values.max()), n=len(values))
