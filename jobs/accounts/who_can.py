"""Who can do what: every role that a person has in a project, and how many tokens reach there in their name."""

from collections import Counter
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Q
from django.utils.translation import gettext as _

from jobs.accounts.people import people
from jobs.models import ApiToken, Membership, Project


@dataclass(frozen=True, slots=True, kw_only=True)
class Right:
    """A person's role in a project; of somebody in no project, project and role are "".

    `tokens`: those of the person that work there by now, bound to the project or to none. `from_groups`: the role was
    given by groups of the provider.
    """

    username: str
    is_active: bool
    is_superuser: bool
    last_login: datetime | None
    project: str
    project_name: str
    role: str
    from_groups: bool
    tokens: int


class NoSuchRole(ValueError):
    """The role asked for is none; the text is a sentence."""


def who_can(*, now: datetime, project: Project | None = None, words: str = "", role: str = "") -> list[Right]:
    """Return the rights in the project, or in all of them, by person and project; of people whose name has the words,
    and of one role only if it is given. Raises: NoSuchRole.
    """
    if role and role not in Membership.Role.values:
        text = _("There is no role %(role)r. Use viewer, editor or admin.")
        raise NoSuchRole(text % {"role": role[:80]})
    accounts = {user.pk: user for user in people(words, now=now)}
    members = Membership.objects.filter(user__in=list(accounts)).select_related("project")
    if project is not None:
        members = members.filter(project=project)
    if role:
        members = members.filter(role=role)
    everywhere, bound = _live_tokens(now)
    rights = [
        Right(
            username=accounts[member.user_id].username,
            is_active=accounts[member.user_id].is_active,
            is_superuser=accounts[member.user_id].is_superuser,
            last_login=accounts[member.user_id].last_login,
            project=member.project.slug,
            project_name=member.project.name,
            role=member.role,
            from_groups=member.from_groups,
            tokens=everywhere[member.user_id] + bound[member.user_id, member.project_id],
        )
        for member in members
    ]
    if project is None and not role:
        seen = {right.username for right in rights}
        rights += [
            Right(
                username=user.username,
                is_active=user.is_active,
                is_superuser=user.is_superuser,
                last_login=user.last_login,
                project="",
                project_name="",
                role="",
                from_groups=False,
                tokens=everywhere[user.pk],
            )
            for user in accounts.values()
            if user.username not in seen
        ]
    return sorted(rights, key=lambda right: (right.username, right.project))


def _live_tokens(now: datetime) -> tuple[Counter[int], Counter[tuple[int, int]]]:
    """Return how many live tokens of each person reach all of their projects, and how many only one."""
    live = ApiToken.objects.filter(Q(expires_at=None) | Q(expires_at__gt=now), revoked_at=None, user__is_active=True)
    everywhere: Counter[int] = Counter()
    bound: Counter[tuple[int, int]] = Counter()
    for user_id, project_id in live.values_list("user_id", "project_id"):
        if project_id is None:
            everywhere[user_id] += 1
        else:
            bound[user_id, project_id] += 1
    return everywhere, bound
