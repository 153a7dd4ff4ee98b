"""A project's own rules for lines of logs: what they are called, how bad they are, and what to do."""

from collections.abc import Mapping

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import path
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_POST

from console.views.frame import named_project, person
from jobs.accounts.access import role
from jobs.catalog.log_level import LEVELS
from jobs.diagnosis.log_rules import MOST_CHARS, LogRuleRefused, log_rules_of, set_log_rules
from jobs.models import Project


@require_GET
def log_rules(request: HttpRequest, project: str) -> HttpResponse:
    """Show the rules; the one whose pattern the address names is ready to be changed."""
    home = named_project(request, project, "viewer")
    chosen = request.GET.get("pattern", "")
    typed = next((rule for rule in home.log_rules if rule["pattern"] == chosen), None)
    return _show(request, home, typed={**typed, "before": chosen} if typed else None)


@require_POST
def change_log_rules(request: HttpRequest, project: str) -> HttpResponse:
    """Add a rule, have it in the place of the one named `before`, or take that away with `remove`."""
    home = named_project(request, project, "admin")
    typed = {name: request.POST.get(name, "").strip() for name in (*MOST_CHARS, "level")}
    before = request.POST.get("before", "")
    rules = list(home.log_rules)
    place = next((at for at, rule in enumerate(rules) if rule["pattern"] == before), len(rules))
    rules[place : place + 1] = [] if "remove" in request.POST else [typed]
    try:
        set_log_rules(project=home, raw=rules, user=person(request))
    except LogRuleRefused as error:
        return _show(request, home, problem=error, typed={**typed, "before": before})
    messages.success(request, _("The rules are kept."))
    return redirect("log-rules", home.slug)


def _show(
    request: HttpRequest,
    project: Project,
    *,
    problem: LogRuleRefused | None = None,
    typed: Mapping[str, str] | None = None,
) -> HttpResponse:
    context = {
        "project": project,
        "heading": _("Known lines of logs"),
        "is_admin": role(request.user, project) == "admin",
        "rules": log_rules_of(project),
        "levels": {"error": _("Error"), "warning": _("Warning")}.items(),
        "problem": problem,
        "typed": typed or {"level": LEVELS[0]},
        "most": MOST_CHARS,
    }
    return render(request, "settings/log_rules.html", context, status=422 if problem else 200)


urlpatterns = [
    path("settings/<slug:project>/log-rules", log_rules, name="log-rules"),
    path("settings/<slug:project>/log-rules/change", change_log_rules, name="change-log-rules"),
]
