"""Who can do what, as JSON or CSV: in a project for its admins, everywhere for superusers; and handing over runs."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Annotated

from django.http import HttpRequest, StreamingHttpResponse
from django.utils import timezone
from ninja import Query, Router, Schema

from console.api.account.people import HandedOverOut, handed_over
from console.api.problem import REFUSALS, RequestProblem
from console.api.visible import project_for
from console.downloads.csv_response import csv_answer
from console.downloads.kept import keep_download
from console.downloads.rights_csv import rights_csv
from jobs.accounts.access import require_superuser
from jobs.accounts.who_can import NoSuchRole, Right, who_can
from jobs.models import Project

router = Router(tags=["people"])
projects = Router(tags=["projects"])

Words = Annotated[str, Query(description="Parts of user names")]
RoleAsked = Annotated[str, Query(description="viewer, editor or admin; without it, all")]


class RightOut(Schema):
    """A person's role in a project. `tokens`: how many of their API tokens reach it by now."""

    username: str
    is_active: bool
    is_superuser: bool
    last_login: datetime | None
    project: str
    project_name: str
    role: str
    from_groups: bool
    tokens: int


class RightsOut(Schema):
    """Who can do what, by person and project."""

    rights: list[RightOut]


class ProjectHandOverIn(Schema):
    """Whose runs and sweeps become whose: all of them in the project, or those in `ids`."""

    model_config = {"extra": "forbid"}

    username: str
    to: str
    ids: list[str] | None = None


_CSV = {"responses": {200: {"description": "CSV", "content": {"text/csv": {"schema": {"type": "string"}}}}}}


@router.get("", response={200: RightsOut, **REFUSALS}, summary="Who can do what, everywhere")
def read_rights(request: HttpRequest, q: Words = "", role: RoleAsked = "") -> RightsOut:
    """Return every person's role in every project, and people who are in none; superusers only."""
    require_superuser(request.user)
    return _out(_found(None, q, role))


@router.get("/export.csv", response={200: None, **REFUSALS}, summary="The same as CSV", openapi_extra=_CSV)
def export_rights(request: HttpRequest, q: Words = "", role: RoleAsked = "") -> StreamingHttpResponse:
    """Return the same as a table; superusers only."""
    require_superuser(request.user)
    keep_download(request, "access", "", "who-can-do-what.csv")
    return csv_answer(rights_csv(_found(None, q, role)), name="who-can-do-what.csv")


@projects.get("/{slug:project}/access", response={200: RightsOut, **REFUSALS}, summary="Who can do what here")
def read_project_rights(request: HttpRequest, project: str, q: Words = "", role: RoleAsked = "") -> RightsOut:
    """Return every member's role in the project; its admins only."""
    home = project_for(request, project, "admin")
    return _out(_found(home, q, role))


@projects.get(
    "/{slug:project}/access.csv", response={200: None, **REFUSALS}, summary="The same as CSV", openapi_extra=_CSV
)
def export_project_rights(
    request: HttpRequest, project: str, q: Words = "", role: RoleAsked = ""
) -> StreamingHttpResponse:
    """Return the same as a table; admins of the project only."""
    home = project_for(request, project, "admin")
    name = f"who-can-do-what-{home.slug}.csv"
    keep_download(request, "project", home.slug, name)
    return csv_answer(rights_csv(_found(home, q, role)), name=name)


@projects.post("/{slug:project}/hand-over", response={200: HandedOverOut, **REFUSALS}, summary="Hand over runs")
def hand_over_in_project(request: HttpRequest, project: str, body: ProjectHandOverIn) -> HandedOverOut:
    """Make another editor or admin of the project the owner of somebody's runs and sweeps; its admins only."""
    home = project_for(request, project, "admin")
    return handed_over(request, home, body.username, body.to, body.ids)


def _found(project: Project | None, words: str, role: str) -> list[Right]:
    try:
        return who_can(now=timezone.now(), project=project, words=words, role=role)
    except NoSuchRole as error:
        raise RequestProblem(422, str(error), field="role") from error


def _out(rights: Sequence[Right]) -> RightsOut:
    return RightsOut(rights=[RightOut(**asdict(right)) for right in rights])
