"""Who is calling: a Bearer token of a person, or the browser's session with its CSRF token."""

from dataclasses import replace
from typing import Any

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.http import HttpRequest
from django.utils import timezone
from django.utils.translation import gettext as _
from ninja.security import APIKeyCookie, HttpBearer

from console.api.problem import RequestProblem
from console.sign_in.api_token import limits_of_token, token_hash, token_label
from jobs.accounts.access import limit
from jobs.accounts.origin import origin
from jobs.models import ApiToken

_SEEN_EVERY_SECONDS = 60  # a token's last use is kept to the minute, not written on each call


class TokenAuth(HttpBearer):
    """`Authorization: Bearer <token>` of an account's API token."""

    def authenticate(self, request: HttpRequest, token: str) -> Any:
        """Return the token's owner, narrowed to what the token may do; None if it is unknown, revoked, or the owner
        inactive. Raises: RequestProblem for one that has expired: who holds it may know why it does not work any more.
        """
        api_token = ApiToken.objects.select_related("user").filter(sha256=token_hash(token), revoked_at=None).first()
        if api_token is None or not api_token.user.is_active:
            return None
        now = timezone.now()
        if api_token.expires_at is not None and api_token.expires_at <= now:
            text = _("This API token expired on %(day)s. Create a new one on the account page.")
            raise RequestProblem(401, text % {"day": api_token.expires_at.date().isoformat()})
        if api_token.used_at is None or (now - api_token.used_at).total_seconds() > _SEEN_EVERY_SECONDS:
            ApiToken.objects.filter(pk=api_token.pk).update(used_at=now)
        limit(api_token.user, limits_of_token(api_token))
        shown = token_label(api_token)
        origin.set(replace(origin.get(), way="token", token_id=api_token.pk, token=shown))  # the middleware resets it
        request.user = api_token.user
        return api_token.user


class SessionAuth(APIKeyCookie):
    """The session of a signed-in browser; writing needs the CSRF token."""

    param_name = settings.SESSION_COOKIE_NAME

    def __call__(self, request: HttpRequest) -> AbstractBaseUser | None:
        """Return the person signed in; CSRF is checked only for who has a session, so that others get a plain 401."""
        if not request.user.is_authenticated:
            return None
        return super().__call__(request)

    def authenticate(self, request: HttpRequest, key: str | None) -> Any:  # noqa: ARG002 - Django has read the cookie
        """Return the session's person."""
        return request.user if request.user.is_authenticated else None
