"""An address that is there without its trailing slash is meant: `/runs/` leads to `/runs`.

Django's own middleware does the other way round. Only what is read is led on: a POST to a wrong address stays wrong.
"""

from collections.abc import Callable

from django.http import HttpRequest, HttpResponsePermanentRedirect
from django.http.response import HttpResponseBase
from django.urls import Resolver404, resolve
from django.utils.http import escape_leading_slashes


class TrailingSlashMiddleware:
    """Redirect GET and HEAD of addresses that nothing answers, where something answers without the slash."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """Lead on, or let the request through."""
        bare = request.path_info.rstrip("/")
        is_odd = request.method in ("GET", "HEAD") and bare and bare != request.path_info
        if not is_odd or _answers(request.path_info) or not _answers(bare):
            return self.get_response(request)
        query = request.META.get("QUERY_STRING", "")
        to = escape_leading_slashes(request.path.rstrip("/"))
        return HttpResponsePermanentRedirect(f"{to}?{query}" if query else to)


def _answers(path: str) -> bool:
    try:
        return resolve(path).url_name != "unknown-address"  # the API's, which says so of any address
    except Resolver404:
        return False
