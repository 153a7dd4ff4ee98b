"""A body that a view reads while it comes, instead of one that the server has written to disk before.

Django's handler spools every body to a temporary file and only then asks who sends it. An upload would be written
there, again as Django's uploaded file, and a third time to its place.
"""

import asyncio
import io
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import IO, Any, cast

from asgiref.sync import ThreadSensitiveContext
from django.core.handlers.asgi import ASGIHandler, ASGIRequest
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from console.middleware.request_threads import RequestThreads

Message = MutableMapping[str, Any]
KEY = "pitwall.body"
"""Where a scope carries one."""
_LOOK_UP_SECONDS = 0.2


class LiveBody(io.RawIOBase):
    """What comes by `receive`, read from another thread than the event loop's. Made in the event loop."""

    def __init__(self, receive: Callable[[], Awaitable[Message]]) -> None:
        self._receive = receive
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        self._rest = b""
        self._has_more = True
        self._is_gone = False
        self.when_interrupted: Callable[[], None] = lambda: None  # called by who reads, before it gets its OSError

    def readable(self) -> bool:
        """Return True."""
        return True

    def read(self, size: int | None = -1, /) -> bytes:
        """Return up to `size` bytes (all without one), b"" at the end. Raises: OSError if the client is gone."""
        if size is None or size < 0:
            return b"".join(iter(lambda: self.read(io.DEFAULT_BUFFER_SIZE), b""))
        while not self._rest and self._has_more:
            self._rest = self._wait_for_piece()
        piece, self._rest = self._rest[:size], self._rest[size:]
        return piece

    def abandon(self) -> None:
        """Let who reads it have no more: the process is about to end."""
        self._is_gone = True

    async def receive_after(self) -> Message:
        """Stand in for `receive` once Django's handler has been told that there is no body: wait for a disconnect."""
        await self._ended.wait()
        return {"type": "http.disconnect"} if self._is_gone else await self._receive()

    def _wait_for_piece(self) -> bytes:
        """Return what comes next. It looks up now and then: a request that is canceled does not tell its thread."""
        coming = asyncio.run_coroutine_threadsafe(self._next(), self._loop) if not self._is_gone else None
        while coming is not None and not self._is_gone:
            try:
                message = coming.result(_LOOK_UP_SECONDS)
            except TimeoutError:
                continue
            if message["type"] == "http.request":
                return bytes(message.get("body", b""))
        self.when_interrupted()
        raise OSError("The client is gone.")

    async def _next(self) -> Message:
        message = await self._receive()
        self._is_gone = message["type"] != "http.request"
        self._has_more = bool(message.get("more_body"))
        if not self._has_more:
            self._ended.set()
        return message


class LiveBodyHandler(ASGIHandler):
    """Django's handler, which takes the body of a request from its scope where that carries one, and answers requests
    in threads that live on.
    """

    def __init__(self) -> None:
        super().__init__()
        self._threads = RequestThreads()

    async def __call__(
        self,
        scope: dict[str, Any],
        receive: Callable[[], Awaitable[Mapping[str, Any]]],
        send: Callable[[Mapping[str, Any]], Awaitable[None]],
    ) -> None:
        """Answer a request."""
        with self._threads.lent() as thread:
            async with ThreadSensitiveContext(executor=thread):
                await self.handle(scope, receive, send)

    def create_request(
        self, scope: Mapping[str, Any], body_file: IO[bytes]
    ) -> tuple[ASGIRequest, None] | tuple[None, HttpResponseBase]:
        """Return the request, or the answer to one that is none."""
        live: LiveBody | None = scope.get(KEY)
        if live is None:
            return super().create_request(scope, body_file)
        made = super().create_request(scope, cast(IO[bytes], live))
        request = made[0]
        if request is not None:
            live.when_interrupted = lambda: _drop_uploads(request)
        return made


def _drop_uploads(request: HttpRequest) -> None:
    """Remove what came of a file so far: Django's parser leaves that to the garbage collector."""
    for handler in request.upload_handlers:
        handler.upload_interrupted()
