"""What every page's frame shows: project, navigation, theme; and which project the person is looking at."""

from typing import Any

from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse
from django.utils.translation import gettext as _

from jobs.access import projects_of, role
from jobs.models import Project

THEMES = ("system", "light", "dark")
DENSITIES = ("compact", "comfortable")
THEME_COOKIE = "pitwall_theme"
DENSITY_COOKIE = "pitwall_density"


def current_project(request: HttpRequest) -> Project | None:
    """Return the project the person is looking at: `?project=` (kept in the session), else their first; None without any."""
    if not hasattr(request, "_pitwall_project"):
        request._pitwall_project = _find_project(request)  # type: ignore[attr-defined]  # one query a request, not three
    found: Project | None = request._pitwall_project  # type: ignore[attr-defined]
    return found


def _find_project(request: HttpRequest) -> Project | None:
    mine = projects_of(request.user)
    asked = request.GET.get("project", "")
    if asked:
        found = mine.filter(slug=asked).first()
        if found is not None:
            request.session["project"] = found.slug
            return found
    kept = request.session.get("project", "")
    return (mine.filter(slug=kept).first() if kept else None) or mine.first()


def theme_choice(request: HttpRequest) -> str:
    """Return what the person chose: system, light or dark."""
    chosen = request.COOKIES.get(THEME_COOKIE, "system")
    return chosen if chosen in THEMES else "system"


def frame(request: HttpRequest) -> dict[str, Any]:
    """Return the template context of the frame."""
    chosen = theme_choice(request)
    density = request.COOKIES.get(DENSITY_COOKIE, "compact")
    context: dict[str, Any] = {
        "theme_choice": chosen,
        "theme": "dark" if chosen == "dark" else "light",
        "density": density if density in DENSITIES else "compact",
    }
    user = getattr(request, "user", None)
    if user is None or not user.is_authenticated:
        return context
    project = current_project(request)
    return context | {
        "project": project,
        "projects": list(projects_of(user)),
        "project_role": role(user, project) if project else None,
        "nav": _navigation(),
    }


def _navigation() -> list[dict[str, str]]:
    """Return the entries of the navigation whose pages exist."""
    entries = (
        ("home", _("Home"), "g h"),
        ("new-run", _("New run"), "g n"),
        ("runs", _("Runs"), "g r"),
        ("cluster", _("Cluster"), "g u"),
    )
    found = []
    for name, label, keys in entries:
        try:
            found.append({"name": name, "label": label, "url": reverse(name), "keys": keys})
        except NoReverseMatch:
            continue
    return found
