"""A Ray cluster of two nodes and a console beside it, each on a machine of its own: nothing shared but the network."""

import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.loopback import HTTP
from tests.machines import HOUSE, Machine, machines
from tests.services import own_environment

START_SECONDS = 400.0
CPUS_PER_NODE = 2  # so that the four workers of a demo do not fit on one
PORT = 8000
RUN_ROOT = "/tmp/pitwall-runs"  # what the console takes for a cluster elsewhere
DATA_DIR = "/tmp/console"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Two nodes and a console. `logs`: what their processes print, on the machine around them."""

    head: Machine
    other: Machine
    console: Machine
    logs: Path
    console_env: dict[str, str]

    @property
    def url(self) -> str:
        """The console's address, for browsers and runners alike."""
        return f"http://{self.console.address}:{PORT}"

    def manage(self, *arguments: str) -> str:
        """Run a `manage.py` command on the console's machine and return what it prints."""
        return self.console.run(sys.executable, str(HOUSE / "manage.py"), *arguments, env=self.console_env).strip()

    def printed(self, name: str) -> str:
        """Return what `name` (head, other, console) has printed so far."""
        return (self.logs / f"{name}.log").read_text(errors="replace")


@contextmanager
def two_nodes(logs: Path) -> Iterator[Cluster]:
    """Start machines, Ray and console; end everything in them."""
    outside = {name: value for name, value in own_environment().items() if "RAY_" not in name}
    token = secrets.token_hex(16)
    ray_env = outside | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token, "RAY_USAGE_STATS_ENABLED": "0"}
    with machines(("head", "other", "console"), with_code=("console",)) as made:
        head, other, console = made["head"], made["other"], made["console"]
        api = f"http://{head.address}:8265"
        console_env = outside | {
            "RAY_ADDRESS": api,
            "RAY_AUTH_TOKEN": token,
            "PITWALL_DATA_DIR": DATA_DIR,
            "PITWALL_PORT": str(PORT),
            "PITWALL_PUBLIC_URL": f"http://{console.address}:{PORT}",
            "PITWALL_RUNNER_PYTHON": sys.executable,
        }
        cluster = Cluster(head=head, other=other, console=console, logs=logs, console_env=console_env)
        at_head = ("--head", "--port", "6379", "--dashboard-host", "0.0.0.0")
        processes = [
            console.start(
                sys.executable, str(HOUSE / "manage.py"), "up", "--host", "0.0.0.0",
                env=console_env, log=logs / "console.log", cwd=str(HOUSE),
            ),
            _ray(head, *at_head, env=ray_env, log=logs / "head.log"),
        ]  # fmt: skip
        _wait_for(lambda: _num_nodes(api, token) == 1, processes, cluster, "Ray's head")
        processes.append(_ray(other, "--address", f"{head.address}:6379", env=ray_env, log=logs / "other.log"))
        _wait_for(lambda: _num_nodes(api, token) == 2, processes, cluster, "Ray's second node")
        _wait_for(lambda: "Sign in once with" in cluster.printed("console"), processes, cluster, "the console")
        try:
            yield cluster
        finally:
            if kept := os.environ.get("KEEP_STACK_LOGS"):
                _keep(cluster, Path(kept))
    for process in processes:
        process.wait(10)


def _ray(machine: Machine, *options: str, env: dict[str, str], log: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats"]
    command += ["--node-ip-address", machine.address, "--num-cpus", str(CPUS_PER_NODE)]
    command += ["--object-store-memory", str(128 << 20), "--include-log-monitor", "false", *options]
    return machine.start(*command, env=env, log=log)


def _num_nodes(api: str, token: str) -> int:
    headers = {"Authorization": f"Bearer {token}"}
    try:
        answer = HTTP.get(f"{api}/api/v0/nodes", headers=headers, timeout=5.0)
        rows = answer.json()["data"]["result"]["result"]
    except (httpx.HTTPError, ValueError, KeyError, TypeError):
        return 0
    return sum(row["state"] == "ALIVE" for row in rows)


def _wait_for(
    is_there: Callable[[], bool], processes: Sequence[subprocess.Popen[bytes]], cluster: Cluster, what: str
) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not is_there():
        dead = [process.args for process in processes if process.poll() is not None]
        if dead or time.monotonic() > deadline:
            tails = "\n".join(file.read_text(errors="replace")[-3000:] for file in sorted(cluster.logs.glob("*.log")))
            pytest.fail(f"{what} did not start; ended: {dead}\n{tails}")
        time.sleep(0.1)


def _keep(cluster: Cluster, folder: Path) -> None:
    """Copy what a person would look at after a failure out of the machines, before they are gone."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copytree(cluster.logs, folder / "printed", dirs_exist_ok=True)
    for machine, path in ((cluster.head, RUN_ROOT), (cluster.other, RUN_ROOT), (cluster.console, f"{DATA_DIR}/log")):
        if machine.has(path):
            packed = subprocess.run(machine.argv("tar", "-C", path, "-c", "."), check=False, capture_output=True).stdout
            (folder / f"{machine.name}.tar").write_bytes(packed)
