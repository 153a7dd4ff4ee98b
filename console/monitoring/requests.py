"""What this web process counts of its own requests and websockets, from the first byte asked to the last one sent."""

import time
from collections.abc import MutableMapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.process_collector import ProcessCollector

Message = MutableMapping[str, Any]
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")
OTHER = "other"
CLOSED = "closed"  # in place of a status: who asked has gone before there was an answer
_CLASSES = ("api", "ingest", "static", "perfetto", "metrics", "signin")
_FOLLOWED = ("runs", "traces", "updates")
_HEALTH = ("healthz", "readyz")
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

OWN = CollectorRegistry()
"""The counters of this very process; `console.monitoring.families` puts its name on them."""

ProcessCollector(registry=OWN)
REQUESTS = Counter(
    "pitwall_http_requests", "Requests answered, by class of address.", ("route", "method", "status"), registry=OWN
)
SECONDS = Histogram(
    "pitwall_http_request_seconds",
    "Time from a request to the last byte of its answer, by class of address.",
    ("route",),
    buckets=_SECONDS,
    registry=OWN,
)
UNDER_WAY = Gauge("pitwall_http_requests_under_way", "Requests that are being answered.", registry=OWN)
SOCKETS = Gauge("pitwall_websockets_open", "Open websockets, by what they follow.", ("route",), registry=OWN)
SOCKETS_OPENED = Counter("pitwall_websockets_opened", "Websockets accepted.", ("route",), registry=OWN)
for _followed in _FOLLOWED:  # at 0 before there is one
    SOCKETS.labels(_followed)
    SOCKETS_OPENED.labels(_followed)


class CountRequests:
    """Counts what passes; changes nothing of it."""

    def __init__(self, application: Any) -> None:
        self.application = application

    async def __call__(self, scope: Any, receive: Any, send: Any) -> Any:
        """Pass the request or the connection on."""
        if scope["type"] == "websocket":
            return await self._websocket(scope, receive, send)
        return await self._request(scope, receive, send)

    async def _request(self, scope: Any, receive: Any, send: Any) -> Any:
        status = CLOSED

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = str(message["status"])
            await send(message)

        began = time.perf_counter()
        UNDER_WAY.inc()
        try:
            return await self.application(scope, receive, noted)
        finally:
            UNDER_WAY.dec()
            route = route_class(scope["path"])
            REQUESTS.labels(route, scope["method"] if scope["method"] in METHODS else OTHER, status).inc()
            SECONDS.labels(route).observe(time.perf_counter() - began)

    async def _websocket(self, scope: Any, receive: Any, send: Any) -> Any:
        route = socket_class(scope["path"])
        is_open = False

        async def noted(message: Message) -> None:
            nonlocal is_open
            if message["type"] == "websocket.accept":
                is_open = True
                SOCKETS.labels(route).inc()
                SOCKETS_OPENED.labels(route).inc()
            await send(message)

        try:
            return await self.application(scope, receive, noted)
        finally:
            if is_open:
                SOCKETS.labels(route).dec()


def route_class(path: str) -> str:
    """Return what kind of address it is: one of a handful, whatever people ask for."""
    first = path.lstrip("/").partition("/")[0]
    if first in _HEALTH:
        return "health"
    return first if first in _CLASSES else "page"


def socket_class(path: str) -> str:
    """Return what a websocket follows: runs, traces or updates."""
    second = path.removeprefix("/ws/").partition("/")[0]
    return second if second in _FOLLOWED else OTHER
