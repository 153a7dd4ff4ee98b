"""A small HTTP server that answers like Ray's dashboard (2.60) about jobs, packages and nodes."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "ray-token"  # what clients must send


class FakeRay:
    """What the server knows; tests set it and read what was asked of it."""

    def __init__(self) -> None:
        self.jobs: dict[str, dict[str, Any]] = {}
        self.packages: dict[str, bytes] = {}
        self.submitted: list[dict[str, Any]] = []
        self.stopped: list[str] = []
        self.requests: list[tuple[str, str]] = []
        self.refuse_submit = ""  # text of a 400
        self.break_submit = ""  # text of a 500
        self.nodes = [_node(cpus=8)]
        self.address = ""

    def end(self, submission_id: str, status: str, message: str = "", exit_code: int | None = None) -> None:
        """Let a job end."""
        self.jobs[submission_id] |= {"status": status, "message": message, "driver_exit_code": exit_code}

    def set_gpus(self, gpus: int, *, cpus: int = 64) -> None:
        """Give the one node GPUs."""
        self.nodes = [_node(cpus=cpus, gpus=gpus)]


def _node(*, cpus: int, gpus: int = 0) -> dict[str, Any]:
    resources = {"memory": 16e9, "object_store_memory": 1e8, "node:127.0.0.1": 1.0, "CPU": float(cpus)}
    if gpus:
        resources |= {"GPU": float(gpus), "accelerator_type:H200": 1.0}
    return {
        "node_id": "n1",
        "node_ip": "127.0.0.1",
        "is_head_node": True,
        "state": "ALIVE",
        "resources_total": resources,
    }


@contextmanager
def serve() -> Iterator[FakeRay]:
    """Run the server on a free port of the loopback for the block."""
    ray = FakeRay()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(ray))
    ray.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield ray
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _handler(ray: FakeRay) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

        def answer(self, status: int, body: Any = "") -> None:
            data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def handle_any(self, method: str) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                self.answer(401, "Unauthorized: Missing authentication token")
                return
            path = self.path.partition("?")[0]
            ray.requests.append((method, path))
            self.route(method, path, body)

        def route(self, method: str, path: str, body: bytes) -> None:
            if path == "/api/v0/nodes":
                self.answer(200, {"result": True, "msg": "", "data": {"result": {"total": 1, "result": ray.nodes}}})
            elif path.startswith("/api/packages/"):
                if method == "PUT":
                    ray.packages[path] = body
                self.answer(200 if path in ray.packages else 404)
            elif path == "/api/jobs/" and method == "POST":
                self.submit(json.loads(body))
            elif path == "/api/jobs/":
                self.answer(200, [{"submission_id": None, "status": "RUNNING"}, *ray.jobs.values()])
            else:
                self.one_job(path)

        def submit(self, request: dict[str, Any]) -> None:
            name = request["submission_id"]
            if ray.refuse_submit:
                self.answer(400, ray.refuse_submit)
            elif ray.break_submit:
                self.answer(500, ray.break_submit)
            elif name in ray.jobs:
                self.answer(
                    500, f"RuntimeError: ... ValueError: Job with submission_id {name} already exists. Please use ..."
                )
            else:
                ray.submitted.append(request)
                ray.jobs[name] = {"submission_id": name, "status": "RUNNING", "message": "", "driver_exit_code": None}
                self.answer(200, {"job_id": name, "submission_id": name})

        def one_job(self, path: str) -> None:
            name = path.removeprefix("/api/jobs/").removesuffix("/stop")
            if name not in ray.jobs:
                self.answer(404, f"Job {name} does not exist")
            elif path.endswith("/stop"):
                ray.stopped.append(name)
                self.answer(200, {"stopped": True})
            else:
                self.answer(200, ray.jobs[name])

        def do_GET(self) -> None:
            self.handle_any("GET")

        def do_POST(self) -> None:
            self.handle_any("POST")

        def do_PUT(self) -> None:
            self.handle_any("PUT")

    return Handler
