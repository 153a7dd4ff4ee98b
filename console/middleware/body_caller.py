"""Who sends a body, asked before it is read: one look-up by the token, or by the session's cookie."""

from importlib import import_module
from typing import Any

from channels.db import database_sync_to_async
from django.conf import settings
from django.contrib.auth import get_user
from django.db.models import Q
from django.http import HttpRequest, parse_cookie
from django.utils import timezone

from console.sign_in.api_token import token_hash
from jobs.models import ApiToken
from jobs.runs.launch import check_ingest_token

_LONGEST_NUMBER = 9


async def caller_of(scope: Any) -> str | None:
    """Return what names the caller of an HTTP request, a person or a runner's attempt; None for nobody we know.

    What the caller may do is asked by the views: here it is only whether to take a long body at all.
    """
    headers = dict(scope["headers"])
    scheme, _, token = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
    token = token.strip() if scheme.lower() == "bearer" else ""
    if scope["path"].startswith("/ingest/"):
        return _runner_of(scope["path"], token)
    person = await database_sync_to_async(_person_of, thread_sensitive=False)(token, _session_key(headers))
    return None if person is None else f"person {person}"


def _runner_of(path: str, token: str) -> str | None:
    _, _, run, number, *_rest = [*path.split("/"), "", ""]
    if not (number.isascii() and number.isdigit()) or len(number) > _LONGEST_NUMBER:
        return None
    return f"attempt {run}/{number}" if check_ingest_token(run, int(number), token) else None


def _session_key(headers: dict[bytes, bytes]) -> str:
    cookies = parse_cookie(headers.get(b"cookie", b"").decode("latin-1"))
    return str(cookies.get(settings.SESSION_COOKIE_NAME, ""))


def _person_of(token: str, session_key: str) -> int | None:
    if token:
        lives = Q(expires_at=None) | Q(expires_at__gt=timezone.now())
        tokens = ApiToken.objects.filter(lives, sha256=token_hash(token), revoked_at=None, user__is_active=True)
        person = tokens.values_list("user_id", flat=True).first()
        if person is not None:
            return int(person)
    if not session_key:
        return None
    request = HttpRequest()
    request.session = import_module(settings.SESSION_ENGINE).SessionStore(session_key)
    user = get_user(request)
    return user.pk if user.is_authenticated else None
