"""One real Ray head for every test that needs one: the embedded console's own, started and ended as it does."""

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from console.embedded.ray_head import answers, ray_environment, ray_service
from tests.warm_workers.workers import COLD, SOCKET, warm_workers

HOUSE = Path(__file__).parents[1]
START_SECONDS = 300.0
STARTS = 3
NUM_CPUS = 8  # logical ones, more than the machine has


@dataclass(frozen=True, slots=True, kw_only=True)
class RayHead:
    """A running head: where its Job API and its cluster answer, the token for both, its first process, its environment,
    and its path.
    """

    api: str
    cluster: str
    token: str
    pid: int = 0
    path: str = str(HOUSE)
    environ: Mapping[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to join the cluster as a driver."""
        return ray_environment({"RAY_ADDRESS": self.cluster}, token=self.token)

    @property
    def warm_driver(self) -> dict[str, str]:
        """What such a process needs besides to be forked by the server that forks the head's workers."""
        return {name: self.environ[name] for name in ("PYTHONPATH", SOCKET, COLD)}

    def client(self) -> httpx.Client:
        """Return a client of the Job API."""
        headers = {"Authorization": f"Bearer {self.token}"}
        return httpx.Client(base_url=self.api, headers=headers, trust_env=False, timeout=40)


@contextlib.contextmanager
def running_head(*, first_on_path: Path | None = None, is_warm: bool = True) -> Iterator[RayHead]:
    """Start the head on the loopback address, behind a token; end it with all it started.

    `first_on_path` stands before the code on the path of its workers, and of drivers on this head. Workers that are not
    warm import what they need themselves, as those of a console do.
    """
    path = os.pathsep.join(str(one) for one in (first_on_path, HOUSE) if one)
    token = secrets.token_hex(16)
    # Workers of tests without a package find the code on this path; Ray reads its variables when it is imported.
    needed = ray_environment({**os.environ, "PYTHONPATH": path}, token=token)
    warm = warm_workers(needed, own_server=first_on_path is not None)
    with warm if is_warm else contextlib.nullcontext(needed) as environ:
        for starts_left in reversed(range(STARTS)):
            folder = Path(tempfile.mkdtemp(prefix="pw-ray-", dir="/tmp"))  # short: Ray puts sockets below it
            process, head = _start(folder, path, environ, token)
            try:
                if _is_up(process, head, folder, may_fail=starts_left > 0):
                    yield head
                    return
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait(120)
                shutil.rmtree(folder, ignore_errors=True)


def _start(folder: Path, path: str, environ: Mapping[str, str], token: str) -> tuple[subprocess.Popen[bytes], RayHead]:
    service, api = ray_service(folder, environ, token=token, web_port=0)
    (port,) = (value for option, value in zip(service.argv, service.argv[1:], strict=False) if option == "--port")
    with (folder / "head.log").open("wb") as log:
        process = subprocess.Popen(service.argv, env=service.env, stdout=log, stderr=log)
    head = RayHead(api=api, cluster=f"127.0.0.1:{port}", token=token, pid=process.pid, path=path, environ=environ)
    return process, head


def _is_up(process: subprocess.Popen[bytes], head: RayHead, folder: Path, *, may_fail: bool) -> bool:
    """Wait until the head answers; it may end instead: Ray gives its parts 30 s, and another may take a port of it."""
    deadline = time.monotonic() + START_SECONDS
    while not answers(head.api, head.token) or not _has_node(head):
        if process.poll() is not None and may_fail:
            return False
        assert process.poll() is None, (folder / "head.log").read_text()
        assert time.monotonic() < deadline, f"Ray did not start within {START_SECONDS:.0f} s"
        time.sleep(0.1)
    return True


@pytest.fixture(scope="session")
def ray_head() -> Iterator[RayHead]:
    """The one head of a test session."""
    with running_head() as head:
        yield head


def _has_node(head: RayHead) -> bool:
    with contextlib.suppress(httpx.HTTPError), head.client() as client:
        answer = client.get("/api/v0/nodes")
        return answer.is_success and bool(answer.json()["data"]["result"]["result"])
    return False
