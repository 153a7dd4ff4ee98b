"""Websockets are for our own pages alone: browsers send cookies along wherever the page that opens one comes from."""

from typing import Any
from urllib.parse import urlsplit

from channels.security.websocket import WebsocketDenier
from django.conf import settings


class OwnOriginOnly:
    """Refuse a websocket whose Origin is not the address it was opened at, port included, nor a trusted one.

    The same rule by which Django takes forms. The host name alone will not do: another program on this machine, at
    another port, has the same name and is sent the same cookies.
    """

    def __init__(self, application: Any) -> None:
        self.application = application

    async def __call__(self, scope: Any, receive: Any, send: Any) -> Any:
        """Pass the connection on, or deny it."""
        headers = dict(scope["headers"])
        origin, host = (headers.get(name, b"").decode("latin-1") for name in (b"origin", b"host"))
        if is_own(origin, host=host):
            return await self.application(scope, receive, send)
        return await WebsocketDenier()(scope, receive, send)


def is_own(origin: str, *, host: str) -> bool:
    """Return True if a page of `origin` ("https://name:port") may talk to the console that answers as `host`."""
    if origin in settings.CSRF_TRUSTED_ORIGINS:
        return True
    parts = urlsplit(origin)
    return parts.scheme in ("http", "https") and bool(host) and parts.netloc.lower() == host.lower()
