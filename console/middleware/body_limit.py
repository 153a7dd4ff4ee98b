"""No request is longer than what its address takes: Django would write all of it to disk before anybody looks at it."""

import json
from collections.abc import MutableMapping
from typing import Any

from django.conf import settings

Message = MutableMapping[str, Any]
UPLOADS = "/api/uploads"
ENVELOPE_BYTES = 1 << 20  # of a form around the uploaded file


class BodyLimit:
    """Answer 413 to a request that says it is too long, or turns out to be."""

    def __init__(self, application: Any) -> None:
        self.application = application

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass the request on, counting its bytes."""
        most = longest(scope["path"])
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        if not declared.isdigit() or len(declared) > 18 or int(declared) > most:
            await _refuse(scope, send, most)
            return
        received = 0
        is_refused = False

        async def counted() -> Message:
            nonlocal received, is_refused
            message: Message = await receive()
            received += len(message.get("body", b""))
            if received > most and not is_refused:  # it came in chunks, without a length
                is_refused = True
                await _refuse(scope, send, most)
            return {"type": "http.disconnect"} if is_refused else message

        async def once(message: Message) -> None:
            if not is_refused:
                await send(message)

        await self.application(scope, counted, once)


def longest(path: str) -> int:
    """Return how many bytes a request to this address may have."""
    if path.rstrip("/") == UPLOADS:
        return int(settings.MAX_UPLOAD_BYTES) + ENVELOPE_BYTES
    return int(settings.DATA_UPLOAD_MAX_MEMORY_SIZE)


async def _refuse(scope: Any, send: Any, most: int) -> None:
    sentence = f"The request is longer than {most >> 20} MiB, the most this address takes. Send less."
    problem: Any = sentence if scope["path"].startswith("/ingest/") else {"field": "", "message": sentence}
    body = json.dumps({"problems": [problem]}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 413, "headers": [*headers, (b"connection", b"close")]})
    await send({"type": "http.response.body", "body": body})
