"""A run's plan and measurement in words: the sentence on top, and each line."""

from collections.abc import Iterable
from dataclasses import dataclass

from django.utils.translation import gettext as _

from console.labels.catalog import metric_label, phase_label
from console.labels.memory_terms import TERM_WORDS
from console.labels.numbers import size
from console.views.plan.panel import ROLE_WORDS, seconds_text
from jobs.planner.result import Interval
from jobs.planner.time.steps import TOGETHER
from jobs.planning.plan_vs_measured import STEP, PlannedRow
from jobs.planning.run_plan import RunPlan
from profiling.phases import BY_KEY

_NEAR = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRow:
    """A row in words. `is_inside`: None where one of the two is missing; `why` says then which and why."""

    label: str
    planned: str
    measured: str
    difference: str
    is_inside: bool | None
    why: str


def summary(plan: RunPlan) -> str:
    """Return how far the run is from its plan: the phase that differs by most seconds, and the furthest memory."""
    return f"{_said_of_seconds(plan)} {_said_of_memory(plan)}"


def _said_of_seconds(plan: RunPlan) -> str:
    if not plan.has_seconds:
        return _("Seconds are planned on the CPU once an earlier run on it has finished.")
    both = [row for row in plan.rows if row.quantity == "seconds" and row.difference is not None]
    if not both:
        return _("No step was measured yet.")
    furthest = max([row for row in both if row.phase != STEP] or both, key=_seconds_off)
    difference = furthest.difference or 0.0
    words = {"phase": _label(furthest), "share": _share(difference)}
    if round(difference * 100) == 0:
        return _("Every phase took as long as planned.")
    if difference > 0:
        return _("%(phase)s took %(share)s longer than planned.") % words
    return _("%(phase)s took %(share)s less time than planned.") % words


def _seconds_off(row: PlannedRow) -> float:
    assert row.predicted is not None
    assert row.measured is not None
    return abs(row.measured - row.predicted.middle)


def _said_of_memory(plan: RunPlan) -> str:
    peaks = [row for row in plan.rows if row.quantity == "bytes" and not row.term and row.difference is not None]
    if not peaks:
        return _("No peak of memory was measured.")
    furthest = max(peaks, key=lambda row: abs(row.difference or 0.0))
    difference = furthest.difference or 0.0
    words = {"phase": _label(furthest), "share": _share(difference)}
    if abs(difference) < _NEAR:
        return _("Memory was within %(share)s of the plan.") % words
    if difference > 0:
        return _("Memory in %(phase)s was %(share)s more than planned.") % words
    return _("Memory in %(phase)s was %(share)s less than planned.") % words


def line(row: PlannedRow, plan: RunPlan) -> PlanRow:
    """Return a row in words."""
    return PlanRow(
        label=_label(row),
        planned=seconds_text(row.predicted) if row.quantity == "seconds" else _sizes(row.predicted),
        measured="—" if row.measured is None else _shown(row, row.measured),
        difference=_difference(row),
        is_inside=row.is_inside,
        why=" ".join(_reasons(row, plan)),
    )


def _label(row: PlannedRow) -> str:
    phase = _("Step") if row.phase == STEP else phase_label(row.phase) if row.phase in BY_KEY else ""
    if row.phase in TOGETHER:
        return metric_label(f"time/{row.phase}_seconds")
    if not row.role:
        return phase
    role = str(ROLE_WORDS.get(row.role, row.role))
    return f"{role}: {TERM_WORDS[row.term] if row.term else phase}"  # type: ignore[index]  # it is one of TERMS


def _shown(row: PlannedRow, value: float) -> str:
    if row.quantity == "bytes":
        return size(value)
    return seconds_text(Interval(low=value, middle=value, high=value))


def _sizes(value: Interval | None) -> str:
    if value is None:
        return "—"
    low, high = size(value.low), size(value.high)
    number, _space, unit = low.rpartition(" ")
    if low != high and high.endswith(f" {unit}"):
        low = number
    return low if low == high else f"{low}–{high}"


def _difference(row: PlannedRow) -> str:
    """Return the difference with its sign and in a word."""
    if row.difference is None:
        return "—"
    if round(row.difference * 100) == 0:
        return _("as planned")
    words = {"share": _share(row.difference)}
    if row.quantity == "seconds":
        return (_("+%(share)s longer") if row.difference > 0 else _("−%(share)s shorter")) % words
    return (_("+%(share)s more") if row.difference > 0 else _("−%(share)s less")) % words


def _share(difference: float) -> str:
    return f"{max(abs(difference) * 100, 0):.0f} %"


def _reasons(row: PlannedRow, plan: RunPlan) -> Iterable[str]:
    planned = {
        "seconds_on_cpu": _("Planned on the CPU once an earlier run has measured this phase."),
        "not_planned": _("Not part of the plan."),
    }
    measured = {
        "no_steps": _("No step with its time has come yet."),
        "phase_not_told": _("The run does not report the time of this phase."),
        "no_peaks": _("The run reports no memory peaks."),
        "role_not_told": _("The run reports no peak of this role and phase."),
        "state_not_told": _("The run does not report this part separately."),
    }
    if absent := plan.why_not_planned(row):
        yield planned[absent]
    if missing := plan.why_not_measured(row):
        yield measured[missing]
    if row.has_freed_memory and not absent:
        yield _("Holds what other phases have freed, too: marks of memory (profile.marks) measure each phase alone.")
