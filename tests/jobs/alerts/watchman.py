"""A clock for the evaluator, and an HTTP receiver that remembers what it got."""

import json
import time
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from jobs.alerts.evaluation import Evaluator
from jobs.models import AlertIncident
from tests.rows import NOW


class Watchman:
    """The evaluator at chosen moments."""

    def __init__(self) -> None:
        self.now = NOW
        self.evaluator = Evaluator()

    def step(self, seconds: float = 2) -> list[AlertIncident]:
        """Do a pass some seconds later; return all incidents of runs."""
        self.now += timedelta(seconds=seconds)
        self.evaluator.step(self.now)
        return list(AlertIncident.objects.exclude(run=None).order_by("pk"))

    def restart(self) -> None:
        """Forget what a process remembers."""
        self.evaluator = Evaluator()


class Receiver:
    """An HTTP server that keeps every request, and answers as told."""

    def __init__(self) -> None:
        self.requests: list[tuple[dict[str, str], Any]] = []
        self.status = 200
        self.headers: dict[str, str] = {}
        self.body = b"ok"
        self.seconds = 0.0  # to answer
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                raw = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.requests.append(({k.lower(): v for k, v in self.headers.items()}, json.loads(raw)))
                receiver.raw = raw
                time.sleep(receiver.seconds)
                self.send_response(receiver.status)
                for name, value in receiver.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(receiver.body)))
                self.end_headers()
                self.wfile.write(receiver.body)

            def log_message(self, *_: Any) -> None:
                """Be silent."""

        self.raw = b""
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook/secret-path"

    @property
    def keys(self) -> list[str]:
        return [headers["idempotency-key"] for headers, _body in self.requests]
