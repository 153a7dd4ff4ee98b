"""Where a request comes from, for the audit: kept beside whatever the request makes happen."""

import ipaddress
from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

from jobs.accounts.origin import MAX_USER_AGENT_CHARS, Origin, origin


class CallerAddressMiddleware:
    """Tells the audit address and program of the caller while a request is answered.

    It is the address of the connection; that of a header only where the server was told to believe the proxy which
    sends it (PITWALL_TRUSTED_PROXIES), since anybody can write such a header.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Answer the request with its address known."""
        agent = _plain(request.headers.get("User-Agent", ""))
        earlier = origin.set(Origin(way="session", ip=address_of(request), user_agent=agent))
        try:
            return self.get_response(request)
        finally:
            origin.reset(earlier)


def address_of(request: HttpRequest) -> str | None:
    """Return the caller's address as a database takes it, None for what is none: a unix socket, a proxy's nonsense."""
    try:
        address = ipaddress.ip_address(request.META.get("REMOTE_ADDR", ""))
    except ValueError:
        return None
    return str(getattr(address, "ipv4_mapped", None) or address).partition("%")[0]


def _plain(text: str) -> str:
    """Return a header's text as a database takes it."""
    return "".join(c if c.isprintable() else "?" for c in text[:MAX_USER_AGENT_CHARS])
