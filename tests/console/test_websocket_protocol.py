"""Frames that are written as they stand, on a real server: in order with what is sent, and never into a full line."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from console.websocket_protocol import WRITER, WritesFrames, text_frame

pytestmark = pytest.mark.asyncio
Application = Callable[[Any, Any, Any], Awaitable[None]]


@asynccontextmanager
async def served(application: Application) -> Any:
    """Serve an application; give its address."""
    server = uvicorn.Server(
        uvicorn.Config(
            application,
            port=0,
            ws=WritesFrames,
            ws_per_message_deflate=False,
            lifespan="off",
            log_config=None,
            timeout_graceful_shutdown=1,
        )
    )
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    host, port = server.servers[0].sockets[0].getsockname()[:2]
    yield f"ws://{host}:{port}/"
    server.should_exit = True
    await serving


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65535, 65536, 300_000])
async def test_a_text_of_any_length_arrives_as_it_is(size: int) -> None:
    text = ("ä" + "x" * size)[:size]

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        assert not scope["extensions"][WRITER](text_frame(b"too early"))
        await send({"type": "websocket.accept"})
        assert scope["extensions"][WRITER](text_frame(text.encode()))
        await send({"type": "websocket.send", "text": "sent"})

    async with served(application) as url, connect(url) as client:
        assert [await client.recv(), await client.recv()] == [text, "sent"]


async def test_a_client_that_does_not_read_is_not_written_to_until_it_does() -> None:
    refused = asyncio.Event()
    written = 0

    async def application(scope: Any, receive: Any, send: Any) -> None:
        nonlocal written
        await receive()
        await send({"type": "websocket.accept"})
        while scope["extensions"][WRITER](text_frame(f"{written:<50000}".encode())):
            written += 1
            await asyncio.sleep(0)
        refused.set()
        await send({"type": "websocket.send", "text": "last"})

    async with served(application) as url, connect(url, max_queue=1) as client:
        await refused.wait()
        got = [await client.recv() for _ in range(written + 1)]

    assert 0 < written < 1000
    assert [int(text) for text in got[:-1]] == list(range(written))
    assert got[-1] == "last"


async def test_nothing_is_written_to_who_has_gone() -> None:
    after = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        assert (await receive())["type"] == "websocket.disconnect"
        after.append(scope["extensions"][WRITER](text_frame(b"x")))

    async with served(application) as url, connect(url):
        pass

    assert after == [False]


async def test_nothing_is_written_after_it_was_closed_here() -> None:
    after = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.close", "code": 4401})
        after.append(scope["extensions"][WRITER](text_frame(b"x")))

    async with served(application) as url, connect(url) as client:
        with pytest.raises(ConnectionClosed) as closed:
            await client.recv()

    assert closed.value.rcvd is not None
    assert (closed.value.rcvd.code, after) == (4401, [False])
