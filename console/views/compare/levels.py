"""What a level of the outcome took each run or group, in time and GPU hours: a row of Measures, and table columns."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from django.utils.translation import gettext as _

from console.compare_numbers import share_text, value_text
from console.labels.catalog import metric_label
from console.views.compare.rows import ComparisonCell, MeasureLine, MetricBlock, change_word, in_parts
from console.views.compare.sides import Sides
from jobs.catalog.metric import metric
from jobs.comparison.targets import MEAN_OF, Reached, Target


@dataclass(frozen=True, slots=True, kw_only=True)
class _LevelColumn:
    """A run, or the runs of a group: of each when it reached the level. Of other conditions it says nothing."""

    reached: Sequence[Reached | None]
    is_base: bool
    is_comparable: bool

    @property
    def has_all(self) -> bool:
        return all(one is not None for one in self.reached)

    def seconds(self) -> list[float]:
        """Return the seconds of the runs that reached it and measured their steps."""
        return [one.seconds for one in self.reached if one is not None and one.seconds is not None]

    def gpu_hours(self) -> list[float]:
        """Return the GPU hours of the runs that reached it on GPUs."""
        return [one.gpu_hours for one in self.reached if one is not None and one.gpu_hours is not None]


def target_line(target: Target, sides: Sides, *, incomparable: Collection[str]) -> MeasureLine:
    """Return the row of the card Measures that says when each run, or group, first reached a level of the outcome.

    Of the `incomparable` runs, by id, times say nothing against the base's.
    """
    words = {"label": metric_label(target.metric), "value": _level(target)}
    columns = _columns(target, sides, incomparable)
    base = _base(columns)
    return MeasureLine(
        label=_("%(label)s %(value)s first reached") % words,
        name=target.metric,
        note=_("training time; mean of %(n)s steps") % {"n": MEAN_OF},
        cells=[_cell(column, base) for column in columns],
    )


def level_heads(target: Target) -> list[str]:
    """Return the heads of the columns that a level adds to the table."""
    heads = [_("Time to %(level)s") % {"level": _level(target)}]
    return [*heads, _("GPU hours to %(level)s") % {"level": _level(target)}] if _has_gpus(target) else heads


def add_level(blocks: Sequence[MetricBlock], target: Target, sides: Sides, *, incomparable: Collection[str]) -> None:
    """Put the cells under `level_heads` into the table: filled in for the metric of the level, empty for others."""
    columns = _columns(target, sides, incomparable)
    base = _base(columns)
    for block in blocks:
        for line, column in zip(block.lines, columns, strict=True):
            cells = [ComparisonCell(text="")] * len(level_heads(target))
            if block.name == target.metric:
                cells[0] = _cell(column, base, has_gpu_hours=False)
                if len(cells) > 1:
                    cells[1] = _gpu_cell(column, base)
            line.cells.extend(cells)


def _columns(target: Target, sides: Sides, incomparable: Collection[str]) -> list[_LevelColumn]:
    shown = [side.run.pk for side in sides.shown]
    of = [[run_id for run_id in group.run_ids if run_id in shown] for group in sides.groups] or [[one] for one in shown]
    base_id = sides.base.run.pk if sides.base else ""
    return [
        _LevelColumn(
            reached=[target.reached[run_id] for run_id in run_ids],
            is_base=base_id in run_ids,
            is_comparable=not set(run_ids) & set(incomparable),
        )
        for run_ids in of
        if run_ids
    ]


def _base(columns: Sequence[_LevelColumn]) -> _LevelColumn | None:
    return next((column for column in columns if column.is_base), None)


def _level(target: Target) -> str:
    return value_text(target.value, metric(target.metric).unit)


def _has_gpus(target: Target) -> bool:
    return any(own is not None and own.gpu_hours is not None for own in target.reached.values())


def _cell(own: _LevelColumn, base: _LevelColumn | None, *, has_gpu_hours: bool = True) -> ComparisonCell:
    met = [one for one in own.reached if one is not None]
    if not met:
        return ComparisonCell(text=_("not reached"))
    seconds, gpu_hours = own.seconds(), own.gpu_hours()
    parts = _among(own, [value_text(one, "s") for one in (min(seconds), max(seconds))] if seconds else [])
    if len(own.reached) == 1:
        parts = [_("step %(n)s") % {"n": f"{met[0].step:,}"}]
    if has_gpu_hours and gpu_hours:
        parts.append(_("%(n)s GPU h") % {"n": f"{_mean(gpu_hours):.3g}"})
    parts += _change(own, base, own.seconds(), base.seconds() if base else [])
    return ComparisonCell(text=value_text(_mean(seconds), "s"), note=in_parts(parts))


def _gpu_cell(own: _LevelColumn, base: _LevelColumn | None) -> ComparisonCell:
    hours = own.gpu_hours()
    if not hours:
        return ComparisonCell(text="—")
    parts = _among(own, [f"{min(hours):.3g}", f"{max(hours):.3g}"])
    parts += _change(own, base, hours, base.gpu_hours() if base else [])
    return ComparisonCell(text=f"{_mean(hours):.3g}", note=in_parts(parts))


def _among(own: _LevelColumn, ends: Sequence[str]) -> list[str]:
    """Return what a mean over a group's runs leaves out: from where to where they are, and how many got there."""
    if len(own.reached) == 1:
        return []
    met = [one for one in own.reached if one is not None]
    few = [] if own.has_all else [_("%(n)s of %(all)s runs") % {"n": len(met), "all": len(own.reached)}]
    return [*([" – ".join(ends)] if len(met) > 1 and ends else []), *few]


def _change(
    own: _LevelColumn, base: _LevelColumn | None, values: Sequence[float], theirs: Sequence[float]
) -> list[str]:
    """Return by how much a level took more than it took the base; other conditions make that no comparison."""
    mean, base_mean = _mean(values), _mean(theirs)
    if base is None or own.is_base or not mean or not base_mean or not (own.has_all and base.has_all):
        return []
    share = share_text(mean / base_mean - 1)
    return [share] if own.is_comparable and base.is_comparable else [share, change_word("not_comparable")]


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
