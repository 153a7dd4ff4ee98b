"""What a level of the outcome took each run, in time and GPU hours: a row of Measures, and columns of the table."""

from collections.abc import Collection, Sequence

from django.utils.translation import gettext as _

from console.compare_numbers import share_text, value_text
from console.labels.catalog import metric_label
from console.views.compare.rows import ComparisonCell, MeasureLine, MetricBlock, change_word
from console.views.compare.sides import Sides
from jobs.catalog.metric import metric
from jobs.comparison.targets import MEAN_OF, Reached, Target


def target_line(target: Target, sides: Sides, *, incomparable: Collection[str]) -> MeasureLine:
    """Return the row of the card Measures that says when each run reached a level of the outcome.

    Of the `incomparable` runs, by id, times say nothing against the base's.
    """
    words = {"label": metric_label(target.metric), "value": _level(target)}
    base = _of_base(target, sides)
    return MeasureLine(
        label=_("%(label)s %(value)s first reached") % words,
        name=target.metric,
        note=_("training time; mean of %(n)s steps") % {"n": MEAN_OF},
        cells=[
            _cell(
                target.reached[side.run.pk],
                None if side.is_base else base,
                is_comparable=side.run.pk not in incomparable,
            )
            for side in sides.shown
        ],
    )


def level_heads(target: Target) -> list[str]:
    """Return the heads of the columns that a level adds to the table."""
    heads = [_("Time to %(level)s") % {"level": _level(target)}]
    return [*heads, _("GPU hours to %(level)s") % {"level": _level(target)}] if _has_gpus(target) else heads


def add_level(blocks: Sequence[MetricBlock], target: Target, sides: Sides, *, incomparable: Collection[str]) -> None:
    """Put the cells under `level_heads` into the table: filled in for the metric of the level, empty for others."""
    base = _of_base(target, sides)
    for block in blocks:
        for line, side in zip(block.lines, sides.shown, strict=True):
            cells = [ComparisonCell(text="")] * len(level_heads(target))
            if block.name == target.metric:
                own, theirs = target.reached[side.run.pk], None if side.is_base else base
                is_comparable = side.run.pk not in incomparable
                cells[0] = _cell(own, theirs, is_comparable=is_comparable, has_gpu_hours=False)
                if len(cells) > 1:
                    cells[1] = _gpu_cell(own, theirs, is_comparable=is_comparable)
            line.cells.extend(cells)


def _level(target: Target) -> str:
    return value_text(target.value, metric(target.metric).unit)


def _of_base(target: Target, sides: Sides) -> Reached | None:
    return target.reached.get(sides.base.run.pk) if sides.base else None


def _has_gpus(target: Target) -> bool:
    return any(own is not None and own.gpu_hours is not None for own in target.reached.values())


def _cell(
    own: Reached | None, base: Reached | None, *, is_comparable: bool, has_gpu_hours: bool = True
) -> ComparisonCell:
    if own is None:
        return ComparisonCell(text=_("not reached"))
    parts = [_("step %(n)s") % {"n": f"{own.step:,}"}]
    if has_gpu_hours and own.gpu_hours is not None:
        parts.append(_("%(n)s GPU h") % {"n": f"{own.gpu_hours:.3g}"})
    parts += _change(own.seconds, base.seconds if base else None, is_comparable=is_comparable)
    return ComparisonCell(text=value_text(own.seconds, "s"), note=", ".join(parts))


def _gpu_cell(own: Reached | None, base: Reached | None, *, is_comparable: bool) -> ComparisonCell:
    if own is None or own.gpu_hours is None:
        return ComparisonCell(text="—")
    parts = _change(own.gpu_hours, base.gpu_hours if base else None, is_comparable=is_comparable)
    return ComparisonCell(text=f"{own.gpu_hours:.3g}", note=", ".join(parts))


def _change(own: float | None, base: float | None, *, is_comparable: bool) -> list[str]:
    """Return by how much a level took more than it took the base; other conditions make that no comparison."""
    if not own or not base:
        return []
    share = share_text(own / base - 1)
    return [share] if is_comparable else [share, change_word("not_comparable")]
