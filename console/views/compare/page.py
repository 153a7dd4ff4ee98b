"""The page Compare: two or more runs side by side. Its address holds the whole view; every tab is a part of it."""

from collections.abc import Mapping
from urllib.parse import parse_qsl

from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import render
from django.urls import path, reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET

from console.budget import expensive
from console.downloads.csv_response import csv_answer
from console.downloads.kept import keep_comparison
from console.labels.catalog import metric_label, metric_words
from console.views.compare.address import TABS, ComparisonQuery, read_address
from console.views.compare.groups import VerdictColumn, VerdictPanel, grouped_panel
from console.views.compare.labels import order, say, spread_sentence
from console.views.compare.levels import add_level, level_heads, target_line
from console.views.compare.marks import MARKED_RUNS, page_marks
from console.views.compare.rows import (
    SettingLine,
    measure_lines,
    metric_lines,
    setting_lines,
    statistic_heads,
    step_bars,
)
from console.views.compare.sides import ComparedRun, Sides, find_sides
from console.views.compare.traces import trace_rows
from console.views.frame import current_project
from jobs.accounts.access import allows, role
from jobs.catalog.algorithm import is_in
from jobs.comparison.compare import Comparison, compare, current_specs, incomparable_runs, metric_table, window_of
from jobs.comparison.condition_rows import condition_rows
from jobs.comparison.conditions import RunConditions
from jobs.comparison.config import setting_rows
from jobs.comparison.environment import conditions_of
from jobs.comparison.export import series_csv, table_csv
from jobs.comparison.read import metric_names
from jobs.comparison.samples import side_by_side
from jobs.comparison.targets import find_target
from jobs.comparison.traces import count_traces
from jobs.models import Run
from jobs.runs.header import run_headers
from jobs.runs.queries import RunHeader

SHOWN_VERDICTS = 3
SHOWN_SETTINGS = 6
RL_CHARTS = ("reward/mean", "kl/reference", "response/length_mean", "time/step_seconds")
CHARTS_OF = (
    ("distillation", ("teacher/gap", "teacher/overlap", "policy/grad_norm", "time/step_seconds")),
    ("answers", ("loss/sft", "eval/loss", "policy/grad_norm", "time/step_seconds")),
    ("pairs", ("loss/pairs", "eval/pairs_accuracy", "policy/grad_norm", "time/step_seconds")),
    ("labeled", ("loss/labels", "eval/labels_accuracy", "policy/grad_norm", "time/step_seconds")),
)
"""Of the first family that the runs' algorithm is in; else those of RL."""
_ORDER = ("reward", "eval", "loss", "kl", "policy", "response", "groups", "sync", "time", "throughput", "train")
_PROPOSED = 8


@require_GET
@expensive
def compare_runs(request: HttpRequest) -> HttpResponse:
    """Show the comparison, or what to compare where the address names fewer than two runs."""
    query = read_address(request)
    sides = find_sides(request, query)
    context: dict[str, object] = {"asked": query, "sides": sides, "tabs": _tabs(query), "query": query.address()}
    context |= {"ungrouped": query.address(group=""), "config_query": query.address(tab="config")}
    context["all_query"] = query.address(all="" if query.is_all else "1")
    context["proposals"] = _proposals(request, sides) if len(sides.all) < 2 else []
    if sides.all:
        context |= {"page": page_data(request, query, sides), "window": window_of(sides.runs)}
        context["marked"] = MARKED_RUNS
        context["knob_choices"] = _group_choices(query, sides)
    if sides.shown:
        context |= settings_context(query, sides)
        context["num_captures"] = count_traces(run_ids=[side.run.pk for side in sides.shown])
        context |= PANELS[query.tab](request, query, sides)
    return render(request, "compare/compare.html", context)


@require_GET
@expensive
def compare_table_csv(request: HttpRequest) -> StreamingHttpResponse:
    """Give the table of metrics as CSV."""
    query, sides = _named(request)
    assert sides.base is not None
    keep_comparison(request, sides.runs, "compare-table.csv")
    lines = table_csv(runs=sides.runs, base_id=sides.base.run.pk, at=_at_step(query, sides))
    return csv_answer(lines, name="compare-table.csv")


@require_GET
@expensive
def compare_series_csv(request: HttpRequest) -> StreamingHttpResponse:
    """Give every point of the metrics named by `m` (all without it) as CSV."""
    query, sides = _named(request)
    names = [name for name in query.chart.get("m", "").split(",") if name]
    if not names:
        names = sorted({name for own in metric_names([run.pk for run in sides.runs]).values() for name in own})
    keep_comparison(request, sides.runs, "compare-series.csv")
    return csv_answer(series_csv(runs=sides.runs, names=names), name="compare-series.csv")


def _named(request: HttpRequest) -> tuple[ComparisonQuery, Sides]:
    query = read_address(request)
    sides = find_sides(request, query)
    if not sides.shown:
        raise Http404(_("Not found, or you have no access."))
    return query, sides


def page_data(request: HttpRequest, query: ComparisonQuery, sides: Sides) -> dict[str, object]:
    """Return what the page's modules need, JSON-able."""
    own = metric_names([side.run.pk for side in sides.shown])
    names = {name for metric_values in own.values() for name in metric_values}
    words = metric_words()
    window = window_of(sides.runs)
    charts = chart_names(sides)
    marks = page_marks(query, sides)
    projects = {side.run.project_id: side.run.project for side in sides.shown}
    written = {pk for pk, project in projects.items() if allows(role(request.user, project), "editor")}
    return {
        "runs": [
            {
                "id": side.run.pk,
                "name": side.run.name,
                "short": side.short,
                "color": side.color,
                "dash": side.dash,
                "isBase": side.is_base,
                "group": side.group,
                "project": side.run.project.slug,
                "step": side.run.step,
                "url": reverse("run", args=[side.run.pk]),
                "takesNotes": side.run.project_id in written,
                "marks": marks.get(side.run.pk),
            }
            for side in sides.shown
        ],
        "isLive": sides.is_live,
        "isGrouped": bool(sides.groups),
        "base": sides.base.run.pk if sides.base else "",
        "metrics": sorted(names, key=_place),
        "words": {name: words[name] for name in names.union(charts) if name in words},
        "charts": list(charts),
        "common": window.high if window else None,
        "numSteps": max((side.run.num_steps for side in sides.shown if side.is_live), default=0),
        "tab": query.tab,
        "axis": query.chart.get("x", "step"),
        "series": "/api/compare/series",
    }


def chart_names(sides: Sides) -> tuple[str, ...]:
    """Return the metrics that are drawn of runs like these, where nobody chose others."""
    algorithm = sides.shown[0].run.spec.get("algorithm", "grpo") if sides.shown else "grpo"
    return next((names for family, names in CHARTS_OF if is_in(algorithm, family)), RL_CHARTS)


def _place(name: str) -> tuple[int, str]:
    group = name.partition("/")[0]
    return (_ORDER.index(group) if group in _ORDER else len(_ORDER), name)


def verdict_context(request: HttpRequest, query: ComparisonQuery, sides: Sides) -> dict[str, object]:
    """Return what the tab Verdict shows: sentences, measures, bars, and what differs beyond settings."""
    assert sides.base is not None
    comparison = compare(runs=sides.runs, base_id=sides.base.run.pk)
    panel = grouped_panel(comparison, sides) if sides.groups else _single_panel(comparison, sides, sides.base)
    target = find_target(runs=sides.runs, value=query.target)
    far = comparison.incomparable
    if target and sides.groups:
        far = incomparable_runs(runs=sides.runs, base_id=sides.base.run.pk, groups=sides.groups)
    sentences = panel.verdicts
    better = sentences[0].side if sentences and sentences[0].badge == "better" else sides.base
    return {
        "columns": panel.columns,
        "measures": [
            *panel.measures,
            *([target_line(target, sides, incomparable=far)] if target else []),
        ],
        "target": target,
        "kept": parse_qsl(query.address(target="")),
        "verdicts": sentences[:SHOWN_VERDICTS],
        "more_verdicts": sentences[SHOWN_VERDICTS:],
        "clone": better if allows(role(request.user, better.run.project), "editor") else None,
        "bars": step_bars(comparison, sides),
        "environment": _environment(comparison.conditions, sides),
        "spread": "" if sides.groups else spread_sentence(comparison.spread),
    }


def _environment(conditions: Mapping[str, RunConditions], sides: Sides) -> list[SettingLine]:
    """Return what differs in data, hardware, packages and code."""
    base = next(i for i, side in enumerate(sides.shown) if side.is_base)
    rows = condition_rows([conditions[side.run.pk] for side in sides.shown], base=base)
    return setting_lines([row for row in rows if row.is_different], base=base)


def _single_panel(comparison: Comparison, sides: Sides, base: ComparedRun) -> VerdictPanel:
    columns = [
        VerdictColumn(name=side.short, title=side.run.name, color=side.color, is_base=side.is_base)
        for side in sides.shown
    ]
    verdicts = order(list(comparison.verdicts.values()))
    return VerdictPanel(
        verdicts=[say(one, side=sides.by_id(one.run_id), base=base, window=comparison.window) for one in verdicts],
        columns=columns,
        measures=measure_lines(comparison.measures, base=comparison.run_ids.index(comparison.base_id)),
    )


def settings_context(query: ComparisonQuery, sides: Sides) -> dict[str, object]:
    """Return the settings that differ, or all of them, as many as the tab shows."""
    limit = SHOWN_SETTINGS if query.tab == "verdict" else None
    base = next(i for i, side in enumerate(sides.shown) if side.is_base)
    rows = setting_rows(current_specs(sides.runs), base=base)
    different = [row for row in rows if row.is_different]
    listed = [row for row in rows if row.is_different or (query.is_all and limit is None)]
    return {
        "settings": setting_lines(listed[:limit], base=base),
        "num_settings": len(rows),
        "num_different": len(different),
        "num_equal": len(rows) - len(different),
        "num_unlisted": max(0, len(different) - limit) if limit is not None else 0,
    }


def _no_more(_request: HttpRequest, _asked: ComparisonQuery, _sides: Sides) -> dict[str, object]:
    """What the browser draws itself, or what every tab has."""
    return {}


def _config_panel(_request: HttpRequest, _asked: ComparisonQuery, sides: Sides) -> dict[str, object]:
    return {"environment": _environment(conditions_of(sides.runs), sides)}


def _table_panel(_request: HttpRequest, query: ComparisonQuery, sides: Sides) -> dict[str, object]:
    at = _at_step(query, sides)
    rows = metric_table(runs=sides.runs, at=at)
    needle = query.query.lower()
    matches = [row for row in rows if needle in f"{row.name} {metric_label(row.name)}".lower()]
    ordered = sorted(matches, key=lambda row: _place(row.name))
    blocks, heads = metric_lines(ordered, sides), statistic_heads(at)
    # Only of a level that somebody asked for: it reads whole series, the rest of the table does not.
    target = find_target(runs=sides.runs, value=query.target) if query.target is not None else None
    if target is not None and sides.base is not None:
        far = incomparable_runs(runs=sides.runs, base_id=sides.base.run.pk, groups=sides.groups)
        add_level(blocks, target, sides, incomparable=far)
        heads += level_heads(target)
    parameters = parse_qsl(query.address(q="", step="", target=""))
    return {"blocks": blocks, "heads": heads, "at": at, "kept": parameters}


def _at_step(query: ComparisonQuery, sides: Sides) -> int | None:
    window = window_of(sides.runs)
    return query.step if query.step is not None else window.high if window else None


def _timing_panel(_request: HttpRequest, _asked: ComparisonQuery, sides: Sides) -> dict[str, object]:
    assert sides.base is not None
    comparison: Comparison = compare(runs=sides.runs, base_id=sides.base.run.pk)
    return {"bars": step_bars(comparison, sides)}


def _traces_panel(_request: HttpRequest, _asked: ComparisonQuery, sides: Sides) -> dict[str, object]:
    return trace_rows(sides)


def _samples_panel(_request: HttpRequest, query: ComparisonQuery, sides: Sides) -> dict[str, object]:
    ids = [side.run.pk for side in sides.shown]
    samples = side_by_side(run_ids=ids, is_eval=query.kind == "eval", step=query.at, page=query.page)
    steps = list(samples.steps)
    later = [step for step in steps if samples.step is not None and step > samples.step]
    earlier = [step for step in steps if samples.step is not None and step < samples.step]
    return {
        "found": samples,
        "prompts": [(row, list(zip(sides.shown, row.answers, strict=True))) for row in samples.rows],
        "step_query": query.address(at="", page=""),
        "later": query.address(at=later[-1], page="") if later else None,
        "earlier": query.address(at=earlier[0], page="") if earlier else None,
        "kinds": [
            {"key": key, "label": label, "query": query.address(kind="" if key == "train" else key, at="", page="")}
            for key, label in (("train", _("Training")), ("eval", _("Held-out")))
        ],
        "next_page": query.address(page=samples.page + 1) if samples.page < samples.num_pages else None,
        "previous_page": query.address(page=samples.page - 1) if samples.page > 1 else None,
    }


PANELS = {
    "verdict": verdict_context,
    "charts": _no_more,
    "table": _table_panel,
    "config": _config_panel,
    "timing": _timing_panel,
    "traces": _traces_panel,
    "samples": _samples_panel,
}


def _tabs(query: ComparisonQuery) -> list[dict[str, str]]:
    words = {
        "verdict": _("Verdict"),
        "charts": _("Charts"),
        "table": _("Table"),
        "config": _("Config diff"),
        "timing": _("Timing"),
        "traces": _("Traces"),
        "samples": _("Samples"),
    }
    return [
        {"name": name, "label": words[name], "query": query.address(tab=name if name != TABS[0] else "")}
        for name in TABS
    ]


def _group_choices(query: ComparisonQuery, sides: Sides) -> list[dict[str, object]]:
    if query.group and query.group not in sides.group_knobs:
        names = [*sides.group_knobs, query.group]
    else:
        names = list(sides.group_knobs)
    return [{"id": name, "is_chosen": name == query.group, "query": query.address(group=name)} for name in names]


def _proposals(request: HttpRequest, sides: Sides) -> list[RunHeader]:
    """Return the newest runs that may be worth comparing: of the project in view, those here already left out."""
    project = sides.all[0].run.project if sides.all else current_project(request)
    if project is None:
        return []
    rows = Run.objects.select_related("project", "created_by").filter(
        project=project, archived_at=None, trashed_at=None
    )
    here = [side.run.pk for side in sides.all]
    return run_headers(list(rows.exclude(pk__in=here).order_by("-created_at")[:_PROPOSED]))


urlpatterns = [
    path("compare", compare_runs, name="compare"),
    path("compare/table.csv", compare_table_csv, name="compare-table-csv"),
    path("compare/series.csv", compare_series_csv, name="compare-series-csv"),
]
