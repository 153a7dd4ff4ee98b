"""Who sends no whole headers is hung up on, at first and after an earlier request."""

import asyncio
from typing import Any

import pytest
import uvicorn

from console import http_protocol
from console.embedded.ports import free_block
from console.http_protocol import PatientForAWhile


async def _answer(_scope: Any, _receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@pytest.mark.parametrize("first", [b"", b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"], ids=["at first", "after a request"])
async def test_headers_that_do_not_come_end_the_connection(first: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "HEADER_SECONDS", 0.2)
    (port,) = free_block(1, seed="slow headers")
    config = uvicorn.Config(_answer, port=port, http=PatientForAWhile, lifespan="off", log_config=None)
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve())
    async with asyncio.timeout(60):
        while not server.started:
            await asyncio.sleep(0.01)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        if first:
            writer.write(first)
            assert await reader.readuntil(b"ok")
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\nx-slow: ")
        assert await reader.read() == b""
        writer.close()
        server.should_exit = True
        await serving
