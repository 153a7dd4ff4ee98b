"""Bodies of requests: how long they may be, how slowly they may come, how many at once, and from whom.

Django would write all of a body to disk before anybody looks at who sends it. So it is asked here: more than
SMALL_BYTES is taken from somebody we know alone.
"""

import asyncio
import contextlib
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from django.conf import settings

from console.middleware.body_caller import caller_of
from console.middleware.live_body import KEY, LiveBody

Message = MutableMapping[str, Any]
UPLOADS = "/api/uploads"
ENVELOPE_BYTES = 1 << 20  # of a form around the uploaded file
SMALL_BYTES = 1 << 20
"""What anybody may send."""
LEAST_RATE = 16 << 10
"""Bytes a second that a body must come with, after the first seconds."""
_LINGER_SECONDS = 2.0
_LINGER_BYTES = 4 << 20


class BodyLimit:
    """Refuse a request whose body is too long (413), too slow (408), one too many (429), or of nobody we know (401).

    `who` returns what names the caller of a scope, None for a stranger.
    """

    def __init__(self, application: Any, who: Callable[[Any], Awaitable[str | None]] = caller_of) -> None:
        self.application = application
        self.who = who
        self.under_way: Counter[str] = Counter()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass the request on, watching its body."""
        body = _Body(self, scope, receive, send)
        try:
            if not await body.begin():
                return
            if _is_upload(scope):
                await self._follow(scope, LiveBody(body.receive), body.send)
            else:
                await self.application(scope, body.receive, body.send)
        finally:
            body.end()

    async def _follow(self, scope: Any, live: LiveBody, send: Any) -> None:
        """Let the application read the body while it comes, and no longer than this request is waited for."""
        answering = asyncio.ensure_future(self.application({**scope, KEY: live}, _without_body(live), send))
        try:
            await asyncio.shield(answering)
        except asyncio.CancelledError:
            live.abandon()
            answering.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await answering
            raise


class _Body:
    """The body of one request, and whether it has been refused."""

    def __init__(self, limit: BodyLimit, scope: Any, receive: Any, send: Any) -> None:
        self._limit, self._scope, self._receive, self._send = limit, scope, receive, send
        self._most = longest(scope)
        self._received = 0
        self._waited = 0.0  # seconds, for the client alone: how fast we read is not its fault
        self._is_whole = False
        self._is_refused = False
        self._has_answer = False
        self._hangs_up = False
        self._is_known = False
        self._counted: list[str] = []

    async def begin(self) -> bool:
        """Look at what the headers say; False if that was enough to refuse it."""
        declared = dict(self._scope["headers"]).get(b"content-length", b"0")
        if not declared.isdigit() or len(declared) > 18 or int(declared) > self._most:
            await self._refuse(413, _too_long(self._most))
        elif int(declared) > SMALL_BYTES:
            await self._ask_who()
        return not self._is_refused

    async def receive(self) -> Message:
        """Return the next message; a disconnect instead of a body that is refused."""
        if self._is_refused:
            return {"type": "http.disconnect"}
        if self._is_whole:
            message: Message = await self._receive()
            return message
        began = time.monotonic()
        left = settings.BODY_STALL_SECONDS + self._received / LEAST_RATE - self._waited
        try:
            async with asyncio.timeout(min(settings.BODY_STALL_SECONDS, left)):
                message = await self._receive()
        except TimeoutError:
            await self._refuse(408, "The body came too slowly. Send it again over a faster line.")
            return {"type": "http.disconnect"}
        self._waited += time.monotonic() - began
        await self._look_at(message)
        return {"type": "http.disconnect"} if self._is_refused else message

    async def send(self, message: Message) -> None:
        """Pass an answer on, unless the request has got one here."""
        if self._is_refused:
            return
        if message["type"] == "http.response.start" and not self._is_whole:  # answered before it was read
            self._hangs_up = True
            message = {**message, "headers": [*message.get("headers", []), (b"connection", b"close")]}
        self._has_answer = True
        if self._hangs_up and message["type"] == "http.response.body" and not message.get("more_body", False):
            await self._send({**message, "more_body": True})
            await self._linger()
            message = {"type": "http.response.body", "body": b""}
        await self._send(message)

    def end(self) -> None:
        """Count it no more."""
        self._limit.under_way.subtract(self._counted)
        for key in self._counted:
            if not self._limit.under_way[key]:
                del self._limit.under_way[key]
        self._counted.clear()

    async def _look_at(self, message: Message) -> None:
        self._received += len(message.get("body", b""))
        self._is_whole = not message.get("more_body", False)
        if self._received > self._most:  # it came in chunks, without a length
            await self._refuse(413, _too_long(self._most))
        elif self._received > SMALL_BYTES and not self._is_known:
            await self._ask_who()
        if self._is_whole:
            self.end()
        elif not self._is_refused and not self._counted:
            client = (self._scope.get("client") or ("nowhere",))[0]
            await self._count(f"address {client}", settings.BODIES_OF_ADDRESS)

    async def _ask_who(self) -> None:
        caller = await self._limit.who(self._scope)
        if caller is None:
            await self._refuse(
                401,
                f"More than {SMALL_BYTES >> 20} MiB is taken from people who are signed in and from runners alone. "
                "Sign in, or send a valid token as Authorization: Bearer <token>.",
            )
            return
        self._is_known = True
        await self._count(caller, settings.BODIES_OF_PERSON)

    async def _count(self, key: str, most: int) -> None:
        if self._limit.under_way[key] >= most:
            await self._refuse(429, f"{most} requests of yours are still being sent, the most at once. Wait for them.")
            return
        self._limit.under_way[key] += 1
        self._counted.append(key)

    async def _refuse(self, status: int, sentence: str) -> None:
        if self._is_refused:
            return
        self._is_refused = True
        if self._has_answer:
            return  # the client has its answer, and goes on sending
        headers, body = _refusal(self._scope["path"], status, sentence)
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        await self._send({"type": "http.response.body", "body": body, "more_body": True})
        if status != 408:
            await self._linger()
        await self._send({"type": "http.response.body", "body": b""})

    async def _linger(self) -> None:
        """Read on for a moment: where we hung up on a client that sends, its system would throw our answer away."""
        read = 0
        try:
            async with asyncio.timeout(_LINGER_SECONDS):
                while not self._is_whole and read < _LINGER_BYTES:
                    message = await self._receive()
                    read += len(message.get("body", b""))
                    self._is_whole = not message.get("more_body", False)
        except TimeoutError:
            pass


def _is_upload(scope: Any) -> bool:
    return scope["path"].rstrip("/") == UPLOADS and scope["method"] == "POST"


def longest(scope: Any) -> int:
    """Return how many bytes this request may have. Only an upload's body is read as it comes; others are spooled."""
    if _is_upload(scope):
        return int(settings.MAX_UPLOAD_BYTES) + ENVELOPE_BYTES
    return int(settings.DATA_UPLOAD_MAX_MEMORY_SIZE)


def _without_body(live: LiveBody) -> Callable[[], Awaitable[Message]]:
    """Return a `receive` that has no body at first, and then waits until the client of the live one is gone."""
    is_begun = False

    async def receive() -> Message:
        nonlocal is_begun
        if is_begun:
            return await live.receive_after()
        is_begun = True
        return {"type": "http.request", "body": b"", "more_body": False}

    return receive


def _too_long(most: int) -> str:
    return f"The request is longer than {most >> 20} MiB, the most this address takes. Send less."


def _refusal(path: str, status: int, sentence: str) -> tuple[list[tuple[bytes, bytes]], bytes]:
    problem: Any = sentence if path.startswith("/ingest/") else {"field": "", "message": sentence}
    body = json.dumps({"problems": [problem]}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
        (b"connection", b"close"),
    ]
    if status == 401:
        headers.append((b"www-authenticate", b'Bearer realm="pitwall"'))
    if status == 429:
        headers.append((b"retry-after", b"5"))
    return headers, body
