"""Where a request came from, for the audit: kept beside whatever the request makes happen."""

import ipaddress
from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

from jobs.accounts.audit import caller_ip


class CallerAddressMiddleware:
    """Tells `jobs.accounts.audit` the address of the caller while a request is answered.

    It is the address of the connection; that of a header only where the server was told to believe the proxy which
    sends it (PITWALL_TRUSTED_PROXIES), since anybody can write such a header.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Answer the request with its address known."""
        earlier = caller_ip.set(address_of(request))
        try:
            return self.get_response(request)
        finally:
            caller_ip.reset(earlier)


def address_of(request: HttpRequest) -> str | None:
    """Return the caller's address as a database takes it, None for what is none: a unix socket, a proxy's nonsense."""
    try:
        address = ipaddress.ip_address(request.META.get("REMOTE_ADDR", ""))
    except ValueError:
        return None
    return str(getattr(address, "ipv4_mapped", None) or address).partition("%")[0]
