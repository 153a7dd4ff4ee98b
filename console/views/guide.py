"""The guide: knobs, recipes, what runs where, tuning, symptoms, metrics and rules, read from the catalogue.

It is about no project and no run. What one searches and picks stands in the address; the list and its detail are asked
for in part by htmx, which names the part it wants.
"""

from typing import Any
from urllib.parse import urlencode

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import path, reverse
from django.utils.cache import patch_vary_headers
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from console.guide.advice_list import tuning_page
from console.guide.device_answer import devices_page
from console.guide.knob_list import knobs_page
from console.guide.metric_list import metrics_page
from console.guide.recipe_list import recipes_page
from console.guide.rule_list import rules_page
from console.guide.symptom_list import symptoms_page

_LISTS = ("guide-knob", "guide-recipe", "guide-symptom", "guide-rule")
"""The tabs that have an address for each thing in them."""


@require_GET
@never_cache
def knobs(request: HttpRequest, knob_id: str = "") -> HttpResponse:
    """Show the knobs, and one of them."""
    return _show(request, "knobs", _found(knobs_page, request, knob_id))


@require_GET
@never_cache
def recipes(request: HttpRequest, recipe_id: str = "") -> HttpResponse:
    """Show the recipes, and one of them."""
    return _show(request, "recipes", _found(recipes_page, request, recipe_id))


@require_GET
@never_cache
def devices(request: HttpRequest) -> HttpResponse:
    """Answer whether it can run, from the published table."""
    return _show(request, "devices", devices_page(request.GET))


@require_GET
@never_cache
def tuning(request: HttpRequest) -> HttpResponse:
    """Show what to change for a question."""
    return _show(request, "tuning", tuning_page(request.GET))


@require_GET
@never_cache
def symptoms(request: HttpRequest, symptom_id: str = "") -> HttpResponse:
    """Show the symptoms, and one of them."""
    return _show(request, "symptoms", _found(symptoms_page, request, symptom_id))


@require_GET
@never_cache
def metrics(request: HttpRequest) -> HttpResponse:
    """Show the dictionary of metrics."""
    return _show(request, "metrics", metrics_page(request.GET))


@require_GET
@never_cache
def rules(request: HttpRequest, rule_id: str = "") -> HttpResponse:
    """Show the rules, and one of them."""
    return _show(request, "rules", _found(rules_page, request, rule_id))


def _found(page: Any, request: HttpRequest, item: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = page(request.GET, item) | {"is_picked": bool(item)}
    except LookupError:
        raise Http404 from None
    return found


def _show(request: HttpRequest, tab: str, context: dict[str, Any]) -> HttpResponse:
    """Render the page, or the part of it that htmx asks for."""
    titles = _titles()
    part = request.headers.get("HX-Target", "")
    template = f"guide/{'part' if part in ('guide-body', 'guide-detail') else 'guide'}.html"
    query = urlencode([(name, value) for name, value in request.GET.items() if value and name != "project"])
    is_list = f"guide-{tab.removesuffix('s')}" in _LISTS
    more = {
        "tab": tab,
        "tab_template": "guide/columns.html" if is_list else f"guide/{tab}.html",
        "detail_template": f"guide/{tab.removesuffix('s')}.html",
        "tab_title": titles[tab],
        "tabs": list(titles.items()),
        "part": part,
        "tab_url": f"guide-{tab}",
        "list_url": reverse(f"guide-{tab}"),
        "q": request.GET.get("q", ""),
        "suffix": f"?{query}" if query else "",
    }
    answer = render(request, template, context | more)
    patch_vary_headers(answer, ["HX-Target"])
    if part == "guide-body":
        answer["HX-Replace-Url"] = reverse(f"guide-{tab}") + (f"?{query}" if query else "")
    return answer


def _titles() -> dict[str, str]:
    return {
        "knobs": _("Knobs"),
        "recipes": _("Recipes"),
        "devices": _("Can it run?"),
        "tuning": _("Tuning"),
        "symptoms": _("Symptoms"),
        "metrics": _("Metrics"),
        "rules": _("Rules"),
    }


urlpatterns = [
    path("guide", knobs, name="guide"),
    path("guide/knobs", knobs, name="guide-knobs"),
    path("guide/knobs/<str:knob_id>", knobs, name="guide-knob"),
    path("guide/recipes", recipes, name="guide-recipes"),
    path("guide/recipes/<str:recipe_id>", recipes, name="guide-recipe"),
    path("guide/devices", devices, name="guide-devices"),
    path("guide/tuning", tuning, name="guide-tuning"),
    path("guide/symptoms", symptoms, name="guide-symptoms"),
    path("guide/symptoms/<str:symptom_id>", symptoms, name="guide-symptom"),
    path("guide/metrics", metrics, name="guide-metrics"),
    path("guide/rules", rules, name="guide-rules"),
    path("guide/rules/<str:rule_id>", rules, name="guide-rule"),
]
