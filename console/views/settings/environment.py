"""What all runs of a project are given: its environment variables, and secrets that nobody is shown."""

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import path
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_GET, require_POST

from console.views.frame import named_project, person
from jobs.accounts.access import role
from jobs.models import Project
from jobs.runs.environment import VariableRefused, project_variables, remove_variable, set_variable


@require_GET
def environment(request: HttpRequest, project: str) -> HttpResponse:
    """Show the variables, and of secrets that they are there."""
    return _show(request, named_project(request, project, "viewer"))


@sensitive_post_parameters()
@require_POST
def set_one(request: HttpRequest, project: str) -> HttpResponse:
    """Keep the variable or secret of the form."""
    home = named_project(request, project, "admin")
    name = request.POST.get("name", "").strip()
    is_secret = request.POST.get("kind") != "variable"  # what is not said is taken for a secret
    value = request.POST.get("value", "").replace("\r\n", "\n")
    try:
        set_variable(
            project=home, name=name, value=value, is_secret=is_secret, user=person(request), now=timezone.now()
        )
    except VariableRefused as error:
        return _show(request, home, sentence=str(error), name=name, is_secret=is_secret)
    messages.success(request, _("%(name)s is kept. Attempts that start from now on have it.") % {"name": name})
    return redirect("environment", home.slug)


@require_POST
def remove_one(request: HttpRequest, project: str) -> HttpResponse:
    """Remove a variable or secret."""
    home = named_project(request, project, "admin")
    name = request.POST.get("name", "")
    if remove_variable(project=home, name=name, user=person(request)):
        messages.success(request, _("%(name)s is removed.") % {"name": name})
    return redirect("environment", home.slug)


def _show(request: HttpRequest, project: Project, **more: Any) -> HttpResponse:
    context = {
        "project": project,
        "heading": _("Environment"),
        "is_admin": role(request.user, project) == "admin",
        "variables": project_variables(project),
        "is_secret": True,
    }
    return render(request, "settings/environment.html", context | more, status=422 if more.get("sentence") else 200)


urlpatterns = [
    path("settings/<slug:project>/environment", environment, name="environment"),
    path("settings/<slug:project>/environment/set", set_one, name="set-variable"),
    path("settings/<slug:project>/environment/remove", remove_one, name="remove-variable"),
]
