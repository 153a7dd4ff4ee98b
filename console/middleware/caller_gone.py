"""Whether who asked is still there: long work looks now and then, and stops when nobody waits for it."""

import threading
from collections.abc import MutableMapping
from typing import Any

from django.http import HttpRequest

_KEY = "pitwall.gone"


class CallerGone(Exception):
    """Nobody waits for the answer any more."""


class WatchCaller:
    """Note on the scope of a request that its client has hung up, as soon as Django's handler is told."""

    def __init__(self, application: Any) -> None:
        self.application = application

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass the request on."""
        gone = threading.Event()

        async def watched() -> MutableMapping[str, Any]:
            message: MutableMapping[str, Any] = await receive()
            if message["type"] == "http.disconnect":
                gone.set()
            return message

        await self.application({**scope, _KEY: gone}, watched, send)


def check_caller(request: HttpRequest) -> None:
    """Raise CallerGone if the client has hung up. From any thread; a request without a connection is never alone."""
    gone = getattr(request, "scope", {}).get(_KEY)
    if gone is not None and gone.is_set():
        raise CallerGone
