"""What every page's frame shows: project, navigation, theme, cluster use, search."""

from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.models import User
from django.http import Http404, HttpRequest, JsonResponse
from django.http.response import HttpResponseBase
from django.template.loader import render_to_string
from django.urls import path, reverse
from django.utils import timezone
from django.views.decorators.cache import cache_control
from django.views.decorators.http import require_GET
from django.views.i18n import JavaScriptCatalog

from console.forms.account import DENSITIES, DENSITY_COOKIE, THEME_COOKIE, THEMES
from console.labels.ingest import ingest_problem
from console.views.navigation import further_pages, navigation
from jobs.accounts.access import Role, projects_of, require, role
from jobs.alerts.queries import open_count
from jobs.models import Project, Run
from jobs.runs.cluster_use import cluster_in_use
from jobs.runs.queries import queue_summary
from jobs.storage.floor import low_disk

_MAX_FOUND = 8


def current_project(request: HttpRequest) -> Project | None:
    """Return the project one is looking at: `?project=` (kept in the session), else one's first; None without any."""
    if not hasattr(request, "_pitwall_project"):
        request._pitwall_project = _find_project(request)  # type: ignore[attr-defined]  # one query a request, not three
    project: Project | None = request._pitwall_project  # type: ignore[attr-defined]
    return project


def person(request: HttpRequest) -> User:
    """Return who is signed in; for views behind LoginRequiredMiddleware, which lets nobody else in."""
    assert isinstance(request.user, User)
    return request.user


def named_project(request: HttpRequest, slug: str, needed: Role) -> Project:
    """Return the project that the address names: a form must never reach another one. Raises: Http404, NotAllowed."""
    project = projects_of(request.user).filter(slug=slug).first()
    if project is None:
        raise Http404
    require(request.user, project, needed)
    return project


def _find_project(request: HttpRequest) -> Project | None:
    own_projects = projects_of(request.user)
    slug = request.GET.get("project", "")
    if slug:
        project = own_projects.filter(slug=slug).first()
        if project is not None:
            request.session["project"] = project.slug
            return project
    remembered = request.session.get("project", "")
    return (own_projects.filter(slug=remembered).first() if remembered else None) or own_projects.first()


def theme_choice(request: HttpRequest) -> str:
    """Return what the person chose: system, light or dark."""
    chosen = request.COOKIES.get(THEME_COOKIE, "system")
    return chosen if chosen in THEMES else "system"


def frame(request: HttpRequest) -> dict[str, object]:
    """Return the template context of the frame."""
    chosen = theme_choice(request)
    density = request.COOKIES.get(DENSITY_COOKIE, DENSITIES[0])
    context: dict[str, object] = {
        "theme_choice": chosen,
        "theme": "dark" if chosen == "dark" else "light",
        "density": density if density in DENSITIES else DENSITIES[0],
    }
    user = getattr(request, "user", None)
    if user is None or not user.is_authenticated:
        return context
    project = current_project(request)
    held = role(user, project) if project else None
    return context | {
        "project": project,
        "projects": list(projects_of(user)),
        "project_role": held,
        "low_disk_notice": low_disk() if held == "admin" or user.is_superuser else "",
        "nav": navigation(request),
        "further_pages": further_pages(user, project.slug if project else "", held),
    }


@require_GET
def usage(request: HttpRequest) -> JsonResponse:
    """Say how much of the cluster is in use, what waits, and what keeps pages from moving, for the frame."""
    state = cluster_in_use()
    queue = queue_summary()
    context = {"state": state, "queue": queue, "is_gpu": state.gpus_total > 0}
    used, total = (state.gpus_used, state.gpus_total) if state.gpus_total else (state.cpus_used, state.cpus_total)
    html = render_to_string("components/usage.html", context)
    shown_total = total if state.is_reachable else None
    project = current_project(request)
    alerts = open_count(request.user, project, now=timezone.now()) if project else 0
    said = {"html": html, "used": used, "total": shown_total, "ingest_problem": ingest_problem(), "alerts": alerts}
    return JsonResponse(said)


@require_GET
def search(request: HttpRequest) -> JsonResponse:
    """Find runs of the person's projects by name or id, newest first."""
    words = request.GET.get("q", "").split()
    runs = Run.objects.filter(project__in=projects_of(request.user), archived_at=None, trashed_at=None)
    for word in words[:5]:
        runs = runs.filter(name__icontains=word) | runs.filter(id__icontains=word)
    rows = [
        {"id": run.pk, "name": run.name, "state": run.state, "url": reverse("run", args=[run.pk])}
        for run in runs.order_by("-created_at")[:_MAX_FOUND]
    ]
    return JsonResponse({"runs": rows})


@login_not_required
@cache_control(max_age=300, public=True)
def js_catalog(request: HttpRequest) -> HttpResponseBase:
    """Give the modules' translated strings; the address carries the language, so that caches keep them apart."""
    return JavaScriptCatalog.as_view(packages=["console"])(request)


urlpatterns = [
    path("frame/usage", usage, name="usage"),
    path("frame/search", search, name="search"),
    path("frame/texts.js", js_catalog, name="js-catalog"),
]
