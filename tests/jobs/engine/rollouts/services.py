"""A small HTTP server in the test's own process that does what a test wants, and keeps what it was asked."""

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(slots=True)
class Reply:
    """What is sent back."""

    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Asked:
    """One request; `number` counts them from 1."""

    number: int
    path: str
    headers: dict[str, str]
    body: Any


Answer = Callable[[Asked], Reply | None]  # None: no answer until the test has ended


@dataclass(slots=True, kw_only=True)
class Service:
    """Where it listens, and what it was asked."""

    url: str
    asked: list[Asked]
    stop: Callable[[], None]


def as_json(value: object, status: int = 200, **headers: str) -> Reply:
    return Reply(json.dumps(value).encode(), status, headers)


def scores_of(*scores: object) -> Answer:
    return lambda _: as_json({"scores": list(scores)})


@contextlib.contextmanager
def serving(answer: Answer) -> Iterator[Service]:
    """Serve `answer` on the loopback address while the block runs."""
    asked: list[Asked] = []
    is_over = threading.Event()
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                request = Asked(number=len(asked) + 1, path=self.path, headers=dict(self.headers), body=body)
                asked.append(request)
            reply = answer(request)
            if reply is None:
                is_over.wait()
                return
            self.send_response(reply.status)
            for name, value in {"Content-Length": str(len(reply.body)), **reply.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            with contextlib.suppress(OSError):  # who asked may have gone
                self.wfile.write(reply.body)

        def log_message(self, *_: object) -> None:
            """Be quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()

    def stop() -> None:
        server.shutdown()
        server.server_close()

    try:
        yield Service(url=f"http://127.0.0.1:{server.server_port}/score", asked=asked, stop=stop)
    finally:
        is_over.set()
        stop()
        thread.join()
