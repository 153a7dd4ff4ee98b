"""One console and one Ray head to break: started as people start them, on disks and a line that can be taken away."""

import contextlib
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import psutil

from console.embedded.ports import free_block
from console.embedded.ray_head import answers, ray_service
from tests.links import use
from tests.proofs.faults.cut import Line
from tests.services import own_environment

ROOT = Path(__file__).resolve().parents[3]
START_SECONDS = 180.0
DATABASE_MIB = 64
CAN_MOUNT = os.geteuid() == 0  # who cannot has no disks to fill
_OTHER_TITLES = {"redis": "valkey-server", "worker": "celery"}  # of a worker where setproctitle is installed
SERVICES = ("web", "worker", "ingest", "reconcile", "redis")


class Stack:
    """A running console: `manage.py up` with a Ray head outside of it, the database on a small disk of its own."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = dict(environ)
        self.folder = Path(tempfile.mkdtemp(prefix="pw-f-", dir="/tmp"))  # short, for sockets
        self.port, self._line_port = free_block(2, seed=f"faults {self.folder}")
        self.url = f"http://127.0.0.1:{self.port}"
        self.runs = self.folder / "runs"
        self.database = self.folder / "db"
        self.database.mkdir()
        if CAN_MOUNT:
            mount(self.database, mib=DATABASE_MIB)
        self.line = Line(port=self._line_port, to=self.port)
        self._token = secrets.token_hex(16)
        self.head: subprocess.Popen[bytes] | None = None
        self.start_head()
        self.console = self._start_console()
        self.http = httpx.Client(base_url=self.url, timeout=60, follow_redirects=False)
        self._sign_in()

    # -- Ray --

    def start_head(self) -> None:
        """Start the head where it was before, and wait until it takes jobs."""
        (self.folder / "ray").mkdir(exist_ok=True)
        environ = self._environ
        service, self.ray_address = ray_service(self.folder / "ray", environ, token=self._token, web_port=self.port)
        with (self.folder / "head.log").open("ab") as log:
            self.head = subprocess.Popen(service.argv, env=service.env, stdout=log, stderr=log)
        until(lambda: answers(self.ray_address, self._token), seconds=START_SECONDS, what="Ray started")

    def kill_head(self) -> None:
        """End the head as a crash of its machine would: the heart of the cluster first, and what hangs on it."""
        assert self.head is not None
        doomed = psutil.Process(self.head.pid).children(recursive=True)
        for process in sorted(doomed, key=lambda p: "gcs_server" not in name_of(p)):
            with contextlib.suppress(psutil.Error):
                process.kill()
        self.head.wait(60)

    # -- the console --

    def _start_console(self) -> subprocess.Popen[bytes]:
        env = own_environment()
        env |= {
            "PITWALL_DATA_DIR": str(self.folder / "data"),
            "PITWALL_PORT": str(self.port),
            "PITWALL_PUBLIC_URL": self.url,
            "PITWALL_RUNNER_URL": f"http://127.0.0.1:{self._line_port}",
            "PITWALL_RUN_ROOT": str(self.runs),
            "PITWALL_RUNNER_PYTHON": sys.executable,
            "PITWALL_STOP_GRACE_SECONDS": "20",
            "DATABASE_URL": f"sqlite:///{self.database}/pitwall.sqlite3",
            "RAY_ADDRESS": self.ray_address,
            "RAY_AUTH_TOKEN": self._token,
        }
        with (self.folder / "console.log").open("ab") as log:
            argv = [sys.executable, str(ROOT / "manage.py"), "up", "--port", str(self.port)]
            return subprocess.Popen(argv, env=env, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT)

    def _sign_in(self) -> None:
        def link() -> re.Match[str] | None:
            assert self.console.poll() is None, self.log()
            return re.search(r"Sign in once with \S+(/signin/\S+)", self.log())

        found = until(link, seconds=START_SECONDS, what="the console started")
        until(lambda: self.is_up(), seconds=START_SECONDS, what="web answered")
        use(self.http, found[1])
        self.http.get("/")
        self.http.headers["X-CSRFToken"] = self.http.cookies["csrftoken"]

    def kill_console(self) -> None:
        """End the supervisor and all it started, without a chance to tidy up."""
        doomed = [p for p in (self.service(name) for name in SERVICES) if p]  # nobody's children a moment later
        self.console.kill()
        self.console.wait(10)
        psutil.wait_procs(doomed, timeout=10)

    def restart_console(self) -> None:
        """Start it anew on the same data."""
        self.console = self._start_console()
        until(lambda: self.is_up(), seconds=START_SECONDS, what="web answered")

    def service(self, name: str) -> psutil.Process | None:
        """Return the process of a service, None while it is away."""
        with contextlib.suppress(psutil.Error):
            for process in psutil.Process(self.console.pid).children():
                line = " ".join(process.cmdline())
                if line.endswith(f"manage.py {name}") or _OTHER_TITLES.get(name, "\0") in line:
                    return process
        return None

    def redis_cli(self, *command: str) -> None:
        """Send one command to the console's Redis."""
        import redis

        with redis.Redis.from_url(f"unix://{self.folder}/data/redis.sock") as client:
            client.execute_command(*command)

    def is_up(self) -> bool:
        """Return whether pages answer, and database and Redis answer them."""
        with contextlib.suppress(httpx.HTTPError):
            return httpx.get(f"{self.url}/readyz", timeout=2).status_code == 200
        return False

    def log(self) -> str:
        """Return what the console printed."""
        return (self.folder / "console.log").read_text(errors="replace")

    # -- what people do --

    def launch(self, spec: dict[str, Any]) -> str:
        """Queue a run and return its id."""
        answer = self.http.post("/api/runs", json=spec)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["run"]["id"])

    def header(self, run: str) -> dict[str, Any]:
        """Return the run as the page shows it; {} while the console does not answer."""
        with contextlib.suppress(httpx.HTTPError):
            answer = self.http.get(f"/api/runs/{run}")
            if answer.status_code == 200:
                found: dict[str, Any] = answer.json()
                return found
        return {}

    def problem(self) -> str:
        """Return the sentence that stands above every page, "" without one."""
        with contextlib.suppress(httpx.HTTPError, ValueError):
            return str(self.http.get("/frame/usage").json()["ingest_problem"])
        return ""

    def stop(self) -> None:
        """End everything and leave nothing."""
        with contextlib.suppress(Exception):
            self.console.send_signal(signal.SIGINT)
            self.console.wait(15)
        with contextlib.suppress(Exception):
            self.console.kill()
        if self.head is not None and self.head.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired, psutil.Error):
                self.kill_head()  # a polite end takes half a minute, and nobody needs what it saves
        self.line.close()
        for place in mounts_below(self.folder):
            subprocess.run(["umount", "--lazy", place], check=False)
        if kept := os.environ.get("KEEP_STACK_LOGS"):
            target = Path(kept) / self.folder.name
            shutil.copytree(self.folder / "data" / "log", target, dirs_exist_ok=True)
            shutil.copytree(
                self.runs, target / "runs", dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.safetensors")
            )
        shutil.rmtree(self.folder, ignore_errors=True)


@contextlib.contextmanager
def running_stack(environ: Mapping[str, str] | None = None) -> Iterator[Stack]:
    """Start a stack, its Ray head in that environment (by default this process's); end it with all it started."""
    stack = Stack(own_environment() if environ is None else environ)
    try:
        yield stack
    finally:
        stack.stop()


def name_of(process: psutil.Process) -> str:
    """Return the name of a process, "" of one that is gone."""
    with contextlib.suppress(psutil.Error):
        return process.name()
    return ""


def mount(folder: Path, *, mib: float) -> None:
    """Put a disk of this size there. Needs root."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={int(mib * 1024)}k", "tmpfs", str(folder)], check=True)


def mounts_below(folder: Path) -> list[str]:
    """Return what is mounted below the folder, innermost first."""
    places = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    return sorted((p for p in places if p.startswith(f"{folder}/")), key=len, reverse=True)


def until(is_true: Callable[[], Any], *, seconds: float, what: str, every: float = 0.25) -> Any:
    """Ask until the answer is true and return it. Raises: AssertionError, that `what` was not so in time."""
    deadline = time.monotonic() + seconds
    while not (found := is_true()):
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}"
        time.sleep(every)
    return found
