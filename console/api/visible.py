"""Find what a request names, or answer 404 as if it did not exist."""

from typing import Annotated, Any, cast

from django.contrib.auth.models import AbstractBaseUser
from django.http import Http404, HttpRequest
from django.utils.translation import gettext as _
from ninja import Query

from console.api.problem import RequestProblem
from jobs.accounts.access import Role, projects_of, require
from jobs.models import Project, Run

ProjectSlug = Annotated[str | None, Query(None, description="Slug of the project; without it, your first one")]


def caller(request: HttpRequest) -> AbstractBaseUser:
    """Return who is calling; the API's sign-in has let nobody else through."""
    assert request.user.is_authenticated
    return cast(AbstractBaseUser, request.user)


def run_for(request: HttpRequest, run_id: str, needed: Role = "viewer") -> Run:
    """Return the run if the caller has the role in its project.

    Raises: Http404, NotAllowed; RequestProblem while it is in the trash.
    """
    run = Run.objects.select_related("project", "created_by").filter(pk=run_id).first()
    if run is None:
        raise Http404
    require(request.user, run.project, needed)
    if run.trashed_at is not None:
        text = _("%(name)s is in the trash. Restore it there (POST /api/trash/<id>/restore) to see it again.")
        raise RequestProblem(409, text % {"name": run.name}, field="run")
    return run


def project_for(request: HttpRequest, slug: str | None, needed: Role = "viewer") -> Project:
    """Return the project named, or the caller's first one. Raises: Http404, NotAllowed, RequestProblem without any
    project."""
    own_projects = projects_of(request.user)
    if slug is None:
        first = own_projects.first()
        if first is None:
            raise RequestProblem(
                404, "You are not a member of any project yet. Ask an admin to add you.", field="project"
            )
        project = first
    else:
        named = own_projects.filter(slug=slug).first()
        if named is None:
            text = f"There is no project {slug!r}, or it is not yours to see."
            raise RequestProblem(404, text, field="project")
        project = named
    require(request.user, project, needed)
    return project


def page_of(items: Any, *, page: int, size: int) -> tuple[list[Any], int]:
    """Return the rows of one page (from 1) and how many there are in all."""
    total = items.count()
    return list(items[(page - 1) * size : page * size]), total
