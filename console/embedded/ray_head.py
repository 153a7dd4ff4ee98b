"""The embedded Ray head: one node, loopback only, behind a token.

Ray leaves processes behind when it is killed and puts them into groups of their own, hence the guard around it.
"""

import os
import secrets
import signal
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from console.embedded.data_dir import RAY_SOCKET_SUFFIX, empty, short_dir
from console.embedded.ports import free_block
from console.embedded.ray_parts import HOOK, PATH
from console.embedded.service import Service
from console.hardening import SECRETS

MIN_LOGICAL_CPUS = (
    8  # the demo's four workers and a second small run fit side by side; on CPU they mostly wait for each other
)
OBJECT_STORE_BYTES = 256 << 20
STOP_SECONDS = 35.0  # `ray start --block` drains up to 30 s after SIGTERM
PORT_OPTIONS = (
    "--dashboard-port",  # first: it is the Job API's
    "--port",
    "--dashboard-agent-listen-port",
    "--dashboard-agent-grpc-port",
    "--runtime-env-agent-port",
    "--metrics-export-port",
    "--node-manager-port",
    "--object-manager-port",
    "--ray-client-server-port",
)
# What belongs to the console alone; whatever a run executes must not find it in its environment.
# HF_TOKEN goes with the runs that need it (jobs.runs.hub_token).
CONSOLE_SECRETS = (*(name for name in SECRETS if name != "RAY_AUTH_TOKEN"), "DJANGO_SETTINGS_MODULE")


def new_token() -> str:
    """Return a token for one life of the cluster."""
    return secrets.token_hex(32)


def ray_service(data_dir: Path, env: Mapping[str, str], *, token: str, web_port: int) -> tuple[Service, str]:
    """Return the service and the address of its Job API. Raises: PortTaken."""
    ports = free_block(len(PORT_OPTIONS), seed=str(data_dir), avoid=web_port)
    temp_dir = short_dir(data_dir, "ray", suffix=RAY_SOCKET_SUFFIX)
    empty(temp_dir)  # logs and sockets of earlier lives; Ray itself never removes them
    num_cpus = max(MIN_LOGICAL_CPUS, os.cpu_count() or 1)
    ray = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", "--node-ip-address", "127.0.0.1"]
    ray += [
        "--dashboard-host",
        "127.0.0.1",
        "--num-cpus",
        str(num_cpus),
        "--object-store-memory",
        str(OBJECT_STORE_BYTES),
    ]
    ray += ["--min-worker-port", "0", "--max-worker-port", "0"]  # the kernel's choice, so never a taken one
    ray += [
        "--temp-dir",
        str(temp_dir),
        "--disable-usage-stats",
        "--include-log-monitor",
        "false",
        "--log-color",
        "false",
        "--no-monitor",  # the autoscaler, which has nothing to do on one node: 2 s of a core and 85 MB
    ]
    for option, port in zip(PORT_OPTIONS, ports, strict=True):
        ray += [option, str(port)]
    address = f"http://127.0.0.1:{ports[0]}"
    service = Service(
        name="ray",
        argv=(sys.executable, "-m", "console.embedded.guard", str(STOP_SECONDS - 5), *ray),
        env=ray_environment(env, token=token) | {HOOK: PATH},
        is_ready=lambda: answers(address, token),
        is_independent=True,
        is_quiet=True,
        grace_seconds=STOP_SECONDS,
        death_signal=signal.SIGTERM,  # the guard ends Ray's processes
    )
    return service, address


def ray_environment(env: Mapping[str, str], *, token: str) -> dict[str, str]:
    """Return the environment of the head, which every run inherits."""
    cleaned = {name: value for name, value in env.items() if name not in CONSOLE_SECRETS}
    return cleaned | {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": token,
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # on Linux this makes Ray stay on the loopback address
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_DISABLE_IMPORT_WARNING": "1",
    }


def answers(address: str, token: str) -> bool:
    """Return whether the Job API answers with our token."""
    request = urllib.request.Request(f"{address}/api/version", headers={"Authorization": f"Bearer {token}"})  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=0.5) as answer:  # noqa: S310
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
