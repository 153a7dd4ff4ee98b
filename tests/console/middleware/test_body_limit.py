"""A body that is too long, too slow, one too many or of nobody we know is refused before it is written anywhere."""

import asyncio
import contextlib
import json
from typing import Any

import pytest

from console.middleware.body_limit import ENVELOPE_BYTES, SMALL_BYTES, BodyLimit, longest
from console.middleware.live_body import KEY

PIECE = b"x" * 1000
LONG = str(SMALL_BYTES + 1).encode()


class Server:
    """Speaks ASGI to a BodyLimit around an application that reads the body and answers 200."""

    def __init__(self, num_pieces: int, *, piece: bytes = PIECE, who: str | None = None) -> None:
        self.left = num_pieces
        self.piece = piece
        self.who = who
        self.num_read = 0
        self.num_asked = 0
        self.sent: list[dict[str, Any]] = []
        self.limit = BodyLimit(self._application, self._who)
        self.halt: asyncio.Event | None = None  # before the last piece

    async def ask(self, path: str, headers: list[tuple[bytes, bytes]], *, client: str = "1.2.3.4") -> int:
        scope = {"path": path, "headers": headers, "method": "POST", "client": (client, 1)}
        await self.limit(scope, self._receive, self._send)
        return int(self.sent[0]["status"])

    @property
    def problem(self) -> Any:
        return json.loads(b"".join(m.get("body", b"") for m in self.sent))["problems"][0]

    async def _who(self, _scope: Any) -> str | None:
        self.num_asked += 1
        return self.who

    async def _application(self, scope: Any, receive: Any, send: Any) -> None:
        if KEY in scope:
            assert (await receive())["more_body"] is False
            with contextlib.suppress(OSError):
                while piece := await asyncio.to_thread(scope[KEY].read, 65536):
                    self.num_read += len(piece)
        while KEY not in scope and (message := await receive())["type"] == "http.request":
            self.num_read += len(message["body"])
            if not message["more_body"]:
                break
        await send({"type": "http.response.start", "status": 200})

    async def _receive(self) -> dict[str, Any]:
        self.left -= 1
        if self.halt is not None and self.left <= 0:
            await self.halt.wait()
        return {"type": "http.request", "body": self.piece, "more_body": self.left > 0}

    async def _send(self, message: dict[str, Any]) -> None:
        self.sent.append(message)


@pytest.fixture
def small(settings: Any) -> None:
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 3000


@pytest.mark.usefixtures("small")
async def test_what_fits_goes_through_and_nobody_is_asked_for() -> None:
    server = Server(3)

    assert await server.ask("/api/runs", [(b"content-length", b"3000")]) == 200
    assert (server.num_read, server.num_asked) == (3000, 0)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("declared", [b"3001", b"9" * 400, b"-1", b"x"])
async def test_a_length_that_is_too_much_is_refused_unread(declared: bytes) -> None:
    server = Server(3)

    assert await server.ask("/signin", [(b"content-length", declared)]) == 413
    assert server.num_read == 0


@pytest.mark.usefixtures("small")
async def test_chunks_without_a_length_are_counted() -> None:
    server = Server(4)

    assert await server.ask("/ingest/r/1/events", []) == 413
    assert server.num_read <= 3000
    assert "longer than" in server.problem  # as runners read it


@pytest.mark.parametrize("headers", [[(b"content-length", LONG)], []], ids=["declared", "in chunks"])
@pytest.mark.parametrize("path", ["/api/uploads", "/api/runs", "/signin", "/ingest/r/1/files/a"])
async def test_a_stranger_sends_no_second_mebibyte(path: str, headers: list[tuple[bytes, bytes]]) -> None:
    server = Server(3, piece=b"x" * (SMALL_BYTES - 1))

    assert await server.ask(path, headers) == 401
    assert server.num_read <= SMALL_BYTES
    assert server.num_asked == 1
    assert (b"connection", b"close") in server.sent[0]["headers"]


@pytest.mark.parametrize("path", ["/api/uploads", "/api/runs"])
async def test_somebody_we_know_sends_more_and_is_asked_for_once(path: str) -> None:
    server = Server(3, piece=b"x" * SMALL_BYTES, who="person 1")

    assert await server.ask(path, []) == 200
    assert (server.num_read, server.num_asked) == (3 * SMALL_BYTES, 1)


async def test_a_body_that_stalls_is_ended(settings: Any) -> None:
    settings.BODY_STALL_SECONDS = 0.05
    server = Server(2)
    server.halt = asyncio.Event()

    assert await server.ask("/api/runs", []) == 408
    assert "too slowly" in server.problem["message"]
    assert not server.limit.under_way


async def test_a_body_that_drips_is_ended_too(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.BODY_STALL_SECONDS = 0.2
    monkeypatch.setattr("console.middleware.body_limit.LEAST_RATE", 10_000)  # a piece in 0.1 s, as it comes in 0.15
    server = Server(1000, piece=b"x" * 100)
    halt = server._receive

    async def slowly() -> dict[str, Any]:
        await asyncio.sleep(0.15)
        return await halt()

    server._receive = slowly  # type: ignore[method-assign]
    assert await server.ask("/api/runs", []) == 408
    assert server.left > 990


@pytest.mark.parametrize(
    ("who", "headers", "setting"),
    [(None, [], "BODIES_OF_ADDRESS"), ("person 1", [(b"content-length", LONG)], "BODIES_OF_PERSON")],
    ids=["of an address", "of a person"],
)
async def test_so_many_bodies_at_once(
    settings: Any, who: str | None, headers: list[tuple[bytes, bytes]], setting: str
) -> None:
    setattr(settings, setting, 2)
    first, second, third = (Server(2, who=who) for _ in range(3))
    other = Server(2, who="person 2" if who else None)
    for server in (second, third, other):
        server.limit.under_way = first.limit.under_way  # as in one process
    first.halt = second.halt = asyncio.Event()
    under_way = [asyncio.create_task(server.ask("/api/runs", headers)) for server in (first, second)]
    async with asyncio.timeout(20):
        while sum(first.limit.under_way.values()) < 2:
            await asyncio.sleep(0)

    assert await third.ask("/api/runs", headers) == 429
    assert (b"retry-after", b"5") in third.sent[0]["headers"]
    assert await other.ask("/api/runs", headers, client="5.6.7.8") == 200

    first.halt.set()
    await asyncio.gather(*under_way)
    assert not first.limit.under_way


def test_only_uploads_may_be_as_long_as_an_upload(settings: Any) -> None:
    def most(path: str, method: str) -> int:
        return longest({"path": path, "method": method})

    assert most("/api/uploads", "POST") == most("/api/uploads/", "POST") == settings.MAX_UPLOAD_BYTES + ENVELOPE_BYTES
    for path, method in (
        ("/api/uploadsx", "POST"),
        ("//api/uploads", "POST"),
        ("/api/uploads", "GET"),  # whose body Django would write to disk before it is refused, whatever is free there
        ("/api/uploads/", "PUT"),
    ):
        assert most(path, method) == settings.DATA_UPLOAD_MAX_MEMORY_SIZE
