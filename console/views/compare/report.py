"""A comparison as one HTML file that opens without network: verdicts, measures, differences, charts as SVG."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from django.http import Http404, HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.urls import path
from django.utils import timezone
from django.utils.http import content_disposition_header
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET

from console.budget import expensive
from console.downloads.kept import keep_comparison
from console.labels.catalog import metric_label
from console.views.compare.address import ComparisonQuery, read_address
from console.views.compare.page import chart_names, settings_context, verdict_context
from console.views.compare.sides import ComparedRun, Sides, find_sides
from console.views.compare.svg import SvgLine, line_chart
from jobs.catalog.metric import metric
from jobs.comparison.compare import window_of
from jobs.comparison.read import one_lane
from jobs.telemetry.clean_series import read_clean
from jobs.telemetry.series import MAX_NAMES, Series

NAME = "comparison.html"
POINTS = 500
COLORS = (
    "#2f6fe0", "#d9650f", "#128f7d", "#b3429a", "#8f7300", "#7656d6", "#c8384a", "#2388b5", "#5b8a1f", "#8a6246",
)  # fmt: skip
"""Those of runs, as in static/css/tokens.css."""


@require_GET
@expensive
def compare_report(request: HttpRequest) -> HttpResponse:
    """Give the comparison that the address names as a file; the charts are those of `m`, or the page's own."""
    query = read_address(request)
    sides = find_sides(request, query)
    if not sides.shown:
        raise Http404(_("Not found, or you have no access."))
    keep_comparison(request, sides.runs, NAME)
    every_setting = replace(query, tab="config", is_all=False)
    context = {
        "sides": sides,
        "colored": [(side, COLORS[side.color % len(COLORS)]) for side in sides.shown],
        "colors": list(enumerate(COLORS)),
        "window": window_of(sides.runs),
        "made_at": timezone.now(),
        "charts": _charts(query, sides),
        **settings_context(every_setting, sides),
        **verdict_context(request, query, sides),
    }
    headers = {"Content-Disposition": content_disposition_header(True, NAME) or "attachment"}
    return HttpResponse(render_to_string("compare/report.html", context), headers=headers)


def _charts(query: ComparisonQuery, sides: Sides) -> list[tuple[str, SafeString]]:
    chosen = [name for name in query.chart.get("m", "").split(",") if name]
    names = list(dict.fromkeys(chosen or chart_names(sides)))[:MAX_NAMES]
    by_run: dict[str, Mapping[str, Series]] = {
        side.run.pk: one_lane(read_clean(run_id=side.run.pk, names=names, num_points=POINTS).series)
        for side in sides.shown
    }
    charts = []
    for name in names:
        lines = [_line(side, by_run[side.run.pk][name]) for side in sides.shown if name in by_run[side.run.pk]]
        lines.sort(key=lambda line: line.is_thick)  # the baseline on top
        charts.append((metric_label(name), line_chart(lines, label=metric_label(name), unit=metric(name).unit)))
    return [chart for chart in charts if chart[1]]


def _line(side: ComparedRun, series: Series) -> SvgLine:
    return SvgLine(
        label=side.short,
        color=COLORS[side.color % len(COLORS)],
        x=series.x.astype(np.float64),
        y=series.y,
        dash=side.dash,
        is_thick=side.is_base,
    )


urlpatterns = [path("compare/report.html", compare_report, name="compare-report")]
