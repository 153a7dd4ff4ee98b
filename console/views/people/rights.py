"""Who can do what: people, projects, roles and tokens; a project's for its admins, all of it for superusers."""

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import path, reverse
from django.utils import timezone
from django.utils.http import urlencode
from django.utils.translation import ngettext
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_POST

from console.paging import page_number, paged
from console.views.frame import named_project, person
from jobs.accounts.access import require_superuser
from jobs.accounts.handover import hand_over
from jobs.accounts.people import PersonRefused
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


@require_POST
def hand_over_in_project(request: HttpRequest, project: str) -> HttpResponse:
    """Make another editor or admin of the project the owner of somebody's runs and sweeps in it."""
    home = named_project(request, project, "admin")
    giver, to = (request.POST.get(field, "").strip() for field in ("username", "to"))
    ids = request.POST.get("ids", "").replace(",", " ").split()
    try:
        done = hand_over(project=home, username=giver, to=to, ids=ids or None, actor=person(request))
    except PersonRefused as error:
        return _show(request, home, f"/api/projects/{home.slug}/access.csv", problem=str(error))
    text = ngettext("%(num)s run belongs to %(name)s now.", "%(num)s runs belong to %(name)s now.", done.runs)
    messages.success(request, text % {"num": done.runs, "name": to})
    return redirect("people-project", home.slug)


def _show(request: HttpRequest, home: Project | None, export: str, *, problem: str = "") -> HttpResponse:
    words, choice = request.GET.get("q", "")[:200], request.GET.get("role", "")
    role = choice if choice in Membership.Role.values else ""
    rights = who_can(now=timezone.now(), project=home, words=words, role=role)
    query = urlencode({"q": words, "role": role})
    context: dict[str, object] = {
        "home": home,
        "words": words,
        "role": role,
        "roles": Membership.Role.choices,
        "page": paged(rights, page_number(request), size=PAGE_SIZE),
        "query": query,
        "address": reverse("people-project", args=[home.slug]) if home else reverse("people-rights"),
        "export": f"{export}?{query}",
    }
    context |= {"problem": problem, "given": request.POST}
    return render(request, "people/rights.html", context, status=409 if problem else 200)


urlpatterns = [
    path("settings/access", everywhere, name="people-rights"),
    path("settings/<slug:project>/access", in_project, name="people-project"),
    path("settings/<slug:project>/hand-over", hand_over_in_project, name="project-hand-over"),
]
