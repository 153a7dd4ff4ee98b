"""The line between runners and the console: a TCP forwarder that can be cut, and drops what is on its way."""

import asyncio
import contextlib
import threading


class Line:
    """Forwards 127.0.0.1:`port` to 127.0.0.1:`to`, in a thread of its own, until it is closed."""

    def __init__(self, *, port: int, to: int) -> None:
        self._port, self._to = port, to
        self._is_cut = False
        self._writers: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="line", daemon=True)
        self._thread.start()
        assert self._ready.wait(10), "the line did not start"

    def cut(self) -> None:
        """Drop every connection, whatever is on it, and take no new one."""
        self._is_cut = True
        self._loop.call_soon_threadsafe(self._drop)

    def mend(self) -> None:
        """Take connections again."""
        self._is_cut = False

    def close(self) -> None:
        """End it."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def _drop(self) -> None:
        for writer in self._writers:
            writer.transport.abort()  # a reset, as of a cable: no polite end

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(asyncio.start_server(self._take, "127.0.0.1", self._port))
        self._ready.set()
        self._loop.run_forever()

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut:
            writer.transport.abort()
            return
        try:
            answers, onward = await asyncio.open_connection("127.0.0.1", self._to)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, onward}
        await asyncio.gather(self._pass(reader, onward), self._pass(answers, writer))
        self._writers -= {writer, onward}

    @staticmethod
    async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        with contextlib.suppress(OSError):
            writer.close()
