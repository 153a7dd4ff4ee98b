"""Sweeps: the list of a project's, and the page of one with its runs beside their values."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import path, reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.http import require_GET

from console.labels.catalog import metric_label
from console.views.frame import current_project
from console.views.run.labels import hint
from console.views.tune.columns import RunEffort, chart_data, read_efforts, read_query
from jobs.accounts.access import require, role
from jobs.catalog.knob import knobs
from jobs.catalog.value import value_text
from jobs.models import Project, Study
from jobs.runs.header import RunHeader
from jobs.sweeps.importance import KnobImportance
from jobs.sweeps.plan import MAX_RUNS
from jobs.sweeps.points import point_label, short_name
from jobs.sweeps.table import PAGE_SIZE, StudyHeader, StudyRow, StudyTable, studies_of, study_table, table_importance

_SPARK_WIDTH, _SPARK_HEIGHT = 84, 20
_CLEAR_TREND = 0.5  # of a rank correlation, from where one direction is named
_MAX_SHOWN = 4  # values of a knob that the list names


@dataclass(frozen=True, slots=True, kw_only=True)
class KnobCell:
    """What a run has for a knob of the sweep; `differs`: not the catalogue's default."""

    text: str
    differs: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyLine:
    """A run of a sweep as the table shows it."""

    row: StudyRow
    header: RunHeader
    values: list[KnobCell]
    hint: str
    spark: str
    is_best: bool
    effort: RunEffort


@dataclass(frozen=True, slots=True, kw_only=True)
class KnobShare:
    """A knob's importance, in words."""

    knob: KnobImportance
    label: str
    text: str


@require_GET
def tune(request: HttpRequest) -> HttpResponse:
    """List the project's sweeps, newest first."""
    project = _project(request)
    page_text = request.GET.get("page", "1")
    page = max(1, int(page_text)) if page_text.isdecimal() and len(page_text) < 7 else 1
    studies, total = studies_of(project, page=page)
    context = {
        "lines": [{"study": s, "knobs": [_knob_words(k) for k in s.knobs], "best": _best_words(s)} for s in studies],
        "total": total,
        "page": page,
        "has_older": page * PAGE_SIZE < total,
        "can_edit": role(request.user, project) in ("editor", "admin"),
    }
    return render(request, "tune/tune.html", context)


@require_GET
def study(request: HttpRequest, study_id: str) -> HttpResponse:
    """Show one sweep; `?metric=` chooses what its runs are judged by."""
    row = Study.objects.select_related("project", "created_by").filter(pk=study_id).first()
    if row is None:
        raise Http404(_("There is no sweep %(id)s.") % {"id": study_id})
    require(request.user, row.project, "viewer")
    query = read_query(request)
    table = study_table(row, metric_name=query.metric)
    efforts = read_efforts(table, query)
    header = table.header
    names = [knob["id"] for knob in header.knobs]
    compared = {"study": header.id} | ({"group": names[0]} if names else {})
    context = {
        "study": header,
        "table": table,
        "heads": [{"id": name, "short": short_name(name), "label": _label(name)} for name in names],
        "query": query,
        "lines": [_line(line, header, names, efforts[line.header.id]) for line in table.rows],
        "facts": _facts(header),
        "metric_choices": [(name, metric_label(name)) for name in table.metrics],
        "chart": chart_data(table, query, efforts),
        "importance": _importance(table),
        "compare_url": f"{reverse('compare')}?{urlencode(compared)}",
        "num_open": header.counts.get("queued", 0) + header.counts.get("starting", 0) + header.counts.get("running", 0),
        "max_runs": MAX_RUNS,
        "can_edit": role(request.user, row.project) in ("editor", "admin"),
        "script": {
            "id": header.id,
            "api": f"/api/studies/{header.id}",
            "project": header.project,
            "compare": reverse("compare"),
        },
    }
    return render(request, "tune/study.html", context)


def _project(request: HttpRequest) -> Project:
    project = current_project(request)
    if project is None:
        raise Http404(_("You are not a member of any project. Ask an admin to add you."))
    require(request.user, project, "viewer")
    return project


def _label(knob_id: str) -> str:
    knob = knobs().get(knob_id)
    return _(knob.label) if knob else knob_id


def _knob_words(knob: Mapping[str, Any]) -> dict[str, str]:
    """Return a knob's name and what it takes: "1e-4, 3e-4, 0.001" or "1e-5 to 1e-3, log"."""
    if "values" in knob:
        values = [value_text(value) for value in knob["values"]]
        shown = ", ".join(values[:_MAX_SHOWN])
        more = len(values) - _MAX_SHOWN
        text = shown if more <= 0 else _("%(values)s and %(n)s more") % {"values": shown, "n": more}
    else:
        text = _("%(low)s to %(high)s") % {"low": value_text(knob["low"]), "high": value_text(knob["high"])}
        text = f"{text}, {_(knob['scale'])}"
    return {"id": knob["id"], "short": short_name(knob["id"]), "text": text}


def _best_words(header: StudyHeader) -> str:
    return point_label(header.best_values) if header.best_run else ""


def _line(row: StudyRow, header: StudyHeader, names: list[str], effort: RunEffort) -> StudyLine:
    values = [
        KnobCell(text=value_text(row.values[name]) if name in row.values else "—", differs=name in row.differs)
        for name in names
    ]
    return StudyLine(
        row=row,
        header=row.header,
        values=values,
        hint=hint(row.header, now=timezone.now()),
        spark=row.spark(width=_SPARK_WIDTH, height=_SPARK_HEIGHT),
        is_best=row.header.id == header.best_run,
        effort=effort,
    )


def _facts(header: StudyHeader) -> list[str]:
    how = _("grid") if header.method == "grid" else _("random, seed %(seed)s") % {"seed": header.seed}
    counted = [(_("running"), header.num_live), (_("queued"), header.counts.get("queued", 0))]
    counted += [(_("failed"), header.counts.get("failed", 0)), (_("stopped"), header.counts.get("stopped", 0))]
    counted += [(_("in the trash"), header.num_trashed)]
    ended = _("%(ended)s of %(num)s ended") % {"ended": header.num_ended, "num": header.num_runs}
    return [how, ended, *[f"{number} {word}" for word, number in counted if number]]


def _importance(table: StudyTable) -> list[KnobShare]:
    return [KnobShare(knob=one, label=_label(one.knob), text=_share_text(one)) for one in table_importance(table)]


def _share_text(one: KnobImportance) -> str:
    """Return what is known of a knob's importance, in a sentence."""
    if one.needed:
        text = ngettext(
            "Not enough runs to tell: %(n)s run has a value, at least %(needed)s are needed.",
            "Not enough runs to tell: %(n)s runs have a value, at least %(needed)s are needed.",
            one.num_runs,
        )
        return text % {"n": one.num_runs, "needed": one.needed}
    if one.share is None or one.chance is None:
        return _("The runs that have a value have one value of it.") if one.num_runs else _("No run has a value yet.")
    words = {"share": f"{100 * one.share:.0f} %", "chance": f"{100 * one.chance:.0f} %"}
    if not one.is_shown:
        return _("No effect shown: %(share)s, where chance reaches %(chance)s.") % words
    text = _("Explains %(share)s of the order of the runs; chance reaches %(chance)s.") % words
    if one.trend is not None and abs(one.trend) >= _CLEAR_TREND:
        way = _("The value rises with it.") if one.trend > 0 else _("The value falls with it.")
        return f"{text} {way}"
    return text


urlpatterns = [
    path("tune", tune, name="tune"),
    path("tune/<str:study_id>", study, name="study"),
]
