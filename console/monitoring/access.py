"""Who may scrape, and how much: the operator's own token everything, an API token what its person may see."""

import hmac

from django.conf import settings
from django.http import HttpRequest

from console.api.account.auth import TokenAuth
from console.monitoring.families import Scope
from jobs.accounts.access import NotAllowed, projects_of, require_superuser


def scope_of(request: HttpRequest) -> Scope | None:
    """Return how much the request's Bearer token may see; None where there is none, or none that is valid.

    A session opens nothing here: what people look at is on the pages. Raises: RequestProblem for an API token that has
    expired.
    """
    kind, _, token = request.headers.get("Authorization", "").partition(" ")
    if kind.lower() != "bearer" or not token:
        return None
    if settings.METRICS_TOKEN and hmac.compare_digest(token.encode(), settings.METRICS_TOKEN.encode()):
        return Scope(projects=None, is_operator=True)
    user = TokenAuth().authenticate(request, token)
    if user is None:
        return None
    try:
        require_superuser(user)
        is_operator = True
    except NotAllowed:
        is_operator = False
    return Scope(projects=tuple(_keys(user)), is_operator=is_operator)


def _keys(user: object) -> list[int]:
    return list(projects_of(user).values_list("pk", flat=True))  # type: ignore[arg-type]
