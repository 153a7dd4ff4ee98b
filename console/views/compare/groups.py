"""What the tab Verdict says of groups of runs, which a sweep's knob makes."""

from collections.abc import Mapping
from dataclasses import dataclass

from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from console.compare_numbers import difference_text, gap_text, ratio_text, value_text
from console.labels.catalog import metric_label
from console.views.compare.conditions import condition_sentence
from console.views.compare.labels import RANK, VerdictText, headline, said_as
from console.views.compare.rows import TONES, ComparisonCell, MeasureLine, change_word, in_parts, measure_line
from console.views.compare.sides import Sides, group_label
from jobs.catalog.metric import metric
from jobs.comparison.compare import Comparison
from jobs.comparison.group_verdict import GroupCell, GroupRow, group_rows, group_verdicts
from jobs.comparison.groups import RunGroup
from jobs.comparison.summary import GroupValue
from jobs.comparison.verdict import RunVerdict
from profiling.counted import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictColumn:
    """A run or a group among the measures."""

    name: str
    title: str
    color: int
    is_base: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictPanel:
    """What the tab Verdict says, the most important first, and the measures that it rests on."""

    verdicts: list[VerdictText]
    columns: list[VerdictColumn]
    measures: list[MeasureLine]


def grouped_panel(comparison: Comparison, sides: Sides) -> VerdictPanel:
    """Return verdicts, heads and measures by group; the base's group is what the others are held against."""
    groups = [
        (place, group) for place, group in enumerate(sides.groups) if set(group.run_ids) & set(comparison.run_ids)
    ]
    own = [group for _place, group in groups]
    base = next(i for i, group in enumerate(own) if comparison.base_id in group.run_ids)
    names = [_name(place, group) for place, group in groups]
    rows = group_rows(rows=comparison.measures, run_ids=comparison.run_ids, groups=own, base=base)
    window = comparison.window
    verdicts = group_verdicts(
        rows=comparison.measures,
        run_ids=comparison.run_ids,
        groups=own,
        base=base,
        conditions=comparison.conditions,
        window=(window.low, window.high) if window else None,
    )
    sentences = [
        _say(
            one,
            names=(names[i], names[base]),
            group=own[i],
            base_label=group_label(own[base]),
            sides=sides,
            rows=rows,
            places=(i, base),
        )
        for i, one in sorted(verdicts.items(), key=lambda item: RANK.index(item[1].badge))
    ]
    return VerdictPanel(
        verdicts=sentences,
        columns=[
            VerdictColumn(name=group_label(group), title=", ".join(group.run_ids), color=place % 10, is_base=i == base)
            for i, (place, group) in enumerate(groups)
        ],
        measures=[measure_line(row.measure, [_cell(row, cell) for cell in row.cells]) for row in rows],
    )


def _name(place: int, group: RunGroup) -> SafeString:
    label, title = group_label(group), ", ".join(group.run_ids)
    return format_html('<b class="cmp-name" data-run-color="{}" title="{}">{}</b>', place % 10, title, label)


def _say(
    verdict: RunVerdict,
    *,
    names: tuple[SafeString, SafeString],
    group: RunGroup,
    base_label: str,
    sides: Sides,
    rows: tuple[GroupRow, ...],
    places: tuple[int, int],
) -> VerdictText:
    first = next(side for side in sides.shown if side.run.pk in group.run_ids)
    by_name = {row.measure.metric: row for row in rows}
    if verdict.badge == "not_enough":
        title = format_html(_("Not enough runs to tell {run} and {base} apart."), run=names[0], base=names[1])
        return said_as(verdict, side=first, headline=title, support=_too_few(by_name, verdict, places))
    why = condition_sentence(verdict.conditions, run=group_label(group), base=base_label)
    support = " ".join(part for part in (why, _support(by_name, verdict, places)) if part)
    return said_as(verdict, side=first, headline=headline(verdict, *names), support=support)


def _too_few(rows: Mapping[str, GroupRow], verdict: RunVerdict, places: tuple[int, int]) -> str:
    values = _values(rows, verdict, places)
    counts = [value.n if value else 0 for value in values] if values else [0, 0]
    text = _("The spread between runs needs two runs of each group that have measured it; there are %(n)s and %(m)s.")
    return text % {"n": counts[0], "m": counts[1]}


def _support(rows: Mapping[str, GroupRow], verdict: RunVerdict, places: tuple[int, int]) -> str:
    values = _values(rows, verdict, places)
    if values is None or verdict.gain is None or values[0] is None or values[1] is None:
        return ""
    unit = metric(verdict.outcome).unit
    difference, half = gap_text(verdict.gain.value, verdict.gain.half, unit)
    words = {
        "metric": metric_label(verdict.outcome),
        "one": value_text(values[0].mean, unit),
        "base": value_text(values[1].mean, unit),
        "n": values[0].n,
        "m": values[1].n,
        "difference": difference,
        "half": half,
    }
    text = _(
        "%(metric)s, mean over the runs: %(one)s (%(n)s runs) against %(base)s (%(m)s runs), "
        "difference %(difference)s %(half)s; the spread between runs is in it."
    )
    return counted(text % words)


def _values(
    rows: Mapping[str, GroupRow], verdict: RunVerdict, places: tuple[int, int]
) -> tuple[GroupValue | None, GroupValue | None] | None:
    row = rows.get(verdict.outcome)
    return (row.cells[places[0]].value, row.cells[places[1]].value) if row else None


def _cell(row: GroupRow, cell: GroupCell) -> ComparisonCell:
    about = metric(row.measure.metric)
    if cell.value is None:
        return ComparisonCell(text="—")
    mean, low, high = (value_text(value, about.unit) for value in (cell.value.mean, cell.value.low, cell.value.high))
    spread = f"{low} – {high}" if cell.value.n > 1 else ""
    if cell.change is None:
        return ComparisonCell(text=mean, note=spread)
    is_ratio = (cell.is_ratio or row.measure.kind in ("median", "peak", "whole")) and cell.change.share is not None
    text = ratio_text(cell.change.share or 0) if is_ratio else difference_text(cell.change.difference, about.unit)
    word = ""
    if cell.contrast is not None:
        word = cell.change.word if cell.is_shown else "not_shown"
        if not is_ratio:
            text = gap_text(cell.change.difference, cell.contrast.half, about.unit)[0]
    return ComparisonCell(text=text, note=in_parts((mean, change_word(word))), title=spread, tone=TONES.get(word, ""))
