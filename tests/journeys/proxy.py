"""A stand-in for the proxy of docker-compose.yml: each request to the next web process that answers."""

import asyncio
import contextlib
import threading
from collections import Counter
from collections.abc import Sequence

_ENDS = b"\r\n\r\n"


class Proxy:
    """Listens in a thread of its own. `taken` counts requests by web process."""

    def __init__(self, address: str, port: int, backends: Sequence[tuple[str, int]]) -> None:
        self.backends = list(backends)
        self.taken: Counter[str] = Counter()
        self._where = (address, port)
        self._turn = 0
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)

    def __enter__(self) -> "Proxy":
        self._thread.start()
        assert self._ready.wait(10), "the proxy did not start"
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(asyncio.start_server(self._answer, *self._where, limit=1 << 20))
        self._ready.set()
        self._loop.run_forever()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = await reader.readuntil(_ENDS)
            lines = head.removesuffix(_ENDS).split(b"\r\n")
            length = next((int(x.split(b":")[1]) for x in lines if x.lower().startswith(b"content-length:")), 0)
            kept = [line for line in lines if not line.lower().startswith(b"connection:")]
            client = writer.get_extra_info("peername")[0].encode()
            asked = b"\r\n".join([*kept, b"Connection: close", b"X-Forwarded-For: " + client]) + _ENDS
            asked += await reader.readexactly(length)
            answer, to_web = await self._connect()
            to_web.write(asked)
            await to_web.drain()
            while block := await answer.read(1 << 16):
                writer.write(block)
                await writer.drain()
            to_web.close()
        writer.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Return a connection to the next web process; one that is away is passed over."""
        problem: OSError = ConnectionRefusedError()
        for _ in self.backends:
            self._turn += 1
            host, port = self.backends[self._turn % len(self.backends)]
            try:
                found = await asyncio.open_connection(host, port)
            except OSError as error:
                problem = error
                continue
            self.taken[host] += 1
            return found
        raise problem
