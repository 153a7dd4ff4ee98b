"""Sign-ins, failed ones and sign-outs in the audit, by whichever way: Django says so by signals.

What somebody typed as a name is kept only where it is an account's: passwords get typed into that field, too. Attempts
on a name that is locked already leave no row: nobody's password is looked at then, and rows are for ever.
"""

from datetime import timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser, User
from django.contrib.auth.signals import user_logged_in, user_logged_out, user_login_failed
from django.dispatch import receiver
from django.http import HttpRequest

from console.sign_in.link import owner_of
from jobs.accounts.audit import record
from jobs.accounts.origin import Way
from jobs.catalog.value import is_storable


@receiver(user_logged_in)
def keep_sign_in(request: HttpRequest, user: AbstractBaseUser, **_: Any) -> None:
    """Keep that somebody signed in, and how; a session that no request asked for (in tests) is no sign-in."""
    if request.resolver_match is not None:
        way = _way(request)
        _keep(f"signin.{way}", user.get_username(), actor=user, way=way)


@receiver(user_login_failed)
def keep_failure(credentials: dict[str, Any], request: HttpRequest | None = None, **_: Any) -> None:
    """Keep that somebody was not let in; `signin.locked` for the attempt that locks the name for its address (axes)."""
    is_locked = getattr(request, "axes_locked_out", False)
    if is_locked and getattr(request, "axes_failures_since_start", 0) != settings.AXES_FAILURE_LIMIT:
        return
    typed = str(credentials.get("username") or "")
    name = _account(typed)
    after = {"by": "password", "name": "of an account" if name else "of no account"}
    _keep("signin.locked" if is_locked else "signin.failed", name, after=after)


@receiver(user_logged_out)
def keep_sign_out(request: HttpRequest, user: AbstractBaseUser | None, **_: Any) -> None:
    """Keep that somebody signed out."""
    if user is not None and request.resolver_match is not None:
        _keep("signout", user.get_username(), actor=user)


def keep_refused_link(token: str, why: str) -> None:
    """Keep that a one-time link was refused, unless nobody knows it: such a guess is about no account."""
    if name := owner_of(token):
        _keep("signin.failed", name, after={"by": "link", "why": why})


def keep_link(user: AbstractBaseUser, *, lifetime: timedelta, actor: AbstractBaseUser | None = None) -> None:
    """Keep that a link was made which signs `user` in; nothing of the link itself."""
    _keep("link.create", user.get_username(), actor=actor, after={"hours": lifetime / timedelta(hours=1)})


def _keep(
    verb: str, name: str, *, actor: AbstractBaseUser | None = None, after: Any = None, way: Way | None = None
) -> None:
    about = {"object_type": "account", "object_id": name, "after": after}
    record(actor=actor, verb=verb, way=way, **about)


def _way(request: HttpRequest) -> Way:
    by = (request.resolver_match.url_name if request.resolver_match else "") or ""
    if by in ("signin", "signin-link"):
        return "password" if by == "signin" else "link"
    return "oidc" if "oidc" in by else "session"


def _account(typed: str) -> str:
    """Return the account's name that this is, "" for none."""
    name = User.normalize_username(typed)
    return name if is_storable(name) and User.objects.filter(username=name).exists() else ""
