"""The filter line's completion, and the views of the list that people keep."""

from dataclasses import asdict
from urllib.parse import urlencode

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect
from django.urls import path, reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_POST

from console.views.frame import person
from console.views.runs.page import project_of
from jobs.accounts.access import require
from jobs.runs.filter import VIEWS, FilterInvalid
from jobs.runs.find.completion import complete
from jobs.runs.find.language import MAX_CHARS
from jobs.runs.find.saved import delete_view, save_view

_MAX_ID = 2**62


@require_GET
def complete_filter(request: HttpRequest) -> JsonResponse:
    """Give what may stand at the cursor, after `at` characters of the line `q`."""
    project = project_of(request)
    line, at = request.GET.get("q", "").replace("\0", "")[:MAX_CHARS], request.GET.get("at", "")
    place = int(at) if at.isdecimal() and len(at) < 8 else len(line)
    return JsonResponse(asdict(complete(project, line, min(place, len(line)))))


@require_POST
def save(request: HttpRequest) -> HttpResponse:
    """Keep the list as it is shown under a name, for oneself or for the project, and show it."""
    project = project_of(request)
    post = request.POST
    is_shared = post.get("is_shared") == "1"
    require(request.user, project, "editor" if is_shared else "viewer")
    view = post.get("view", "all")
    shown = {name: post.get(name, "") for name in ("view", "q", "sort", "c") if post.get(name)}
    try:
        saved = save_view(
            project=project,
            user=person(request),
            name=post.get("name", ""),
            is_shared=is_shared,
            view=view if view in VIEWS else "all",
            query=post.get("q", "").strip(),
            sort=post.get("sort") or "-started",
            columns=[key for key in post.get("c", "").split(",") if key],
        )
    except FilterInvalid as error:
        messages.error(request, str(error))
        return redirect(f"{reverse('runs')}?{urlencode(shown)}")
    return redirect(f"{reverse('runs')}?saved={saved.pk}")


@require_POST
def delete(request: HttpRequest, view_id: int) -> HttpResponse:
    """Delete a view: one's own, or as an editor the project's."""
    project = project_of(request)
    if view_id > _MAX_ID or not delete_view(project, view_id, request.user):
        raise Http404(_("There is no such view, or it is not yours."))
    return redirect("runs")


urlpatterns = [
    path("runs/complete", complete_filter, name="complete-filter"),
    path("runs/views", save, name="save-view"),
    path("runs/views/<int:view_id>/delete", delete, name="delete-view"),
]
