"""Projects and who belongs to them."""

from typing import Any

from django.http import HttpRequest
from ninja import Router, Schema, Status

from console.api.problem import REFUSALS, RequestProblem
from console.api.visible import caller, project_for
from jobs.accounts.access import projects_of, require_superuser, role
from jobs.accounts.members import MemberRefused, remove_member, set_member
from jobs.accounts.projects import ProjectRefused, make_project
from jobs.models import Membership

router = Router(tags=["projects"])


class ProjectOut(Schema):
    """A project and the caller's role in it."""

    slug: str
    name: str
    role: str


class ProjectsOut(Schema):
    """The caller's projects."""

    projects: list[ProjectOut]


class ProjectIn(Schema):
    """What a new project is called; `slug` names it in addresses, and is made of the name where it is left out."""

    model_config = {"extra": "forbid"}

    name: str
    slug: str = ""


class MemberOut(Schema):
    """A person and what they may do in the project."""

    username: str
    role: str


class MembersOut(Schema):
    """Who belongs to the project."""

    members: list[MemberOut]


class RoleIn(Schema):
    """viewer reads, editor launches and stops, admin also manages members and deletes runs."""

    model_config = {"extra": "forbid"}

    role: str


@router.get("", response={200: ProjectsOut, **REFUSALS}, summary="Your projects")
def list_projects(request: HttpRequest) -> ProjectsOut:
    """Return the projects you are a member of, oldest first."""
    own_projects = [(project, role(request.user, project)) for project in projects_of(request.user)]
    return ProjectsOut(projects=[ProjectOut(slug=p.slug, name=p.name, role=held) for p, held in own_projects if held])


@router.post("", response={201: ProjectOut, **REFUSALS}, summary="Make a project")
def create_project(request: HttpRequest, body: ProjectIn) -> Status[ProjectOut]:
    """Make a project, with you as its admin; superusers only."""
    require_superuser(request.user)
    try:
        project = make_project(name=body.name, slug=body.slug, actor=caller(request))
    except ProjectRefused as error:
        raise RequestProblem(409 if error.is_taken else 422, str(error), field=error.field) from error
    return Status(201, ProjectOut(slug=project.slug, name=project.name, role="admin"))


@router.get("/{slug:project}/members", response={200: MembersOut, **REFUSALS}, summary="Members")
def list_members(request: HttpRequest, project: str) -> MembersOut:
    """Return who belongs to the project, by name."""
    home = project_for(request, project)
    rows = Membership.objects.filter(project=home).select_related("user").order_by("user__username")
    return MembersOut(members=[MemberOut(username=m.user.get_username(), role=m.role) for m in rows])


@router.put("/{slug:project}/members/{username}", response={200: MemberOut, **REFUSALS}, summary="Set a member's role")
def put_member(request: HttpRequest, project: str, username: str, body: RoleIn) -> MemberOut:
    """Add a person to the project or change their role; admins only."""
    home = project_for(request, project, "admin")
    try:
        member = set_member(project=home, username=username, role=body.role, actor=caller(request))
    except MemberRefused as error:
        field = "username" if error.is_unknown else "role"
        raise RequestProblem(404 if error.is_unknown else 422, str(error), field=field) from error
    return MemberOut(username=username, role=member.role)


@router.delete("/{slug:project}/members/{username}", response={204: None, **REFUSALS}, summary="Remove a member")
def delete_member(request: HttpRequest, project: str, username: str) -> Any:
    """Take a person out of the project; admins only."""
    home = project_for(request, project, "admin")
    try:
        remove_member(project=home, username=username, actor=caller(request))
    except MemberRefused as error:
        raise RequestProblem(404 if error.is_unknown else 409, str(error), field="username") from error
    return Status(204, None)
