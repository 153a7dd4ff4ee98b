"""What the planner offers beside New run's form: changes that help, every layout, a model's pasted config.json."""

import time
from collections.abc import Mapping
from dataclasses import dataclass

from django.http import HttpRequest, JsonResponse
from django.template.loader import render_to_string
from django.urls import path
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from console.budget import expensive
from console.forms.new_run.form import base_of, form_to_raw
from console.labels.catalog import error_text, phase_label
from console.labels.numbers import size
from console.session import MAX_CONFIG_BYTES
from console.views.new_run.page import project_to_launch_in
from console.views.new_run.plan import config_of, planner_question_of
from console.views.plan.findings import FixButton, fix_button
from console.views.plan.largest_terms import LargestTermsPanel, largest_terms_panel
from console.views.plan.panel import devices_text, seconds_text, share_text
from jobs.catalog.sentence import in_words
from jobs.catalog.spec.parse import SpecInvalid, parse_spec
from jobs.catalog.spec.runspec import RunSpec
from jobs.catalog.value import Value
from jobs.cluster.ray_api import cluster_state
from jobs.planner.result import TIGHT_FROM, Interval, Verdict
from jobs.planner.search.advice import OfferedChange, PlanAdvice
from jobs.planner.search.layout_space import spaces_of
from jobs.planner.search.layouts import RankedLayout, RejectionCount, SearchResult
from jobs.planning.policy_model import PlanRefused, shape_of_config
from jobs.planning.question import MAX_LAYOUTS_LISTED, PlannerQuestion, estimate_of, sensitivities_of
from jobs.planning.question import advice as advise
from jobs.planning.question import layouts as search

_SHOWN = 4  # of advice of a kind, before "more"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRow:
    """A change on offer, and what it does: before and after."""

    id: str
    icon: str
    title: str
    message: str
    fix: FixButton
    is_more: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvicePanel:
    """What would make the run fit, with memory to spare, or faster. Without any of it `message` says why."""

    fit: tuple[ChangeRow, ...]
    faster: tuple[ChangeRow, ...]
    message: str

    @property
    def num_more(self) -> int:
        """How many are not shown at first."""
        return sum(row.is_more for row in (*self.fit, *self.faster))


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutRow:
    """A layout that fits; `changes` are those that take the form there."""

    changes: tuple[str, ...]
    step: str
    share: str
    is_tight: bool
    cost: str
    devices: str
    fix: FixButton
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MissRow:
    """A layout that was rejected, and its numbers."""

    changes: tuple[str, ...]
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedRow:
    """A reason, how many layouts it rejected, and the nearest misses."""

    label: str
    count: int
    nearest: tuple[MissRow, ...]
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutsPanel:
    """The answer of a search."""

    message: str
    rows: tuple[LayoutRow, ...]
    rejected: tuple[RejectedRow, ...]
    has_cost: bool


@require_POST
@expensive
def advice(request: HttpRequest) -> JsonResponse:
    """Say what would make the run fit and what would make it faster, and how many layouts there are to look at."""
    try:
        planner_question = _question(request)
        panel, largest_terms = _advised(planner_question)
    except PlanRefused as error:
        return _refusal(error)
    return JsonResponse(
        {
            "html": render_to_string("new_run/plan_advice.html", {"panel": panel, "largest_terms": largest_terms}),
            "num_fixes": len(panel.fit),
            "num_layouts": _num_layouts(planner_question),
        }
    )


@require_POST
@expensive
def layouts(request: HttpRequest) -> JsonResponse:
    """Return every layout that fits, ranked, and why the others do not."""
    try:
        planner_question = _question(request)
        began = time.perf_counter()
        result = search(planner_question, goal=request.POST.get("goal", "time"), limit=MAX_LAYOUTS_LISTED)
    except PlanRefused as error:
        return _refusal(error)
    panel = layouts_panel(result, planner_question, seconds=time.perf_counter() - began)
    return JsonResponse({"html": render_to_string("new_run/plan_layouts.html", {"panel": panel})})


@require_POST
def config(request: HttpRequest) -> JsonResponse:
    """Read a pasted config.json and return the inputs' texts that plan with it, or what cannot be read in it."""
    project_to_launch_in(request)
    text = request.POST.get("text", "")
    try:
        name = _spec(request).model.id
        if len(text.encode()) > MAX_CONFIG_BYTES:
            raise PlanRefused("config", _("That is larger than 1 MiB. A config.json is a few KiB."))
        shape = shape_of_config(config_of(text), name=name)
    except PlanRefused as error:
        return _refusal(error)
    message = _("Planned with this config: %(n)s B parameters.") % {
        "n": f"{'' if shape.is_exact else '≈ '}{shape.parameters / 1e9:.3g}"
    }
    return JsonResponse({"values": {"plan.config": text, "plan.config_of": name}, "says": message})


def _advised(planner_question: PlannerQuestion) -> tuple[AdvicePanel, LargestTermsPanel]:
    """Return the changes that would help, and what moves the plan most. Raises: PlanRefused."""
    offered, now = advise(planner_question), estimate_of(planner_question)
    return advice_panel(offered, now.verdict, planner_question.spec), largest_terms_panel(
        now, offered.largest_terms, sensitivities_of(planner_question), planner_question.spec
    )


def advice_panel(offered: PlanAdvice, verdict: Verdict, spec: RunSpec) -> AdvicePanel:
    """Return the changes that would help a run of which the plan says so."""
    wanted = {"no": ("fits", "tight"), "tight": ("fits",)}.get(verdict, ())
    cures = [each for each in offered.fit if each.after.verdict in wanted and each.after.fits]
    if offered.together is not None and verdict == "no":
        cures = [offered.together, *cures]
    if verdict == "no" and not cures:
        cures = list(offered.fit[:_SHOWN])
    if verdict == "no":
        message = _("No change of layout or memory settings makes it fit here. It takes more devices, or larger ones.")
    elif verdict == "tight":
        message = _("No single change frees more memory, and none makes it faster.")
    else:
        message = _("No single change of layout or memory settings makes it faster.")
    return AdvicePanel(
        fit=tuple(_change(each, spec, n, is_cure=True) for n, each in enumerate(cures)),
        faster=tuple(_change(each, spec, n, is_cure=False) for n, each in enumerate(offered.faster)),
        message=message,
    )


def layouts_panel(result: SearchResult, planner_question: PlannerQuestion, *, seconds: float) -> LayoutsPanel:
    """Return the answer of a search as the dialog shows it."""
    words = {
        "n": f"{result.considered:,}",
        "fit": f"{len(result.ranked) + result.unlisted:,}",
        "rejected": f"{sum(row.count for row in result.rejected):,}",
        "ms": f"{seconds * 1000:,.0f}",
        "hardware": devices_text(planner_question.fleet, planner_question.fleet.num_devices),
    }
    message = _("%(n)s layouts on %(hardware)s, in %(ms)s ms: %(fit)s fit, %(rejected)s do not.") % words
    if result.skipped:
        message += " " + _("%(n)s were not checked.") % {"n": f"{result.skipped:,}"}
    return LayoutsPanel(
        message=message,
        rows=tuple(_layout(row, planner_question) for row in result.ranked),
        rejected=tuple(_rejected(row, planner_question.spec) for row in result.rejected),
        has_cost=planner_question.fleet.price is not None,
    )


def _question(request: HttpRequest) -> PlannerQuestion:
    """Return what the form asks of the planner. Raises: PlanRefused, also for a form that makes no spec."""
    project = project_to_launch_in(request)
    return planner_question_of(request.POST, _spec(request), project, request.user, cluster_state())


def _spec(request: HttpRequest) -> RunSpec:
    base = base_of(request.POST.get("base", ""))
    try:
        return parse_spec(form_to_raw({name: str(text) for name, text in request.POST.items()}, base))
    except SpecInvalid as error:
        raise PlanRefused(error.problems[0].field, error.problems[0].message) from error


def _refusal(error: PlanRefused) -> JsonResponse:
    return JsonResponse({"problems": [{"field": error.field, "message": error_text(error)}]}, status=422)


def _num_layouts(planner_question: PlannerQuestion) -> int:
    """Return the layouts that a search for the shortest step would look at."""
    spaces = spaces_of(
        planner_question.spec,
        planner_question.models.policy,
        planner_question.fleet,
        sizes=(planner_question.fleet.num_devices,),
    )
    return sum(space.size for space in spaces)


def _change(each: OfferedChange, spec: RunSpec, place: int, *, is_cure: bool) -> ChangeRow:
    fix = fix_button(each.changes, spec)
    words = {
        "changes": fix.label,
        "phase": phase_label(each.after.phase),
        "before": size(each.before.needed),
        "after": size(each.after.needed),
        "limit": size(each.after.limit),
        "slow": _seconds(each.before.seconds),
        "fast": _seconds(each.after.seconds),
    }
    if is_cure:
        message = _("%(changes)s. Peak %(before)s → %(after)s of %(limit)s, step %(slow)s → %(fast)s") % words
    elif words["before"] != words["after"]:
        message = _("%(changes)s. Step %(slow)s → %(fast)s, peak %(before)s → %(after)s") % words
    else:
        message = _("%(changes)s. Step %(slow)s → %(fast)s, no more memory at the peak") % words
    if is_cure and not each.after.fits:
        message += "; " + _("not enough alone")
    return ChangeRow(
        id=each.id,
        icon="alert-triangle" if is_cure else "bolt",
        title=_(each.title),
        message=message,
        fix=fix,
        is_more=place >= _SHOWN,
    )


def _layout(row: RankedLayout, planner_question: PlannerQuestion) -> LayoutRow:
    estimate = row.estimate
    share = max(pool.share for pool in estimate.pools)
    fix = fix_button(row.changes, planner_question.spec)
    changes = _shown(row.changes, planner_question.spec)
    devices = row.job.fleet.num_devices
    return LayoutRow(
        changes=changes,
        step=seconds_text(estimate.time.step),
        share=share_text(share),
        is_tight=share > TIGHT_FROM,
        cost="—" if row.cost is None else f"{row.cost:,.2f} {planner_question.fleet.currency}",
        devices=f"{devices:,}",
        fix=fix,
        words=" ".join([*changes, *row.changes, str(devices)]).lower(),
    )


def _rejected(row: RejectionCount, spec: RunSpec) -> RejectedRow:
    misses = tuple(
        MissRow(changes=_shown(miss.changes, spec), message=in_words(miss.message, _)) for miss in row.nearest
    )
    label = _(row.label)
    words = [label, *(text for miss in misses for text in (*miss.changes, miss.message))]
    return RejectedRow(label=label, count=row.count, nearest=misses, words=" ".join(words).lower())


def _shown(changes: Mapping[str, Value], spec: RunSpec) -> tuple[str, ...]:
    return tuple(fix_button({name: value}, spec).label for name, value in changes.items())


def _seconds(value: float) -> str:
    return seconds_text(Interval(low=value, middle=value, high=value))


urlpatterns = [
    path("runs/new/plan/advice", advice, name="new-run-advice"),
    path("runs/new/plan/layouts", layouts, name="new-run-layouts"),
    path("runs/new/plan/config", config, name="new-run-config"),
]
