"""The console's side of the wire, with faults on demand: HTTP in, a "Redis" that can be lost, a "database"."""

import hashlib
import json
import secrets
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

TOKEN = "secret-token-of-the-attempt"


@dataclass
class FakeConsole:
    """Accepts batches as docs/develop/protocol.md says. `condition` is notified at every request."""

    spec: dict[str, Any] = field(default_factory=dict)
    inputs: dict[str, bytes] = field(default_factory=dict)
    run: str = field(default_factory=lambda: f"r-{secrets.token_hex(4)}")  # processes are found by it
    attempt: int = 1
    resume: dict[str, int] | None = None
    variables: dict[str, str] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)
    handed_to: str = ""  # the key of who was given the secrets
    commands: list[dict[str, Any]] = field(default_factory=list)
    answered: list[dict[str, Any]] = field(default_factory=list)
    redis: list[tuple[int, list[dict[str, Any]]]] = field(default_factory=list)
    database: list[tuple[int, list[dict[str, Any]]]] = field(default_factory=list)
    posted: dict[int, list[str]] = field(default_factory=dict)  # every content ever seen of a number
    expect: int = 1
    num_posts: int = 0
    num_heartbeats: int = 0
    is_fenced: bool = False
    is_ingesting: bool = True
    has_ended: bool = False
    fail_with: int = 0  # answer everything with this status
    num_failed: int = 0
    lose_answers: int = 0  # process this many batches, then hang up instead of answering
    refuse: Callable[[dict[str, Any]], bool] = lambda event: False
    files: dict[str, bytearray] = field(default_factory=dict)
    about: dict[str, dict[str, str]] = field(default_factory=dict)
    ready: set[str] = field(default_factory=set)
    puts: list[tuple[str, int, int]] = field(default_factory=list)
    damage_next_put: bool = False
    answers: dict[str, dict[str, Any]] = field(default_factory=dict)
    merge: str = ""  # `<number>:<key>` of the merge that is under way
    merged: list[dict[str, Any]] = field(default_factory=list)
    port: int = 0

    def __post_init__(self) -> None:
        self.condition = threading.Condition()
        self._server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def durable(self) -> int:
        return self.database[-1][0] if self.database else 0

    @property
    def events(self) -> list[dict[str, Any]]:
        return [event for _, events in self.database for event in events]

    def of_kind(self, kind: str, **having: Any) -> list[dict[str, Any]]:
        return [e for e in self.events if e["kind"] == kind and all(e.get(k) == v for k, v in having.items())]

    def lines(self, role: str = "driver") -> list[str]:
        return [line for e in self.of_kind("log", role=role) for line in e["lines"]]

    @property
    def terminal_event(self) -> dict[str, Any]:
        return self.of_kind("state", role="runner")[-1]

    def start(self) -> "FakeConsole":
        handler = type("Handler", (_Handler,), {"console": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def stop(self) -> None:
        """Go away: connections are refused from now on, until `start`."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def lose_redis(self) -> None:
        with self.condition:
            self.redis.clear()
            self.expect = self.durable + 1

    def lose_stream(self) -> None:
        """Lose what was accepted, but not the number that is expected."""
        with self.condition:
            self.redis.clear()

    def wait_for(self, predicate: Callable[[], Any], timeout: float = 400.0) -> None:
        with self.condition:
            assert self.condition.wait_for(predicate, timeout), "the console waited in vain"

    # what the handler calls, under the lock

    def post_events(self, raw: dict[str, Any], *, is_cleanup: bool) -> tuple[int, dict[str, Any]]:
        self.num_posts += 1
        number, events = raw["batch"], raw["events"]
        if self.has_ended or (self.is_fenced and not is_cleanup):
            return 409, {"error": "fenced", "durable_through": self.durable}
        wrong = [place for place, event in enumerate(events) if self.refuse(event)]
        if wrong:
            return 422, {"problems": [f"events[{wrong[0]}] is wrong."], "events": wrong}
        self.answered += raw["answered"]
        done = {answer["number"] for answer in raw["answered"]}
        self.commands = [command for command in self.commands if command["number"] not in done]
        if number == 0:
            assert events == []
            self.num_heartbeats += 1
            if not self.redis:  # nothing is on its way, so what was expected beyond the database was lost
                self.expect = self.durable + 1
        else:
            self.posted.setdefault(number, []).append(json.dumps(events))
            assert 0 < len(events) <= 2000
            if number == self.expect:
                self.redis.append((number, events))
                self.expect += 1
        if self.is_ingesting:
            self._ingest()
        return 200, {"durable_through": self.durable, "expect": self.expect, "commands": self.commands}

    def put_file(
        self, name: str, about: dict[str, str], data: bytes, *, is_merge: bool = False
    ) -> tuple[int, dict[str, Any]]:
        if not is_merge and (self.has_ended or (self.is_fenced and "cleanup" not in about)):
            return 409, {"error": "fenced", "durable_through": self.durable}
        if len(data) > 8 << 20:
            return 413, {"problems": ["too large"]}
        held = self.files.setdefault(name, bytearray())
        offset, size = int(about["offset"]), int(about["size"])
        if offset != len(held):
            return 409, {"received": len(held)}
        if self.damage_next_put:
            self.damage_next_put = False
            data = bytes([data[0] ^ 1]) + data[1:]
        held += data
        self.about[name] = about
        self.puts.append((name, offset, len(data)))
        if len(held) == size:
            if hashlib.sha256(held).hexdigest() != about["sha256"]:
                held.clear()
                return 422, {"received": 0}
            self.ready.add(name)
        return 200, {"received": len(held), "is_ready": name in self.ready}

    def _ingest(self) -> None:
        for number, events in self.redis:
            if number == self.durable + 1:
                self.database.append((number, events))
                self.has_ended = any(e["kind"] == "state" and e["role"] == "runner" for e in events)
        self.redis.clear()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    console: FakeConsole

    def log_message(self, *_args: object) -> None: ...

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except (ConnectionError, TimeoutError):
            self.close_connection = True

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def do_PUT(self) -> None:
        self._serve()

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        console = self.console
        with console.condition:
            status, answer = self._answer(body)
            is_batch = b'{"batch":0,' not in body[:12] and self.path.endswith("/events")
            is_lost = is_batch and console.lose_answers > 0
            console.lose_answers -= is_lost
            console.condition.notify_all()
        if is_lost:
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
            return
        raw = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def _answer(self, body: bytes) -> tuple[int, Any]:
        console = self.console
        url = urlsplit(self.path)
        parts = url.path.strip("/").split("/")
        if console._server is None:
            return 503, {"error": "stopping"}
        if console.fail_with:
            with console.condition:
                console.num_failed += 1
                console.condition.notify_all()
            return console.fail_with, {"error": "as told"}
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return 401, {"error": "wrong token"}
        if parts[:3] != ["ingest", console.run, str(console.attempt)]:
            return 404, {"error": "unknown attempt"}
        match (self.command, *parts[3:]):
            case ("GET", "launch"):
                if console.is_fenced:
                    return 409, {"error": "fenced", "durable_through": console.durable}
                inputs = [{"sha256": k, "file_name": "data.jsonl", "size": len(v)} for k, v in console.inputs.items()]
                return 200, {
                    "run": console.run,
                    "attempt": console.attempt,
                    "spec": console.spec,
                    "inputs": inputs,
                    "resume": console.resume,
                    "commands": console.commands,
                    "environment": {"variables": console.variables, "secrets": sorted(console.secrets)},
                }
            case ("POST", "environment"):
                console.handed_to = console.handed_to or json.loads(body)["key"]
                if console.handed_to != json.loads(body)["key"]:
                    return 403, {"problems": ["handed to another runner before"]}
                return 200, {"secrets": console.secrets}
            case ("GET", "inputs", sha256):
                return (200, console.inputs[sha256]) if sha256 in console.inputs else (404, {"error": "no such file"})
            case ("POST", "events"):
                assert len(body) <= 1 << 20
                return console.post_events(json.loads(body), is_cleanup="cleanup=1" in url.query)
            case ("GET", "files", name):
                held = console.files.get(name, b"")
                return 200, {"received": len(held), "is_ready": name in console.ready}
            case ("GET", "files", name, "content"):
                return (200, bytes(console.files[name])) if name in console.ready else (404, {"error": "not ready"})
            case ("PUT", "files", name):
                about = {k: v[0] for k, v in parse_qs(url.query).items()}
                return console.put_file(name, about, body, is_merge=self._is_merge())
            case ("POST", "merge"):
                if not self._is_merge():
                    return 409, {"error": "fenced"}
                console.merged.append(json.loads(body))
                return 200, {}
            case ("POST", "answers", answer_id):
                console.answers[answer_id] = json.loads(body)
                return 200, {}
        return 404, {"error": "no such page"}

    def _is_merge(self) -> bool:
        return bool(self.console.merge) and self.headers.get("X-Pitwall-Merge") == self.console.merge
