"""A request that is too long is refused before it is written anywhere."""

from typing import Any

import pytest

from console.middleware.body_limit import ENVELOPE_BYTES, BodyLimit, longest

PIECE = b"x" * 1000


class Server:
    """Speaks ASGI to a BodyLimit around an application that reads the body and answers 200."""

    def __init__(self, num_pieces: int) -> None:
        self.left = num_pieces
        self.num_read = 0
        self.sent: list[dict[str, Any]] = []

    async def ask(self, path: str, headers: list[tuple[bytes, bytes]]) -> int:
        await BodyLimit(self._application)({"path": path, "headers": headers}, self._receive, self._send)
        return int(self.sent[0]["status"])

    async def _application(self, _scope: Any, receive: Any, send: Any) -> None:
        while (message := await receive())["type"] == "http.request":
            self.num_read += len(message["body"])
            if not message["more_body"]:
                break
        await send({"type": "http.response.start", "status": 200})

    async def _receive(self) -> dict[str, Any]:
        self.left -= 1
        return {"type": "http.request", "body": PIECE, "more_body": self.left > 0}

    async def _send(self, message: dict[str, Any]) -> None:
        self.sent.append(message)


@pytest.fixture(autouse=True)
def small(settings: Any) -> None:
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 3000


async def test_what_fits_goes_through() -> None:
    server = Server(3)

    assert await server.ask("/api/runs", [(b"content-length", b"3000")]) == 200
    assert server.num_read == 3000


@pytest.mark.parametrize("declared", [b"3001", b"9" * 400, b"-1", b"x"])
async def test_a_length_that_is_too_much_is_refused_unread(declared: bytes) -> None:
    server = Server(3)

    assert await server.ask("/signin", [(b"content-length", declared)]) == 413
    assert server.num_read == 0


async def test_chunks_without_a_length_are_counted() -> None:
    server = Server(10**6)

    assert await server.ask("/ingest/r/1/events", []) == 413
    assert server.num_read <= 3000
    assert [m["type"] for m in server.sent] == ["http.response.start", "http.response.body"]
    assert b"longer than" in server.sent[1]["body"]


def test_only_uploads_may_be_as_long_as_an_upload(settings: Any) -> None:
    assert longest("/api/uploads") == settings.MAX_UPLOAD_BYTES + ENVELOPE_BYTES
    assert longest("/api/uploadsx") == 3000
