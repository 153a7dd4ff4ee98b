"""Who may do what in a project. Default deny: every view, API call and websocket asks here."""

from typing import Literal, cast

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db.models import QuerySet

from jobs.models import Membership, Project

Role = Literal["viewer", "editor", "admin"]
User = AbstractBaseUser | AnonymousUser

_RANK: dict[str, int] = {"viewer": 1, "editor": 2, "admin": 3}


class NotAllowed(PermissionError):
    """The person lacks the role. `is_member` is False where even the project's existence is not theirs to know."""

    def __init__(self, text: str, *, is_member: bool) -> None:
        super().__init__(text)
        self.is_member = is_member


def role(user: User, project: Project) -> Role | None:
    """Return the person's role in the project, None without one; whoever is signed out or inactive has none."""
    if not user.is_authenticated or not user.is_active:
        return None
    # Asked anew, not of `user`: a websocket holds that object for days.
    held = Membership.objects.filter(user_id=user.pk, user__is_active=True, project=project)
    found = held.values_list("role", flat=True).first()
    return cast(Role, found) if found in _RANK else None


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
        raise NotAllowed(f"This needs the role {needed}; yours is {held}. Ask an admin of the project.", is_member=True)
    return held


def projects_of(user: User) -> QuerySet[Project]:
    """Return the projects the person is a member of, oldest first."""
    if not user.is_authenticated or not user.is_active:
        return Project.objects.none()
    return Project.objects.filter(membership__user_id=user.pk).order_by("created_at", "id")
