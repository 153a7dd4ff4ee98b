"""What moves a plan most, as pages show it: the largest parts of its memory and time, each with the change that lowers
it most, and the constants that the answer rests on most."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal

from django.urls import reverse
from django.utils.text import capfirst
from django.utils.translation import gettext as _

from console.labels.catalog import phase_label
from console.labels.memory_terms import TERM_WORDS
from console.labels.numbers import size
from console.views.plan.findings import FixButton, fix_button
from console.views.plan.panel import VERDICT_WORDS, seconds_text
from jobs.catalog.spec.runspec import RunSpec
from jobs.planner.result import Estimate, Interval
from jobs.planner.search.advice import LargestTerm
from jobs.planner.sensitivity import Sensitivity

_NUM_PARTS = 3
_NUM_CONSTANTS = 3
_SHOWN_FROM = 0.01  # of the answer: a constant that moves it by less is not named


@dataclass(frozen=True, slots=True, kw_only=True)
class PartRow:
    """One of the largest parts: a term of memory (`kind` term) or a phase of a step (`kind` phase), what it is now, and
    the change that lowers it most: `title`, `after`, and what applies it; without one `title` is empty."""

    kind: str
    key: str
    label: str
    now: str
    after: str = ""
    title: str = ""
    fix: FixButton | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SensitivityRow:
    """A constant that moves the answer: from where to where it may be, and what the answer is at both ends."""

    name: str
    label: str
    span: str
    message: str
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LargestTermsPanel:
    """What moves an answer: `phase` is the one whose memory binds. `has_changes`: changes were looked for."""

    phase: str
    memory: tuple[PartRow, ...]
    time: tuple[PartRow, ...]
    constants: tuple[SensitivityRow, ...]
    has_changes: bool


def largest_terms_panel(
    estimate: Estimate, largest_terms: Sequence[LargestTerm], moved: Sequence[Sensitivity], spec: RunSpec
) -> LargestTermsPanel:
    """Return what moves the plan of a run, with changes that can be tried."""
    rows = [_term_row(term, spec) for term in largest_terms]
    return LargestTermsPanel(
        phase=phase_label(estimate.phase),
        memory=tuple(row for row in rows if row.kind == "term"),
        time=tuple(row for row in rows if row.kind == "phase"),
        constants=constant_rows(moved, has_settings=True),
        has_changes=True,
    )


def parts_panel(estimate: Estimate, moved: Sequence[Sensitivity], *, has_settings: bool) -> LargestTermsPanel:
    """Return what moves an answer that no run stands behind: its largest parts, and the constants."""
    terms, phases = estimate.binding.memory.terms, estimate.time.phases
    longest = sorted(phases, key=lambda key: -phases[key].middle)[:_NUM_PARTS]
    largest = sorted(terms, key=lambda term: -terms[term])[:_NUM_PARTS]
    return LargestTermsPanel(
        phase=phase_label(estimate.phase),
        memory=tuple(
            PartRow(kind="term", key=term, label=str(TERM_WORDS[term]), now=size(terms[term])) for term in largest
        ),
        time=tuple(
            PartRow(kind="phase", key=key, label=phase_label(key), now=seconds_text(phases[key])) for key in longest
        ),
        constants=constant_rows(moved, has_settings=has_settings),
        has_changes=False,
    )


def constant_rows(moved: Sequence[Sensitivity], *, has_settings: bool) -> tuple[SensitivityRow, ...]:
    """Return the constants that move an answer most; with `has_settings` each with the address where it is set."""
    shown = [each for each in moved if each.share >= _SHOWN_FROM][:_NUM_CONSTANTS]
    page = reverse("settings") if has_settings else ""
    return tuple(
        SensitivityRow(
            name=each.constant.name,
            label=capfirst(_(each.constant.label)),
            span=_span(each),
            message=_effect(each),
            address=f"{page}#constant-{each.constant.name}" if page else "",
        )
        for each in shown
    )


def _term_row(term: LargestTerm, spec: RunSpec) -> PartRow:
    is_memory = term.of == "memory"
    show: Callable[[float], str] = size if is_memory else _seconds
    label = str(TERM_WORDS[term.key]) if is_memory else phase_label(term.key)  # type: ignore[index]
    kind = "term" if is_memory else "phase"
    if term.change is None or show(term.after) == show(term.now):  # nor what lowers it by less than is shown
        return PartRow(kind=kind, key=term.key, label=label, now=show(term.now))
    return PartRow(
        kind=kind,
        key=term.key,
        label=label,
        now=show(term.now),
        after=show(term.after),
        title=_(term.change.title),
        fix=fix_button(term.change.changes, spec),
    )


def _span(each: Sensitivity) -> str:
    constant = each.constant
    unit = _(constant.unit) if constant.unit else ""
    return f"{_plain(constant.low)}–{_plain(constant.high)} {unit}".rstrip()


def _plain(value: float) -> str:
    """Write an end of a range with up to six digits, a small one without powers of ten: 0.00002, 0.6, 5,000."""
    text = f"{value:,.6g}"
    return f"{Decimal(text):f}" if "e-0" in text else text


def _effect(each: Sensitivity) -> str:
    """Say what the answer is at both ends: of seconds and bytes what moves at all, and a verdict that is another."""
    effects = []
    if _moves(each.seconds):
        effects.append(_("step %(span)s") % {"span": seconds_text(each.seconds)})
    if _moves(each.needed):
        ends = {"low": size(round(each.needed.low)), "high": size(round(each.needed.high))}
        effects.append(_("peak %(low)s to %(high)s") % ends)
    low, high = each.verdicts
    if low != high:
        ends = {"low": str(VERDICT_WORDS[low]), "high": str(VERDICT_WORDS[high])}
        effects.append(_("%(low)s at the one end, %(high)s at the other") % ends)
    return ", ".join(effects)


def _moves(value: Interval) -> bool:
    return value.high - value.low >= _SHOWN_FROM * value.middle


def _seconds(value: float) -> str:
    return seconds_text(Interval(low=value, middle=value, high=value))
