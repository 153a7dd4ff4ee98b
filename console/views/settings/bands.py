"""The healthy bands of a project's charts: those of the metric dictionary, and its own."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import path, reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_POST

from console.labels.catalog import metric_label
from console.views.frame import named_project, person
from jobs.accounts.access import role
from jobs.catalog.algorithm import algorithms
from jobs.catalog.metric import metrics
from jobs.diagnosis.bands import Band, BandRefused, bands_of, set_bands
from jobs.models import Metric, Project


@dataclass(frozen=True, slots=True, kw_only=True)
class BandRow:
    """A band as the table shows it."""

    metric: str
    algorithm: str
    label: str
    low: str
    high: str
    source: str
    is_own: bool


@require_GET
def bands(request: HttpRequest, project: str) -> HttpResponse:
    """Show the bands, of all runs or of an `algorithm`; the one that `metric` names is ready to be changed."""
    home = named_project(request, project, "viewer")
    band = bands_of(home, _algorithm(request.GET)).get(request.GET.get("metric", ""))
    row = _row(band) if band else None
    return _show(request, home, typed={"metric": row.metric, "low": row.low, "high": row.high} if row else None)


@require_POST
def change_bands(request: HttpRequest, project: str) -> HttpResponse:
    """Set the band of one metric: two numbers; none at all without any; the dictionary's again with `reset`."""
    home = named_project(request, project, "admin")
    name = request.POST.get("metric", "").strip()
    texts = [request.POST.get(end, "").strip() for end in ("low", "high")]
    ends: list[object] | None = None if "reset" in request.POST else [_number(text) for text in texts if text]
    try:
        set_bands(project=home, raw={name: ends}, user=person(request), algorithm=request.POST.get("algorithm", ""))
    except BandRefused as error:
        return _show(request, home, sentence=str(error), typed={"metric": name, "low": texts[0], "high": texts[1]})
    messages.success(request, _("The band of %(metric)s is kept.") % {"metric": metric_label(name)})
    if ends is not None and _is_unheard_of(home, name):
        likely = next(iter(difflib.get_close_matches(name, metrics(), n=1, cutoff=0.8)), "")
        text = (
            _("No run here has reported %(metric)s. Did you mean %(likely)s?")
            if likely
            else _("No run here has reported %(metric)s: its band is drawn once one does.")
        )
        messages.warning(request, text % {"metric": name, "likely": likely})
    chosen = _algorithm(request.POST)
    return redirect(f"{reverse('bands', args=[home.slug])}{f'?algorithm={chosen}' if chosen else ''}")


def _algorithm(values: Mapping[str, Any]) -> str:
    """Return the algorithm that a request names; "" where it names none that there is."""
    name = str(values.get("algorithm", ""))
    return name if name in algorithms() else ""


def _is_unheard_of(project: Project, name: str) -> bool:
    """Return whether a metric is neither in the dictionary nor reported by a run of the project."""
    return name not in metrics() and not Metric.objects.filter(run__project=project, name=name).exists()


def _number(text: str) -> object:
    """Return a number; what is none is left for the rules to refuse."""
    try:
        return float(text)
    except ValueError:
        return text[:40]


def _show(
    request: HttpRequest, project: Project, *, sentence: str = "", typed: Mapping[str, str] | None = None
) -> HttpResponse:
    chosen = _algorithm(request.POST if request.method == "POST" else request.GET)
    context = {
        "project": project,
        "heading": _("Healthy bands"),
        "algorithms": [(name, _(info.label)) for name, info in algorithms().items()],
        "chosen": chosen,
        "is_admin": role(request.user, project) == "admin",
        "rows": [_row(band) for band in bands_of(project, chosen).values()],
        "sentence": sentence,
        "typed": typed or {},
    }
    return render(request, "settings/bands.html", context, status=422 if sentence else 200)


def _row(band: Band) -> BandRow:
    ends = ["" if end is None else f"{end:g}" for end in (band.low, band.high)]
    return BandRow(
        metric=band.metric,
        algorithm=band.algorithm,
        label=metric_label(band.metric),
        low=ends[0],
        high=ends[1],
        source=_(band.source) if band.source else "",
        is_own=band.is_own,
    )


urlpatterns = [
    path("settings/<slug:project>/bands", bands, name="bands"),
    path("settings/<slug:project>/bands/change", change_bands, name="change-bands"),
]
