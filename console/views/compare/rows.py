"""The tables of the page Compare as its templates draw them: measures, metrics, settings, and the bars of a step."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from django.utils.translation import gettext as _

from console.compare_numbers import difference_text, gap_text, half_text, ratio_text, share_text, value_text
from console.labels.catalog import metric_label, phase_label
from console.views.compare.conditions import condition_label
from console.views.compare.sides import ComparedRun, Sides, group_label
from console.views.run.config import show
from jobs.catalog.knob import knobs
from jobs.catalog.metric import metric
from jobs.comparison.compare import Comparison, MetricRow
from jobs.comparison.condition_rows import PACKAGE
from jobs.comparison.config import SettingRow, is_other
from jobs.comparison.groups import RunGroup, group_values
from jobs.comparison.measures import Measure, MeasureCell, MeasureRow, Words
from jobs.comparison.phases import PhaseTimes, phase_deltas
from jobs.comparison.stats import MEAN_STEPS, ratio_interval
from jobs.comparison.summary import STATISTICS, Delta, Spot, delta
from profiling.counted import counted
from profiling.phases import STEP_PHASES

LABEL_SHARE = 0.055  # a bar's number is written in it if the bar is this share of the longest row
WIDE_SHARE = 0.16  # and this share on a telephone
SMALL_DELTA = 0.01  # of the base's step: smaller changes of a phase are not told


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonCell:
    """A number with what stands under it; `tone` is good, bad or "" and never stands alone: `note` says it in words."""

    text: str
    note: str = ""
    title: str = ""
    tone: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureLine:
    """A row of the card Measures: `name` of the metric, `note` what to know of its numbers."""

    label: str
    name: str
    note: str
    cells: list[ComparisonCell]


@dataclass(frozen=True, slots=True, kw_only=True)
class SideLine:
    """The statistics of a metric for one run."""

    side: ComparedRun
    cells: list[ComparisonCell]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLine:
    """The same for a group of runs."""

    group: str
    color: int
    is_base: bool
    cells: list[ComparisonCell]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricBlock:
    """A metric in the table: `id` is its name where the label says another."""

    name: str
    label: str
    id: str
    note: str
    lines: Sequence[SideLine | GroupLine]


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingCell:
    """What a run has for a setting; `is_other`: not what the base has."""

    text: str
    origin: str
    is_other: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingLine:
    """A row of the card Config diff."""

    id: str
    label: str
    unit: str
    is_different: bool
    cells: list[SettingCell]


@dataclass(frozen=True, slots=True, kw_only=True)
class BarPart:
    """A phase in a bar: place and width in per cent of the longest row; `is_wide`: its label fits in on a telephone."""

    key: str
    x: str
    label_x: str
    width: str
    label: str
    is_wide: bool
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBar:
    """Where a run's step goes."""

    side: ComparedRun
    parts: list[BarPart]
    total: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseChange:
    """How much a phase takes more or less than the base's."""

    label: str
    text: str
    tone: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseChanges:
    """How a run's phases differ from the base's."""

    side: ComparedRun
    changes: list[PhaseChange]


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseLine:
    """A phase in the table, a cell a run."""

    key: str
    label: str
    cells: list[ComparisonCell]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBars:
    """The card "Where the step goes"; `legend` has key and label of each phase, `has_rest`: some time is in none."""

    rows: Sequence[StepBar] = ()
    deltas: Sequence[PhaseChanges] = ()
    legend: Sequence[dict[str, str]] = ()
    has_rest: bool = False
    phases: Sequence[PhaseLine] = ()


def in_parts(parts: Iterable[str]) -> str:
    """Return the parts that are not empty behind each other; a line ends between two of them, not in one."""
    return ", ".join(part.replace(" ", "\N{NO-BREAK SPACE}") for part in parts if part)


def change_word(word: str) -> str:
    """Return what a difference is, in a word."""
    words = {
        "better": _("better"),
        "worse": _("worse"),
        "higher": _("higher"),
        "lower": _("lower"),
        "same": _("the same"),
        "not_shown": _("no difference shown"),
        "not_comparable": _("not comparable"),
    }
    return words.get(word, "")


def direction(name: str) -> str:
    """Say which direction of a metric is better, "" where neither is."""
    return {"higher": _("higher is better"), "lower": _("lower is better")}.get(metric(name).better, "")


TONES = {"better": "good", "worse": "bad"}


def measure_lines(rows: Sequence[MeasureRow], *, base: int) -> list[MeasureLine]:
    """Return the rows of the card Measures; the base's cell shows its value, the others' how they differ."""
    return [
        measure_line(row.measure, [_measure_cell(row, cell, is_base=i == base) for i, cell in enumerate(row.cells)])
        for row in rows
    ]


def measure_line(measure: Measure, cells: list[ComparisonCell]) -> MeasureLine:
    """Return a row of the card Measures."""
    note = direction(measure.metric) or _unit_word(measure.metric)
    return MeasureLine(label=_measure_label(measure), name=measure.metric, note=note, cells=cells)


def _unit_word(name: str) -> str:
    """Return the unit where values do not carry it themselves."""
    unit = metric(name).unit
    return "" if unit in ("", "bytes", "share", "%", "s", "tok/s") else _(unit)


def _measure_label(measure: Measure) -> str:
    label = metric_label(measure.metric)
    words = {"label": label, "n": MEAN_STEPS}
    return {
        "median": _("%(label)s, median"),
        "mean": _("%(label)s, last %(n)s steps"),
        "newest": _("%(label)s, newest"),
        "peak": _("%(label)s, peak"),
        "whole": "%(label)s",
    }[measure.kind] % words


def _measure_cell(row: MeasureRow, cell: MeasureCell, *, is_base: bool) -> ComparisonCell:
    unit = metric(row.measure.metric).unit
    value = value_text(cell.value, unit)
    if is_base or cell.value is None:
        note = half_text(cell.spread.half, unit) if cell.spread else ""
        if cell.step is not None:
            note = _("step %(n)s") % {"n": f"{cell.step:,}"}
        return ComparisonCell(text=value, note=note)
    if cell.change is None:
        note = _("step %(n)s") % {"n": f"{cell.step:,}"} if cell.step is not None else _("not enough common steps")
        return ComparisonCell(text=value, note=note)
    is_ratio = (cell.is_ratio or row.measure.kind in ("peak", "whole")) and cell.change.share is not None
    text = ratio_text(cell.change.share or 0) if is_ratio else difference_text(cell.change.difference, unit)
    parts = [value] if is_ratio else []
    if cell.contrast is not None and not is_ratio:
        text, half = gap_text(cell.change.difference, cell.contrast.half, unit)
        parts.append(half)
    elif cell.spread is not None:
        parts.append(half_text(cell.spread.half, unit))
    elif not is_ratio:
        parts.append(value)
    parts.append(change_word(cell.word))
    return ComparisonCell(text=text, note=in_parts(parts), tone=TONES.get(cell.word, ""))


def statistic_heads(at: int | None) -> list[str]:
    """Return the heads of the statistics, in the order of `STATISTICS`."""
    step = _("At step %(n)s") % {"n": f"{at:,}"} if at is not None else _("At step")
    return [_("Last"), _("Best"), _("Mean"), _("Min"), _("Max"), step]


def metric_lines(rows: Iterable[MetricRow], sides: Sides) -> list[MetricBlock]:
    """Return the table of metrics: one block a metric, in it one line a run, or a group where runs are grouped."""
    shown = sides.shown
    base = next((i for i, side in enumerate(shown) if side.is_base), 0)
    blocks = []
    for row in rows:
        lines: Sequence[SideLine | GroupLine]
        if sides.groups:
            lines = _group_lines(row, shown, sides.groups, base)
        else:
            lines = [
                SideLine(side=side, cells=[_spot_cell(row, i, base, name) for name in STATISTICS])
                for i, side in enumerate(shown)
            ]
        label = metric_label(row.name)
        id_text = "" if label == row.name else row.name
        blocks.append(MetricBlock(name=row.name, label=label, id=id_text, note=direction(row.name), lines=lines))
    return blocks


def _spot_cell(row: MetricRow, place: int, base: int, statistic: str) -> ComparisonCell:
    about = metric(row.name)
    spot, theirs = row.summaries[place].spot(statistic), row.summaries[base].spot(statistic)
    if spot is None:
        return ComparisonCell(text="—")
    title = _("step %(n)s") % {"n": f"{spot.step:,}"} if spot.step is not None else ""
    if place == base or theirs is None:
        return ComparisonCell(text=value_text(spot.value, about.unit), title=title)
    change = delta(spot.value, theirs.value, better=about.better if _is_fair(row, place, base, statistic) else "")
    return _with_change(spot, change, about.unit, title)


def _is_fair(row: MetricRow, place: int, base: int, statistic: str) -> bool:
    """Return True if better and worse may be said: of the same step, or of runs that got equally far."""
    if statistic not in ("last", "best", "at"):
        return False
    last = "at" if statistic == "at" else "last"
    own, theirs = row.summaries[place].spot(last), row.summaries[base].spot(last)
    return own is not None and theirs is not None and own.step == theirs.step


def _with_change(spot: Spot, change: Delta | None, unit: str, title: str) -> ComparisonCell:
    if change is None:
        return ComparisonCell(text=value_text(spot.value, unit), title=title)
    note = (
        change_word("same")
        if change.word == "same"
        else (f"{difference_text(change.difference, unit)} {change_word(change.word)}")
    )
    return ComparisonCell(text=value_text(spot.value, unit), note=note, title=title, tone=TONES.get(change.word, ""))


def _group_lines(
    row: MetricRow, shown: tuple[ComparedRun, ...], groups: Sequence[RunGroup], base: int
) -> list[GroupLine]:
    about = metric(row.name)
    summaries = {side.run.pk: summary for side, summary in zip(shown, row.summaries, strict=True)}
    base_id = shown[base].run.pk
    base_group = next((i for i, group in enumerate(groups) if base_id in group.run_ids), 0)
    lines = [
        GroupLine(group=group_label(group), color=i % 10, is_base=i == base_group, cells=[])
        for i, group in enumerate(groups)
    ]
    for statistic in STATISTICS:
        values = group_values(groups, summaries, statistic)
        theirs = values[base_group]
        for i, value in enumerate(values):
            if value is None:
                lines[i].cells.append(ComparisonCell(text="—"))
                continue
            low, high = value_text(value.low, about.unit), value_text(value.high, about.unit)
            title = counted(_("mean of %(n)s runs, %(low)s to %(high)s") % {"n": value.n, "low": low, "high": high})
            better = about.better if statistic in ("last", "best", "at") else ""
            change = delta(value.mean, theirs.mean, better=better) if theirs and i != base_group else None
            parts = [f"{low} – {high}"] if value.n > 1 else []
            if change:
                parts.append(f"{difference_text(change.difference, about.unit)} {change_word(change.word)}")
            note = in_parts(parts)
            tone = TONES.get(change.word, "") if change else ""
            lines[i].cells.append(
                ComparisonCell(text=value_text(value.mean, about.unit), note=note, title=title, tone=tone)
            )
    return [line for i, line in enumerate(lines) if any(run_id in summaries for run_id in groups[i].run_ids)]


def setting_lines(rows: Iterable[SettingRow], *, base: int) -> list[SettingLine]:
    """Return the rows of the card Config diff."""
    by_id = knobs()
    return [
        SettingLine(
            id=row.id.removeprefix(PACKAGE),
            label=_(by_id[row.id].label) if row.id in by_id else condition_label(row.id),
            unit=_(by_id[row.id].unit) if row.id in by_id and by_id[row.id].unit else "",
            is_different=row.is_different,
            cells=[
                SettingCell(
                    text=show(setting.value) if setting else "—",
                    origin=setting.origin if setting else "",
                    is_other=is_other(setting, row.settings[base]),
                )
                for setting in row.settings
            ],
        )
        for row in rows
    ]


def step_bars(comparison: Comparison, sides: Sides) -> StepBars:
    """Return the bars of "Where the step goes", on one scale, and how each run's phases differ from the base's."""
    phases, incomparable = comparison.phases, comparison.incomparable
    shown = [side for side in sides.shown if side.run.pk in phases and phases[side.run.pk].seconds]
    scale = max((max(phases[s.run.pk].total, phases[s.run.pk].step or 0.0) for s in shown), default=0.0)
    if not scale:
        return StepBars()
    base = sides.base
    theirs = phases.get(base.run.pk) if base else None
    used = [key for key in STEP_PHASES if any(key in phases[side.run.pk].seconds for side in shown)]
    has_rest = any((phases[side.run.pk].rest or 0) > 0 for side in shown)
    return StepBars(
        rows=[_bar(side, phases[side.run.pk], scale) for side in shown],
        deltas=[
            _deltas(phases[s.run.pk], theirs, s, incomparable)
            for s in shown
            if theirs and theirs.seconds and not s.is_base
        ],
        legend=[{"key": key, "label": phase_label(key)} for key in used],
        has_rest=has_rest,
        phases=[
            _phase_line(key, shown, comparison, theirs) for key in [*used, *(["rest"] if has_rest else []), "step"]
        ],
    )


def _bar(side: ComparedRun, times: PhaseTimes, scale: float) -> StepBar:
    parts, at = [], 0.0
    pieces = [*times.seconds.items(), *([("rest", times.rest)] if times.rest else [])]
    for key, seconds in pieces:
        share = seconds / scale
        label = f"{seconds:.1f}" if scale >= 5 else f"{seconds:.2f}"
        parts.append(
            BarPart(
                key=key,
                x=f"{at * 100:.3f}%",
                label_x=f"{(at + 0.006) * 100:.3f}%",
                width=f"{share * 100:.3f}%",
                label=label if share >= LABEL_SHARE else "",
                is_wide=share >= WIDE_SHARE,
                title=f"{_phase_word(key)}: {value_text(seconds, 's')}",
            )
        )
        at += share
    total = value_text(times.step if times.step is not None else times.total, "s")
    return StepBar(side=side, parts=parts, total=total)


def _phase_word(key: str) -> str:
    words = {"rest": _("Between the phases"), "step": _("Whole step")}
    return words[key] if key in words else phase_label(key)


def _deltas(own: PhaseTimes, base: PhaseTimes, side: ComparedRun, incomparable: Collection[str]) -> PhaseChanges:
    tones = ("", "") if side.run.pk in incomparable else ("good", "bad")
    whole = base.step or base.total
    changes = [
        PhaseChange(label=phase_label(key), text=difference_text(seconds, "s"), tone=tones[seconds >= 0])
        for key, seconds in phase_deltas(own, base).items()
        if abs(seconds) >= SMALL_DELTA * whole
    ]
    return PhaseChanges(side=side, changes=changes)


def _phase_line(key: str, shown: Sequence[ComparedRun], comparison: Comparison, base: PhaseTimes | None) -> PhaseLine:
    phases = comparison.phases

    def seconds(times: PhaseTimes) -> float | None:
        return {"rest": times.rest, "step": times.step}[key] if key in ("rest", "step") else times.seconds.get(key)

    theirs = seconds(base) if base else None
    cells = []
    for side in shown:
        own = seconds(phases[side.run.pk])
        change = delta(own, theirs, better="lower") if own is not None and theirs and not side.is_base else None
        if change is None or change.share is None or base is None:
            cells.append(ComparisonCell(text=value_text(own, "s")))
            continue
        one, other = phases[side.run.pk].spreads.get(key), base.spreads.get(key)
        ratio = ratio_interval(one, other) if one and other else None
        word: Words = "" if ratio is None else change.word if ratio.excludes(1) else "not_shown"
        word = "not_comparable" if word and side.run.pk in comparison.incomparable else word
        note = ", ".join(part for part in (share_text(change.share), change_word(word)) if part)
        cells.append(ComparisonCell(text=value_text(own, "s"), note=note, tone=TONES.get(word, "")))
    return PhaseLine(key=key, label=_phase_word(key), cells=cells)
