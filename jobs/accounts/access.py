"""Who may do what in a project. Default deny: every view, API call and websocket asks here.

A person who came with a limited API token carries its limits (`limit`): whatever asks here about that person is
answered within them, so that no view has to think of tokens.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, cast

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db.models import QuerySet

from jobs.models import Membership, Project

Role = Literal["viewer", "editor", "admin"]
User = AbstractBaseUser | AnonymousUser

_RANK: dict[str, int] = {"viewer": 1, "editor": 2, "admin": 3}


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLimits:
    """What an API token takes from its person's rights: roles above `role`, and all projects but `project_id`.

    `has_end`: the token expires by itself.
    """

    role: Role = "admin"
    project_id: int | None = None  # None: all projects of its person
    has_end: bool = False


_UNLIMITED = TokenLimits()


class NotAllowed(PermissionError):
    """The person lacks the role. `is_member` is False where even the project's existence is not theirs to know."""

    def __init__(self, text: str, *, is_member: bool) -> None:
        super().__init__(text)
        self.is_member = is_member


def limit(user: AbstractBaseUser, limits: TokenLimits) -> None:
    """Narrow what this very object of a person may do, for as long as it is asked about."""
    user._pitwall_limits = limits  # type: ignore[attr-defined]  # travels with request.user, wherever that goes


def limits_of(user: User) -> TokenLimits:
    """Return how far the person is narrowed; without a token, not at all."""
    limits: TokenLimits = getattr(user, "_pitwall_limits", _UNLIMITED)
    return limits


def role(user: User, project: Project) -> Role | None:
    """Return the person's role in the project, None without one; whoever is signed out or inactive has none."""
    limits = limits_of(user)
    if not user.is_authenticated or not user.is_active or limits.project_id not in (None, project.pk):
        return None
    # Asked anew, not of `user`: a websocket holds that object for days.
    held = Membership.objects.filter(user_id=user.pk, user__is_active=True, project=project)
    member_role = held.values_list("role", flat=True).first()
    if member_role not in _RANK:
        return None
    own_role = cast(Role, member_role)
    return own_role if allows(limits.role, own_role) else limits.role


def members(user_ids: Collection[int], project_ids: Collection[int]) -> set[tuple[int, int]]:
    """Return which of these people have a role in which of these projects, as (person, project), with one query.

    `role` for many at once, of people who came without a token.
    """
    held = Membership.objects.filter(user_id__in=user_ids, user__is_active=True, project_id__in=project_ids)
    return set(held.filter(role__in=_RANK).values_list("user_id", "project_id"))


def allows(held: Role | None, needed: Role) -> bool:
    """Return True if `held` includes what `needed` may do."""
    return held is not None and _RANK[held] >= _RANK[needed]


def require(user: User, project: Project, needed: Role) -> Role:
    """Return the person's role if it is at least `needed`.

    Raises: NotAllowed; pages and API answer it with 404 to non-members and 403 to members.
    """
    held = role(user, project)
    if held is None:
        raise NotAllowed("You are not a member of this project.", is_member=False)
    if not allows(held, needed):
        if not allows(limits_of(user).role, needed):
            text = f"This needs the role {needed}; this API token is limited to {limits_of(user).role}."
            raise NotAllowed(f"{text} Use another token, or make one that may do more.", is_member=True)
        raise NotAllowed(f"This needs the role {needed}; yours is {held}. Ask an admin of the project.", is_member=True)
    return held


def require_whole_account(user: User) -> None:
    """Let through who may speak for the whole account: who is signed in, or has a token without any limit.

    Else a limited token could make itself one without limits. Raises: NotAllowed.
    """
    if limits_of(user) != _UNLIMITED:
        text = "This API token is limited, so it cannot manage the account. Sign in, or use a token without limits."
        raise NotAllowed(text, is_member=True)


def require_superuser(user: User) -> None:
    """Let through who runs the console: makes projects and accounts. Raises: NotAllowed."""
    require_whole_account(user)
    if not getattr(user, "is_superuser", False) or not user.is_active:
        text = "Only whoever runs this console makes projects and accounts. Ask a superuser."
        raise NotAllowed(text, is_member=True)


def projects_of(user: User) -> QuerySet[Project]:
    """Return the projects the person is a member of, oldest first."""
    if not user.is_authenticated or not user.is_active:
        return Project.objects.none()
    own_projects = Project.objects.filter(membership__user_id=user.pk).order_by("created_at", "id")
    only = limits_of(user).project_id
    return own_projects if only is None else own_projects.filter(pk=only)


def projects_seen(user: User) -> set[int] | None:
    """Return the projects whose names and sizes the person may know: their own, and for whoever runs the console all
    (None), since they set quotas.
    """
    if getattr(user, "is_superuser", False) and user.is_active and limits_of(user) == _UNLIMITED:
        return None
    return set(projects_of(user).values_list("pk", flat=True))
