"""Accounts and their end: who has one, shut it, open it again, take away what still lets somebody in.

The console keeps one superuser, and each project one admin. Runs of who leaves go on; what they may no longer start is
not started in their name either (jobs.runs.retry).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib.auth.models import AbstractBaseUser, User
from django.db import transaction
from django.db.models import Count, Q, QuerySet
from django.utils.translation import gettext as _

from jobs.accounts.audit import record
from jobs.accounts.sessions import end_sessions
from jobs.catalog.value import is_storable
from jobs.models import ApiToken, Membership, Project, SigninLink


class PersonRefused(ValueError):
    """The account stays as it is; `is_unknown` says that there is none of that name."""

    def __init__(self, message: str, *, is_unknown: bool = False) -> None:
        self.is_unknown = is_unknown
        super().__init__(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShutOut:
    """How much that let a person in was taken away."""

    tokens: int = 0
    sessions: int = 0
    links: int = 0

    def as_json(self) -> dict[str, int]:
        """Return it as the audit keeps it."""
        return {"tokens": self.tokens, "sessions": self.sessions, "links": self.links}


def people(words: str = "", *, now: datetime) -> QuerySet[Any]:
    """Return the accounts whose name has every one of the words, by name, each with `num_tokens` that still work and
    `num_projects`.
    """
    live = Q(apitoken__revoked_at=None) & (Q(apitoken__expires_at=None) | Q(apitoken__expires_at__gt=now))
    accounts = User.objects.order_by("username") if is_storable(words) else User.objects.none()
    for word in words.split():
        accounts = accounts.filter(username__icontains=word)
    return accounts.annotate(
        num_tokens=Count("apitoken", filter=live, distinct=True), num_projects=Count("membership", distinct=True)
    )


def find_person(username: str) -> User:
    """Return the account. Raises: PersonRefused if there is none."""
    user = User.objects.filter(username=username).first() if is_storable(username) else None
    if user is None:
        raise PersonRefused(_("There is no account %(name)r.") % {"name": username[:200]}, is_unknown=True)
    return user


def deactivate(*, username: str, actor: AbstractBaseUser | None, now: datetime) -> ShutOut:
    """Shut the account and end at once all that lets its person in; open websockets follow within five seconds.

    Return what ended. Raises: PersonRefused for the last superuser and for the last admin of a project.
    """
    with transaction.atomic():
        user = find_person(username)
        if not user.is_active:
            return ShutOut()
        _keep_superuser(user)
        _keep_admins(user)
        User.objects.filter(pk=user.pk).update(is_active=False)
        ended = _shut_out(user, now=now)
        _record(actor, "account.deactivate", user, before={"is_active": True}, after=ended.as_json())
    return ended


def activate(*, username: str, actor: AbstractBaseUser | None) -> None:
    """Open the account again; its tokens and sessions do not come back. Raises: PersonRefused."""
    with transaction.atomic():
        user = find_person(username)
        if User.objects.filter(pk=user.pk, is_active=False).update(is_active=True):
            _record(actor, "account.activate", user, before={"is_active": False}, after={"is_active": True})


def set_superuser(*, username: str, is_superuser: bool, actor: AbstractBaseUser | None) -> None:
    """Let the person run this console, or no longer. Raises: PersonRefused for the last superuser, and for an account
    that is not active.
    """
    with transaction.atomic():
        user = find_person(username)
        if user.is_superuser == is_superuser:
            return
        if is_superuser and not user.is_active:
            text = _("%(name)s is not active, so it cannot run this console. Activate the account first.")
            raise PersonRefused(text % {"name": username})
        if not is_superuser:
            _keep_superuser(user)
        User.objects.filter(pk=user.pk).update(is_superuser=is_superuser)
        before, after = {"is_superuser": not is_superuser}, {"is_superuser": is_superuser}
        _record(actor, "account.set_superuser", user, before=before, after=after)


def leave_all(*, username: str, actor: AbstractBaseUser | None) -> list[str]:
    """Take the person out of every project and return the slugs. Raises: PersonRefused for the last admin of one."""
    with transaction.atomic():
        user = find_person(username)
        _keep_admins(user)
        held = list(Membership.objects.filter(user=user).select_related("project").order_by("project__slug"))
        for member in held:
            member.delete()
            before = {"user": username, "role": member.role}
            slug = member.project.slug
            record(actor=actor, verb="member.remove", object_type="project", object_id=slug, before=before)
    return [member.project.slug for member in held]


def revoke_tokens(*, username: str, actor: AbstractBaseUser | None, now: datetime, token_id: int | None = None) -> int:
    """Revoke all of the person's tokens, or the one named, and return how many were not revoked before.

    Raises: PersonRefused.
    """
    with transaction.atomic():
        user = find_person(username)
        live = ApiToken.objects.filter(user=user, revoked_at=None)
        ids = list((live if token_id is None else live.filter(pk=token_id)).values_list("pk", flat=True))
        num_revoked = ApiToken.objects.filter(pk__in=ids, revoked_at=None).update(revoked_at=now)
        if num_revoked:
            _record(actor, "token.revoke", user, before={"tokens": ids})
    return num_revoked


def sign_out_everywhere(*, username: str, actor: AbstractBaseUser | None) -> int:
    """End every session of the person, drop sign-in links nobody has used, and return how many sessions ended.

    Raises: PersonRefused.
    """
    with transaction.atomic():
        user = find_person(username)
        num_ended, num_links = end_sessions(user.pk), drop_links(user)
        if num_ended or num_links:
            _record(actor, "session.end", user, after={"sessions": num_ended, "links": num_links})
    return num_ended


def end_other_ways(user: AbstractBaseUser, *, keep_session: str | None, tokens_too: bool, now: datetime) -> ShutOut:
    """After another password: end unused links, all sessions but the one with this key, and API tokens if asked to."""
    ended = _shut_out(user, now=now, keep_session=keep_session, tokens_too=tokens_too)
    _record(user, "password.change", user, after=ended.as_json())
    return ended


def _shut_out(
    user: AbstractBaseUser, *, now: datetime, keep_session: str | None = None, tokens_too: bool = True
) -> ShutOut:
    live = ApiToken.objects.filter(user_id=user.pk, revoked_at=None)
    num_tokens = live.update(revoked_at=now) if tokens_too else 0
    return ShutOut(tokens=num_tokens, sessions=end_sessions(user.pk, keep=keep_session), links=drop_links(user))


def drop_links(user: AbstractBaseUser) -> int:
    """Forget the sign-in links of the person that nobody has used, and return how many there were."""
    dropped, _by_model = SigninLink.objects.filter(user_id=user.pk, used_at=None).delete()
    return dropped


def only_admin_of(user: AbstractBaseUser) -> list[Project]:
    """Return the projects that would be without an active admin if this person went, by name."""
    led = Project.objects.filter(membership__user_id=user.pk, membership__role="admin")
    others = Membership.objects.filter(role="admin", user__is_active=True, project__in=led).exclude(user_id=user.pk)
    safe = set(others.values_list("project_id", flat=True))
    return [project for project in led.order_by("name") if project.pk not in safe]


def names(projects: Iterable[Project]) -> str:
    """Return the names of projects as a sentence lists them."""
    return ", ".join(project.name for project in projects)


def _keep_superuser(user: User) -> None:
    """Raises: PersonRefused for the last superuser; two at once wait for each other."""
    if not user.is_superuser or not user.is_active:
        return
    holders = User.objects.select_for_update().filter(is_superuser=True, is_active=True)
    if not [holder for holder in holders.order_by("pk") if holder.pk != user.pk]:
        text = _("%(name)s is the last superuser of this console. Make another account superuser first.")
        raise PersonRefused(text % {"name": user.username})


def _keep_admins(user: User) -> None:
    """Raises: PersonRefused for the last admin of a project."""
    led = Membership.objects.filter(user=user, role="admin").values_list("project_id", flat=True)
    list(Project.objects.select_for_update().filter(pk__in=list(led)).order_by("pk"))  # as changes of members do
    if not user.is_active:
        return
    if left := only_admin_of(user):
        text = _("%(name)s is the last admin of %(projects)s. Make another member admin there first.")
        raise PersonRefused(text % {"name": user.username, "projects": names(left)})


def _record(
    actor: AbstractBaseUser | None, verb: str, user: AbstractBaseUser, *, before: object = None, after: object = None
) -> None:
    record(actor=actor, verb=verb, object_type="account", object_id=user.get_username(), before=before, after=after)
