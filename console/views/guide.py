"""The guide: knobs, recipes, what runs where, tuning, symptoms, metrics, rules and diagnosis rules.

It is about no project and no run. What one searches and picks stands in the address; the list and its detail are asked
for in part by htmx, which names the part it wants.
"""

from collections.abc import Callable
from urllib.parse import urlencode

from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.urls import path, reverse
from django.utils.cache import patch_vary_headers
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_POST

from console.budget import expensive
from console.guide.advice_list import tuning_page
from console.guide.diagnosis_list import diagnosis_page
from console.guide.knob_list import knobs_page
from console.guide.metric_list import metrics_page
from console.guide.parts import Asked
from console.guide.recipe_list import recipes_page
from console.guide.rule_list import rules_page
from console.guide.symptom_list import symptoms_page
from console.session import keep
from console.views.can_it_run.page import devices_page
from console.views.can_it_run.question import address_of, read_question
from console.views.frame import current_project
from jobs.accounts.access import allows, role

_LISTS = ("guide-knob", "guide-recipe", "guide-symptom", "guide-rule")
"""The tabs that have an address for each thing in them."""


_Page = Callable[[Asked, str], dict[str, object]]


def _tab(name: str, page: _Page) -> Callable[..., HttpResponse]:
    """Return the view of a tab: its list, and one thing in it where its address names one."""

    @require_GET
    @never_cache
    def view(request: HttpRequest, item: str = "") -> HttpResponse:
        try:
            context = page(request.GET, item) | {"is_picked": bool(item)}
        except LookupError:
            raise Http404 from None
        return _show(request, name, context)

    return view


def _without_item(page: Callable[[Asked], dict[str, object]]) -> _Page:
    """Return the page of a tab without addresses for the things in it."""
    return lambda query, _item: page(query)


@require_GET
@never_cache
@expensive
def devices(request: HttpRequest) -> HttpResponse:
    """Answer whether a model can run on some hardware; at the prices of the project one is looking at."""
    project = current_project(request)
    held = role(request.user, project) if project is not None else None
    question = read_question(request.GET, project, may_read=allows(held, "editor"), session=request.session)
    return _show(request, "devices", devices_page(question, project), address=address_of(question))


@require_POST
def config(request: HttpRequest) -> JsonResponse:
    """Keep a config.json that is too long for an address; answer its name, or why it is not kept."""
    try:
        return JsonResponse({"config": keep(request.session, request.POST.get("config", "")), "problem": ""})
    except ValueError:
        problem = _("That is larger than 1 MiB. A config.json is a few KiB.")
        return JsonResponse({"config": "", "problem": problem}, status=422)


def _show(request: HttpRequest, tab: str, context: dict[str, object], *, address: str = "") -> HttpResponse:
    """Render the page, or the part of it that htmx asks for; `address` is the page's where it is not the query's."""
    titles = _titles()
    part = request.headers.get("HX-Target", "")
    template = f"guide/{'part' if part in ('guide-body', 'guide-detail') else 'guide'}.html"
    pairs = [(name, value) for name, values in request.GET.lists() for value in values]
    query = urlencode([(name, value) for name, value in pairs if value and name != "project"])
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
        answer["HX-Replace-Url"] = address or reverse(f"guide-{tab}") + (f"?{query}" if query else "")
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
        "diagnosis": _("Diagnosis"),
    }


_KNOBS = _tab("knobs", knobs_page)
_RECIPES = _tab("recipes", recipes_page)
_SYMPTOMS = _tab("symptoms", symptoms_page)
_RULES = _tab("rules", rules_page)

urlpatterns = [
    path("guide", _KNOBS, name="guide"),
    path("guide/knobs", _KNOBS, name="guide-knobs"),
    path("guide/knobs/<str:item>", _KNOBS, name="guide-knob"),
    path("guide/recipes", _RECIPES, name="guide-recipes"),
    path("guide/recipes/<str:item>", _RECIPES, name="guide-recipe"),
    path("guide/devices/config", config, name="guide-config"),
    path("guide/devices", devices, name="guide-devices"),
    path("guide/tuning", _tab("tuning", _without_item(tuning_page)), name="guide-tuning"),
    path("guide/symptoms", _SYMPTOMS, name="guide-symptoms"),
    path("guide/symptoms/<str:item>", _SYMPTOMS, name="guide-symptom"),
    path("guide/metrics", _tab("metrics", _without_item(metrics_page)), name="guide-metrics"),
    path("guide/rules", _RULES, name="guide-rules"),
    path("guide/rules/<str:item>", _RULES, name="guide-rule"),
    path("guide/diagnosis", _tab("diagnosis", _without_item(diagnosis_page)), name="guide-diagnosis"),
]
