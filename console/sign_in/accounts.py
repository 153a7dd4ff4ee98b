"""New accounts, made by whoever runs the console: without a password, signed in by a one-time link."""

from datetime import datetime, timedelta

from django.contrib.auth.models import AbstractBaseUser, User
from django.contrib.auth.validators import UnicodeUsernameValidator
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.utils.translation import gettext as _

from console.sign_in.link import make_link
from console.sign_in.trail import keep_link
from jobs.accounts.audit import record
from jobs.accounts.people import drop_links, find_person

MAX_NAME_CHARS = 150
LINK_LIFETIME = timedelta(hours=24)  # it is handed over to somebody else


class AccountRefused(ValueError):
    """No account of that name is made; the text says why."""


def make_account(*, username: str, base_url: str, actor: AbstractBaseUser, now: datetime) -> str:
    """Make an account that is a member of nothing and return a link that signs in to it, once. Raises: AccountRefused.

    The caller has checked that the actor may.
    """
    name = username.strip()
    try:
        UnicodeUsernameValidator()(name)
        is_name = len(name) <= MAX_NAME_CHARS
    except ValidationError:
        is_name = False
    if not is_name:
        text = _("%(given)r is not a user name. Use 1 to %(most)s letters, digits and @ . + - _.")
        raise AccountRefused(text % {"given": name[:200], "most": MAX_NAME_CHARS})
    try:
        with transaction.atomic():
            user = User.objects.create_user(name)
            after = {"sign_in_link_hours": LINK_LIFETIME // timedelta(hours=1)}
            record(
                actor=actor,
                verb="account.create",
                object_type="account",
                object_id=name,
                after=after,
            )
            return make_link(user=user, base_url=base_url, now=now, lifetime=LINK_LIFETIME)
    except IntegrityError as error:
        raise AccountRefused(_("There is an account %(name)r already.") % {"name": name}) from error


def renew_link(*, username: str, base_url: str, actor: AbstractBaseUser, now: datetime) -> str:
    """Return another first link of an account that nobody has signed in to yet; earlier ones are void.

    Of any other account it would be a way into what is not the actor's. Raises: AccountRefused; PersonRefused if there
    is no such account. The caller has checked that the actor may.
    """
    with transaction.atomic():
        user = find_person(username)
        if user.last_login is not None or not user.is_active or user.has_usable_password():
            text = _(
                "%(name)s has signed in before, or is not active. On the machine that runs the console, "
                "manage.py signin-link %(name)s prints a link."
            )
            raise AccountRefused(text % {"name": user.username})
        drop_links(user)
        keep_link(user, lifetime=LINK_LIFETIME, actor=actor)
        return make_link(user=user, base_url=base_url, now=now, lifetime=LINK_LIFETIME)
