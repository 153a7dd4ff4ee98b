"""The embedded console as a list of services: what is named in the environment is not started here."""

import os
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from console.embedded.ray_head import new_token, ray_service
from console.embedded.redis_server import redis_service
from console.embedded.service import Service
from console.embedded.warm_workers import is_wanted, warm_service
from jobs.catalog.trainer_environment import (
    FOLDER,
    VARIABLE,
    TrainersMisread,
    environment_of,
    found_below,
    read_environments,
    to_text,
)
from jobs.cluster.loopback import is_loopback

# The queue's consumers first, what others lean on last.
STOP_ORDER = ("demo", "worker", "reconcile", "ingest", "web", "ray", "warm", "redis")
WORKER_GRACE_SECONDS = 10.0
EVERY_ADDRESS = "0.0.0.0"
MANAGE = str(Path(__file__).resolve().parents[2] / "manage.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedServices:
    """The services to start, and the settings that tell every process where they are."""

    services: tuple[Service, ...]
    settings: Mapping[str, str]
    url: str

    @property
    def stop_order(self) -> tuple[str, ...]:
        """The names of the services in the order in which they are to end."""
        names = {service.name for service in self.services}
        return tuple(name for name in STOP_ORDER if name in names)


def embedded(
    *,
    data_dir: Path,
    host: str = "127.0.0.1",
    port: int,
    environ: Mapping[str, str],
    demo: tuple[str, ...] | None = None,
) -> EmbeddedServices:
    """Plan the services for this environment; nothing starts.

    `host`: the address that the pages listen on. `demo`: arguments of `manage.py demo`, which then queues the demo run;
    None: no demo.
    Raises: NoRedisServer, PortTaken.
    """
    here = f"http://{'127.0.0.1' if host == EVERY_ADDRESS else host}:{port}"
    url = environ.get("PITWALL_PUBLIC_URL", here)
    settings = {
        "PITWALL_DATA_DIR": str(data_dir),
        "PITWALL_HOST": host,
        "PITWALL_PORT": str(port),
        "PITWALL_PUBLIC_URL": url,
        "PYTHONUNBUFFERED": "1",
    }
    if is_loopback(environ.get("RAY_ADDRESS") or here):  # on other machines this interpreter's path means nothing
        settings["PITWALL_RUNNER_PYTHON"] = environ.get("PITWALL_RUNNER_PYTHON", sys.executable)
        settings[VARIABLE] = _trainers(environ.get(VARIABLE, ""))
    env = {**environ, **settings}
    outside: list[Service] = []
    if not environ.get("RAY_ADDRESS"):
        token = environ.get("RAY_AUTH_TOKEN") or new_token()
        for_runs: dict[str, str] = {}
        if is_wanted(environ):
            warm, for_runs = warm_service(data_dir, env)
            outside.append(warm)
        ray, settings["RAY_ADDRESS"] = ray_service(data_dir, env | for_runs, token=token, web_port=port)
        settings |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token}
        outside.append(ray)
    needs: tuple[str, ...] = ()
    if not environ.get("REDIS_URL"):
        redis, settings["REDIS_URL"] = redis_service(data_dir, env)
        outside.append(redis)
        needs = ("redis",)
    env |= settings
    web = _command("web", env, needs=needs, is_ready=lambda: answers(here))
    others = [
        _command("ingest", env, needs=needs),
        _command("worker", env, needs=needs, grace_seconds=WORKER_GRACE_SECONDS),
        _command("reconcile", env, needs=needs),
    ]
    if demo is not None:
        others.append(_command("demo", env, *demo, needs=(*needs, "web"), is_once=True))
    return EmbeddedServices(services=(*outside, web, *others), settings=settings, url=url)


def _trainers(declared: str) -> str:
    """Return where other trainers are: what is declared, then what `make trainer-env` made beside this code."""
    try:
        environments = read_environments(declared)
    except TrainersMisread:
        return declared  # every process says what is wrong with it
    made = found_below(Path(MANAGE).parent / FOLDER)
    return to_text(
        [*environments, *(each for each in made if environment_of(each.trainer, each.version, environments) is None)]
    )


def _command(name: str, env: Mapping[str, str], *arguments: str, **more: Any) -> Service:
    return Service(name=name, argv=(sys.executable, MANAGE, name, *arguments), env=env, **more)


def answers(url: str) -> bool:
    """Return whether the web process answers; what it answers is its own affair."""
    try:
        with urllib.request.urlopen(f"{url}/healthz", timeout=1.0):  # noqa: S310
            return True
    except urllib.error.HTTPError:
        return True
    except (urllib.error.URLError, OSError):
        return False


def current_environment() -> dict[str, str]:
    """Return this process's environment; empty values count as not set, and `NAME_FILE` gives NAME its file's text."""
    environment = {name: value for name, value in os.environ.items() if value}
    for name in ("REDIS_URL", "RAY_ADDRESS", "RAY_AUTH_TOKEN"):
        if name not in environment and (path := environment.get(f"{name}_FILE")):
            environment[name] = Path(path).read_text().strip()
    return environment
