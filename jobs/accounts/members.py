"""Who belongs to a project: add, change, remove. A project keeps at least one admin."""

from typing import get_args

from django.contrib.auth import get_user_model
from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.utils.translation import gettext as _

from jobs.accounts.access import Role
from jobs.accounts.audit import record
from jobs.catalog.value import is_storable
from jobs.models import Membership, Project


class MemberRefused(ValueError):
    """The change of membership is not allowed; `is_unknown` says that there is no such person."""

    def __init__(self, message: str, *, is_unknown: bool = False) -> None:
        self.is_unknown = is_unknown
        super().__init__(message)


def set_member(*, project: Project, username: str, role: str, actor: AbstractBaseUser | None) -> Membership:
    """Give a person a role in the project, newly or instead of the one they had. Raises: MemberRefused."""
    if role not in get_args(Role):
        raise MemberRefused(_("There is no role %(role)r. Use viewer, editor or admin.") % {"role": role})
    user = get_user_model().objects.filter(username=username).first() if is_storable(username) else None
    if user is None:
        text = _("There is no account %(name)r. The operator of this console can create it under Settings.")
        raise MemberRefused(text % {"name": username}, is_unknown=True)
    with transaction.atomic():
        Project.objects.select_for_update().get(pk=project.pk)
        held = Membership.objects.filter(project=project, user=user).first()
        before = held.role if held else None
        if before == "admin" and role != "admin":
            _require_other_admin(project, user)
        values = {"role": role, "from_groups": False}  # by hand now: groups neither change it nor take it back
        member, _is_new = Membership.objects.update_or_create(project=project, user=user, defaults=values)
        record(
            actor=actor,
            verb="member.set",
            object_type="project",
            object_id=project.slug,
            before={"user": username, "role": before},
            after={"user": username, "role": role},
        )
    return member


def remove_member(*, project: Project, username: str, actor: AbstractBaseUser) -> None:
    """Take a person out of the project. Raises: MemberRefused."""
    with transaction.atomic():
        Project.objects.select_for_update().get(pk=project.pk)
        members = Membership.objects.select_related("user").filter(project=project)
        member = members.filter(user__username=username).first() if is_storable(username) else None
        if member is None:
            text = _("%(name)r is not a member of this project.") % {"name": username}
            raise MemberRefused(text, is_unknown=True)
        if member.role == "admin":
            _require_other_admin(project, member.user)
        member.delete()
        before = {"user": username, "role": member.role}
        record(actor=actor, verb="member.remove", object_type="project", object_id=project.slug, before=before)


def _require_other_admin(project: Project, user: AbstractBaseUser) -> None:
    others = Membership.objects.filter(project=project, role="admin", user__is_active=True).exclude(user_id=user.pk)
    if not others.exists():
        raise MemberRefused(_("A project needs an admin, and this is the last one. Make another member admin first."))
