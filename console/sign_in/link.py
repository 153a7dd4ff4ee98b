"""One-time sign-in links: made on the machine itself, used once, short-lived; only their hash is kept."""

import hashlib
import secrets
from datetime import datetime, timedelta

from django.contrib.auth.models import AbstractBaseUser, User
from django.urls import reverse
from django.utils.translation import gettext as _

from jobs.models import SigninLink

LIFETIME = timedelta(hours=1)


class LinkUnusable(ValueError):
    """The link signs nobody in; the text is a sentence that says why."""


def make_link(*, user: AbstractBaseUser, base_url: str, now: datetime, lifetime: timedelta = LIFETIME) -> str:
    """Return a fresh address that signs `user` in once, until `now + lifetime`."""
    token = secrets.token_urlsafe(32)
    SigninLink.objects.create(user_id=user.pk, sha256=_hash(token), expires_at=now + lifetime)
    return base_url.rstrip("/") + reverse("signin-link", args=[token])


def whose_link(*, token: str, now: datetime) -> User:
    """Return whom the link would sign in, and change nothing.

    Raises: LinkUnusable if it is unknown, used, expired, or its owner is inactive.
    """
    return _usable(token, now)[1]


def use_link(*, token: str, now: datetime) -> User:
    """Return whom the link signs in, and use it up. Raises: LinkUnusable, as `whose_link`."""
    link, user = _usable(token, now)
    # A filtered update that must hit one row: of two clicks at once, one signs in.
    if SigninLink.objects.filter(pk=link.pk, used_at=None).update(used_at=now) != 1:
        raise LinkUnusable(_used())
    return user


def _usable(token: str, now: datetime) -> tuple[SigninLink, User]:
    link = SigninLink.objects.select_related("user").filter(sha256=_hash(token)).first()
    if link is None:
        raise LinkUnusable(_("This sign-in link is not known here. Part of it may be missing, or it was canceled."))
    if link.used_at is not None:
        raise LinkUnusable(_used())
    if link.expires_at <= now:
        raise LinkUnusable(_("This sign-in link has expired."))
    user = link.user
    if not isinstance(user, User) or not user.is_active:
        raise LinkUnusable(_("The account of this sign-in link is no longer active."))
    return link, user


def _used() -> str:
    return _("This sign-in link was used before; each works once.")


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def owner_of(token: str) -> str:
    """Return whose link this is or was, "" if it is not known."""
    name = SigninLink.objects.filter(sha256=_hash(token)).values_list("user__username", flat=True).first()
    return name or ""
