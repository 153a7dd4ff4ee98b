"""Who can do what: people, projects, roles and tokens; a project's for its admins, all of it for superusers."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import path, reverse
from django.utils import timezone
from django.utils.http import urlencode
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from console.paging import page_number, paged
from console.views.frame import named_project
from jobs.accounts.access import require_superuser
from jobs.accounts.who_can import who_can
from jobs.models import Membership, Project

PAGE_SIZE = 100


@require_GET
@never_cache
def everywhere(request: HttpRequest) -> HttpResponse:
    """Show every role that anybody has."""
    require_superuser(request.user)
    return _show(request, None, "/api/access/export.csv")


@require_GET
@never_cache
def in_project(request: HttpRequest, project: str) -> HttpResponse:
    """Show the roles in one project."""
    home = named_project(request, project, "admin")
    return _show(request, home, f"/api/projects/{home.slug}/access.csv")


def _show(request: HttpRequest, home: Project | None, export: str) -> HttpResponse:
    words, asked = request.GET.get("q", "")[:200], request.GET.get("role", "")
    role = asked if asked in Membership.Role.values else ""
    rights = who_can(now=timezone.now(), project=home, words=words, role=role)
    query = urlencode({"q": words, "role": role})
    context = {
        "home": home,
        "words": words,
        "role": role,
        "roles": Membership.Role.choices,
        "page": paged(rights, page_number(request), size=PAGE_SIZE),
        "query": query,
        "address": reverse("project-rights", args=[home.slug]) if home else reverse("rights"),
        "export": f"{export}?{query}",
    }
    return render(request, "people/rights.html", context)


urlpatterns = [
    path("settings/access", everywhere, name="rights"),
    path("settings/<slug:project>/access", in_project, name="project-rights"),
]
