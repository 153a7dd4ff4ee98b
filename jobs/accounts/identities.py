"""People of an OpenID Connect provider and their accounts here: found by issuer and subject, with roles from groups.

A name is never enough: an account that was made here stays its person's until somebody who is signed in to it, or who
runs the machine, connects it.
"""

import logging
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from django.contrib.auth.models import AbstractBaseUser, User
from django.contrib.auth.validators import UnicodeUsernameValidator
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.utils.translation import gettext as _

from jobs.accounts.audit import record
from jobs.accounts.group_mapping import GroupMapping
from jobs.accounts.people import PersonRefused, only_admin_of
from jobs.catalog.value import is_storable
from jobs.models import Identity, Membership, Project

log = logging.getLogger(__name__)

MAX_NAME_CHARS = 150
MAX_SUBJECT_CHARS = 255


@dataclass(frozen=True, slots=True, kw_only=True)
class Visitor:
    """Who the provider says is there. `name`: what an account made for them would be called."""

    issuer: str
    subject: str
    name: str
    groups: Collection[str] = ()


def account_of(visitor: Visitor, mapping: GroupMapping, *, may_create: bool, now: datetime) -> User:
    """Return the account that the visitor signs in to, its roles as the groups say by now.

    Raises: PersonRefused if there is none and none is made, its name is taken, or it is not active.
    """
    with transaction.atomic():
        identities = Identity.objects.select_related("user").select_for_update(of=("self",))
        identity = identities.filter(issuer=visitor.issuer, subject=visitor.subject).first()
        if identity is None:
            identity = _new_identity(visitor, mapping, may_create=may_create)
        user = identity.user
        assert isinstance(user, User)
        if not user.is_active:
            raise PersonRefused(_("The account %(name)s is not active. Ask a superuser.") % {"name": user.username})
        Identity.objects.filter(pk=identity.pk).update(used_at=now)
        if mapping:
            _set_roles(user, visitor.groups, mapping)
            _set_superuser(identity, user, visitor.groups, mapping)
    return user


def keep_refusal(visitor: Visitor, why: str) -> None:
    """Keep that somebody whom the provider knows was not let in here."""
    after = {"by": "oidc", "issuer": visitor.issuer, "subject": visitor.subject, "why": why}
    record(actor=None, verb="signin.failed", object_type="account", object_id=visitor.name, after=after)


def connect(*, user: AbstractBaseUser, issuer: str, subject: str, actor: AbstractBaseUser | None) -> None:
    """Let this person of the provider sign in to the account from now on.

    Raises: PersonRefused if they sign in to another account already, or the account belongs to another of them.
    """
    if not 1 <= len(subject) <= MAX_SUBJECT_CHARS or not is_storable(subject):
        text = _("%(given)r is not a subject of a provider. It has 1 to %(most)s characters.")
        raise PersonRefused(text % {"given": subject[:80], "most": MAX_SUBJECT_CHARS})
    with transaction.atomic():
        held = Identity.objects.select_related("user").filter(issuer=issuer, subject=subject).first()
        if held is not None and held.user_id != user.pk:
            text = _("This person of the provider signs in to the account %(name)s already.")
            raise PersonRefused(text % {"name": held.user.get_username()})
        if Identity.objects.filter(issuer=issuer, user_id=user.pk).exclude(subject=subject).exists():
            text = _("The account %(name)s is connected with another person of the provider. Disconnect it first.")
            raise PersonRefused(text % {"name": user.get_username()})
        if held is None:
            Identity.objects.create(user_id=user.pk, issuer=issuer, subject=subject)
            after = {"issuer": issuer, "subject": subject}
            name = user.get_username()
            record(actor=actor, verb="account.connect", object_type="account", object_id=name, after=after)


def disconnect(*, user: AbstractBaseUser, issuer: str, actor: AbstractBaseUser | None) -> bool:
    """Let nobody of the provider sign in to the account any more; False if nobody did."""
    with transaction.atomic():
        dropped, _by_model = Identity.objects.filter(user_id=user.pk, issuer=issuer).delete()
        if dropped:
            name = user.get_username()
            record(actor=actor, verb="account.disconnect", object_type="account", object_id=name)
    return bool(dropped)


def _new_identity(visitor: Visitor, mapping: GroupMapping, *, may_create: bool) -> Identity:
    name = visitor.name.strip()
    if not may_create:
        text = _("There is no account here for %(name)s, and none is made at sign-in. Ask a superuser for one.")
        raise PersonRefused(text % {"name": name[:200]})
    if mapping and not mapping.knows(visitor.groups):
        text = _("None of the groups of %(name)s has a role in this console. Ask its operator which group has one.")
        raise PersonRefused(text % {"name": name[:200]})
    try:
        UnicodeUsernameValidator()(name)
        is_name = len(name) <= MAX_NAME_CHARS
    except ValidationError:
        is_name = False
    if not is_name:
        text = _(
            "The provider calls you %(given)r, which is no user name here: 1 to %(most)s letters, digits, @ . + - _."
        )
        raise PersonRefused(text % {"given": name[:200], "most": MAX_NAME_CHARS})
    text = _(
        "There is an account %(name)s here already that is not connected with the provider. Sign in to it by its "
        "password or a one-time link, and connect it on the account page."
    )
    if User.objects.filter(username__iexact=name).exists():  # Mara is not to pass for mara either
        raise PersonRefused(text % {"name": name})
    try:
        with transaction.atomic():
            user = User.objects.create_user(name)
            identity = Identity.objects.create(user=user, issuer=visitor.issuer, subject=visitor.subject)
    except IntegrityError as error:  # two at once
        raise PersonRefused(text % {"name": name}) from error
    after = {"issuer": visitor.issuer, "subject": visitor.subject}
    record(actor=user, verb="account.create", object_type="account", object_id=name, after=after)
    return identity


def _set_roles(user: User, groups: Collection[str], mapping: GroupMapping) -> None:
    """Give the roles of these groups and take back those of groups that are gone; what was given by hand stays."""
    roles = mapping.roles(groups)
    projects = {project.slug: project for project in Project.objects.filter(slug__in=mapping.projects)}
    for slug in sorted(set(roles) - set(projects)):
        log.warning("PITWALL_OIDC_GROUPS gives a role in %r, and there is no such project", slug)
    held = {member.project_id: member for member in Membership.objects.filter(user=user).select_related("project")}
    wanted = {projects[slug].pk: role for slug, role in roles.items() if slug in projects}
    led = {project.pk for project in only_admin_of(user)}
    for project in projects.values():
        member = held.get(project.pk)
        role = wanted.get(project.pk)
        if role is not None and member is None:
            Membership.objects.create(project=project, user=user, role=role, from_groups=True)
            _record_role(user, project, None, role)
        elif role is not None and member is not None and member.from_groups and member.role != role:
            Membership.objects.filter(pk=member.pk).update(role=role)
            _record_role(user, project, member.role, role)
    for member in held.values():
        if member.from_groups and member.project_id not in wanted:
            member.delete()
            _record_role(user, member.project, member.role, None)
    if lost := [
        m.project.slug
        for m in held.values()
        if m.project_id in led and m.from_groups and wanted.get(m.project_id) != "admin"
    ]:
        log.warning("The groups of %s left without an admin: %s", user.username, ", ".join(lost))


def _record_role(user: User, project: Project, before: str | None, after: str | None) -> None:
    record(
        actor=None,
        verb="member.set" if after else "member.remove",
        object_type="project",
        object_id=project.slug,
        before={"user": user.username, "role": before},
        after={"user": user.username, "role": after, "by": "groups of the provider"},
    )


def _set_superuser(identity: Identity, user: User, groups: Collection[str], mapping: GroupMapping) -> None:
    """Make or unmake a superuser by groups; one that was made by hand stays."""
    is_superuser = mapping.is_superuser(groups)
    if is_superuser == user.is_superuser or not (is_superuser or identity.made_superuser):
        return
    if not is_superuser and not User.objects.filter(is_superuser=True, is_active=True).exclude(pk=user.pk).exists():
        log.warning("The groups of %s left this console without a superuser", user.username)
    User.objects.filter(pk=user.pk).update(is_superuser=is_superuser)
    Identity.objects.filter(pk=identity.pk).update(made_superuser=is_superuser)
    user.is_superuser = is_superuser
    after = {"is_superuser": is_superuser, "by": "groups of the provider"}
    record(actor=None, verb="account.set_superuser", object_type="account", object_id=user.username, after=after)
