"""Settings: what the project's finished runs say of the planner, and taking it over; asked for when it is in sight."""

from dataclasses import dataclass

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.http import require_GET, require_POST

from console.budget import expensive
from console.labels.calibration import joining_text, kind_label, miss
from console.views.frame import named_project, person
from jobs.accounts.access import role
from jobs.catalog.sentence import in_words
from jobs.cluster.ray_api import cluster_state
from jobs.models import Project
from jobs.planner.calibration import Proposal
from jobs.planning.calibration import Calibrations, KindCalibration, NothingToTake, apply, calibrations
from jobs.planning.joining import joinings, joins, set_joining
from jobs.planning.settings import PlanSettingsRefused, undo_calibration

_MOST_JOINED = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationRow:
    """A constant: its value of now and where that is from, what runs make of it, and how far each misses other runs."""

    name: str
    label: str
    present: str
    evidence: str
    proposed: str
    before: str
    after: str
    source: str
    refusal: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """The lines of a kind of device. `summary`: how far whole steps are missed now, and with what is proposed."""

    id: str
    label: str
    runs: str
    summary: str
    lines: tuple[CalibrationRow, ...]
    has_proposal: bool
    taken_on: str


@require_GET
@expensive
def show_calibration(request: HttpRequest, project: str) -> HttpResponse:
    """Show what finished runs say."""
    home = named_project(request, project, "viewer")
    project_calibrations = calibrations(home, user=request.user, state=cluster_state())
    context = {
        "project": home,
        "is_admin": role(request.user, home) == "admin",
        "kinds": [_kind(each) for each in project_calibrations.kinds],
        "undoable": _undoable(home, project_calibrations),
        "joins": joins(home),
        "joined": [{**each, "says": joining_text(each)} for each in joinings(home)[:_MOST_JOINED]],
        "left_out": [_left_out(why, count) for why, count in project_calibrations.left_out],
    }
    return render(request, "settings/calibration.html", context)


@require_POST
def change_calibration(request: HttpRequest, project: str) -> HttpResponse:
    """Take over what runs on an accelerator propose, or take the last of that back; or switch joining on or off."""
    home = named_project(request, project, "admin")
    if request.POST.get("joins") in ("on", "off"):
        is_on = request.POST["joins"] == "on"
        set_joining(project=home, is_on=is_on, actor=person(request))
        on, off = _("Finished runs join the calibration."), _("Finished runs no longer join the calibration.")
        messages.success(request, on if is_on else off)
        return _back(home)
    accelerator = request.POST.get("accelerator", "")[:200]
    if "undo" in request.POST:
        if undo_calibration(project=home, accelerator=accelerator, actor=person(request)):
            messages.success(request, _("Plans for %(kind)s are as before.") % {"kind": kind_label(accelerator)})
        else:
            messages.error(request, _("No value was applied for %(kind)s.") % {"kind": kind_label(accelerator)})
        return _back(home)
    try:
        kind = apply(home, accelerator, user=person(request), state=cluster_state(), today=timezone.localdate())
    except (NothingToTake, PlanSettingsRefused) as refused:
        messages.error(request, str(refused))
        return _back(home)
    text = _("Plans for %(kind)s now use what runs measured.")
    messages.success(request, text % {"kind": kind_label(kind.accelerator.id)})
    return _back(home)


def value_text(value: float) -> str:
    """Return a value of a constant."""
    return f"{value:.3g}"


def _back(project: Project) -> HttpResponse:
    return redirect(f"{reverse('settings')}?project={project.slug}#calibration")


def _kind(kind: KindCalibration) -> Kind:
    count = kind.num_runs
    summary = ""
    if kind.calibration.before is not None:
        text = _("Step times of runs left out of the fit: error %(before)s now, %(after)s with these values.")
        summary = text % {"before": miss(kind.calibration.before), "after": miss(kind.calibration.after)}
    return Kind(
        id=kind.accelerator.id,
        label=kind_label(kind.accelerator.id),
        runs=ngettext("%(n)s finished run", "%(n)s finished runs", count) % {"n": count},
        summary=summary,
        lines=tuple(_line(each, kind) for each in kind.calibration.proposals),
        has_proposal=bool(kind.calibration.values),
        taken_on=kind.on,
    )


def _line(proposal: Proposal, kind: KindCalibration) -> CalibrationRow:
    constant = kind.present.get(proposal.constant)
    runs = ngettext("%(n)s run", "%(n)s runs", len(proposal.runs)) % {"n": len(proposal.runs)}
    settings = ngettext("%(n)s setting", "%(n)s settings", proposal.num_settings) % {"n": proposal.num_settings}
    source = _("%(runs)s of %(settings)s") % {"runs": runs, "settings": settings} if proposal.runs else ""
    is_joined = kind.accelerator.is_host and constant.is_changed and constant.evidence == "measured"
    if proposal.far:
        source = f"{source}; {_('far off: %(runs)s') % {'runs': ', '.join(proposal.far)}}"
    evidence = {"measured": _("measured"), "assumed": _("assumed"), "set": _("set by the project")}
    return CalibrationRow(
        name=constant.name,
        label=_(constant.label),
        present=value_text(proposal.present),
        evidence=evidence[constant.evidence],
        proposed="—" if proposal.proposed is None else value_text(proposal.proposed),
        before=miss(proposal.before),
        after=miss(proposal.after),
        source=source,
        refusal=_("In use from the first run on; more settings narrow what is planned with it.")
        if is_joined
        else in_words(proposal.refusal, _),
    )


def _undoable(project: Project, project_calibrations: Calibrations) -> list[tuple[str, str]]:
    """Return kinds that have something to take back and no runs to show, by id and label."""
    shown = {kind.accelerator.id for kind in project_calibrations.kinds}
    return [(each, kind_label(each)) for each in project.calibrations if each not in shown]


def _left_out(why: str, count: int) -> str:
    text = ngettext("%(n)s run is not used: %(why)s", "%(n)s runs are not used: %(why)s", count)
    return text % {"n": count, "why": why}


urlpatterns: list[URLPattern] = [
    path("settings/<slug:project>/calibration", show_calibration, name="calibration"),
    path("settings/<slug:project>/calibration/change", change_calibration, name="change-calibration"),
]
