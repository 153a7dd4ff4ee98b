"""Accounts of everybody, for superusers: who there is, shutting them, what lets them in, whose their runs become."""

from datetime import datetime
from typing import Annotated, Any

from django.conf import settings
from django.db import transaction
from django.http import HttpRequest
from django.utils import timezone
from ninja import Query, Router, Schema, Status

from console.api.problem import REFUSALS, RequestProblem
from console.api.visible import caller, page_of
from console.sign_in.accounts import AccountRefused, make_account, renew_link
from jobs.accounts.access import require_superuser
from jobs.accounts.handover import hand_over
from jobs.accounts.people import (
    PersonRefused,
    activate,
    deactivate,
    find_person,
    leave_all,
    people,
    revoke_tokens,
    set_superuser,
    sign_out_everywhere,
)
from jobs.catalog.value import is_storable
from jobs.models import Membership, Project

router = Router(tags=["people"])

PageNumber = Annotated[int, Query(1, ge=1, le=100_000)]
PageSize = Annotated[int, Query(50, ge=1, le=500)]


class PersonOut(Schema):
    """An account. `tokens`: how many API tokens of it work by now."""

    username: str
    is_active: bool
    is_superuser: bool
    has_password: bool
    last_login: datetime | None
    tokens: int
    projects: dict[str, str]


class PeopleOut(Schema):
    """A page of accounts by name, and how many there are in all."""

    people: list[PersonOut]
    total: int


class NewPersonIn(Schema):
    """The user name of a new account."""

    model_config = {"extra": "forbid"}

    username: str


class NewPersonOut(Schema):
    """A link that signs in to the new account once, within 24 hours; it is not shown again."""

    username: str
    link: str


class PersonIn(Schema):
    """What to change; what is left out stays."""

    model_config = {"extra": "forbid"}

    is_active: bool | None = None
    is_superuser: bool | None = None


class EndedOut(Schema):
    """How many ended."""

    ended: int


class ProjectsLeft(Schema):
    """Slugs of the projects that the person is no longer a member of."""

    projects: list[str]


class HandOverIn(Schema):
    """Whose the runs and sweeps become: all that the person has in the project, or those in `ids`."""

    model_config = {"extra": "forbid"}

    to: str
    project: str
    ids: list[str] | None = None


class HandedOverOut(Schema):
    """How many runs and sweeps have another owner now."""

    runs: int
    sweeps: int


@router.get("", response={200: PeopleOut, **REFUSALS}, summary="Accounts")
def list_people(request: HttpRequest, page: PageNumber, size: PageSize, q: str = "") -> PeopleOut:
    """Return accounts by name, those with every word of `q` in it; superusers only."""
    require_superuser(request.user)
    rows, total = page_of(people(q, now=timezone.now()), page=page, size=size)
    return PeopleOut(people=_rows(rows), total=total)


@router.post("", response={201: NewPersonOut, **REFUSALS}, summary="Make an account")
def create_person(request: HttpRequest, body: NewPersonIn) -> Status[NewPersonOut]:
    """Make an account without a password, in no project, and return a link that signs in once; superusers only."""
    require_superuser(request.user)
    url = settings.PUBLIC_URL
    try:
        link = make_account(username=body.username, base_url=url, actor=caller(request), now=timezone.now())
    except AccountRefused as error:
        raise RequestProblem(422, str(error), field="username") from error
    return Status(201, NewPersonOut(username=body.username.strip(), link=link))


@router.get("/{username}", response={200: PersonOut, **REFUSALS}, summary="An account")
def read_person(request: HttpRequest, username: str) -> PersonOut:
    """Return one account; superusers only."""
    require_superuser(request.user)
    return _person(username)


@router.patch("/{username}", response={200: PersonOut, **REFUSALS}, summary="Deactivate, activate, make superuser")
def change_person(request: HttpRequest, username: str, body: PersonIn) -> PersonOut:
    """Shut the account or open it, let it run the console or not; superusers only.

    Shut, its tokens, sessions and unused sign-in links end at once, its open pages within seconds; runs go on. The last
    superuser and the last admin of a project cannot go: 409.
    """
    require_superuser(request.user)
    actor = caller(request)
    try:
        with transaction.atomic():  # all of it or nothing
            if body.is_superuser is not None:
                set_superuser(username=username, is_superuser=body.is_superuser, actor=actor)
            if body.is_active:
                activate(username=username, actor=actor)
            elif body.is_active is False:
                deactivate(username=username, actor=actor, now=timezone.now())
    except PersonRefused as error:
        raise refused(error) from error
    return _person(username)


@router.delete("/{username}/tokens", response={200: EndedOut, **REFUSALS}, summary="Revoke somebody's tokens")
def remove_tokens(request: HttpRequest, username: str) -> EndedOut:
    """Revoke every API token of the person at once; superusers only."""
    require_superuser(request.user)
    try:
        return EndedOut(ended=revoke_tokens(username=username, actor=caller(request), now=timezone.now()))
    except PersonRefused as error:
        raise refused(error) from error


@router.delete("/{username}/sessions", response={200: EndedOut, **REFUSALS}, summary="Sign somebody out")
def remove_sessions(request: HttpRequest, username: str) -> EndedOut:
    """End every browser session and unused sign-in link of the person; superusers only."""
    require_superuser(request.user)
    try:
        return EndedOut(ended=sign_out_everywhere(username=username, actor=caller(request)))
    except PersonRefused as error:
        raise refused(error) from error


@router.delete("/{username}/projects", response={200: ProjectsLeft, **REFUSALS}, summary="Remove from every project")
def remove_memberships(request: HttpRequest, username: str) -> ProjectsLeft:
    """Take the person out of every project; superusers only. The last admin of one cannot go: 409."""
    require_superuser(request.user)
    try:
        return ProjectsLeft(projects=leave_all(username=username, actor=caller(request)))
    except PersonRefused as error:
        raise refused(error) from error


@router.post("/{username}/link", response={201: NewPersonOut, **REFUSALS}, summary="Another first link")
def renew_first_link(request: HttpRequest, username: str) -> Status[NewPersonOut]:
    """Make another link for an account that nobody has signed in to yet, else 409; superusers only."""
    require_superuser(request.user)
    actor, now = caller(request), timezone.now()
    try:
        link = renew_link(username=username, base_url=settings.PUBLIC_URL, actor=actor, now=now)
    except PersonRefused as error:
        raise refused(error) from error
    except AccountRefused as error:
        raise RequestProblem(409, str(error), field="username") from error
    return Status(201, NewPersonOut(username=username, link=link))


@router.post("/{username}/hand-over", response={200: HandedOverOut, **REFUSALS}, summary="Hand over somebody's runs")
def hand_over_runs(request: HttpRequest, username: str, body: HandOverIn) -> HandedOverOut:
    """Make another member of a project the owner of runs and sweeps there; superusers only."""
    require_superuser(request.user)
    project = Project.objects.filter(slug=body.project).first() if is_storable(body.project) else None
    if project is None:
        raise RequestProblem(404, f"There is no project {body.project[:80]!r}.", field="project")
    return handed_over(request, project, username, body.to, body.ids)


def handed_over(request: HttpRequest, project: Project, username: str, to: str, ids: list[str] | None) -> HandedOverOut:
    """Hand over runs and sweeps for a caller who may, and say how many. Raises: RequestProblem."""
    try:
        done = hand_over(project=project, username=username, to=to, ids=ids, actor=caller(request))
    except PersonRefused as error:
        raise refused(error) from error
    return HandedOverOut(runs=done.runs, sweeps=done.studies)


def refused(error: PersonRefused) -> RequestProblem:
    """Return the answer to a change that is not made: 404 for an unknown account, else 409."""
    return RequestProblem(404 if error.is_unknown else 409, str(error), field="username")


def _person(username: str) -> PersonOut:
    try:
        find_person(username)
    except PersonRefused as error:
        raise refused(error) from error
    return _rows(people(now=timezone.now()).filter(username=username))[0]


def _rows(rows: Any) -> list[PersonOut]:
    users = list(rows)
    roles: dict[int, dict[str, str]] = {user.pk: {} for user in users}
    held = Membership.objects.filter(user__in=list(roles)).order_by("project__slug")
    for user_id, slug, role in held.values_list("user_id", "project__slug", "role"):
        roles[user_id][slug] = role
    return [
        PersonOut(
            username=user.username,
            is_active=user.is_active,
            is_superuser=user.is_superuser,
            has_password=user.has_usable_password(),
            last_login=user.last_login,
            tokens=user.num_tokens,
            projects=roles[user.pk],
        )
        for user in users
    ]
