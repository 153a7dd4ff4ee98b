"""The process that the ranks of runs are forked from: it has imported torch and DeepSpeed while the console starts."""

import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path

from console.embedded.data_dir import fits, short_dir
from console.embedded.ray_head import CONSOLE_SECRETS
from console.embedded.service import Service

SETTING = "PITWALL_WARM_WORKERS"
"""0: every rank imports for itself."""
SOCKET = "PITWALL_WARM_SOCKET"
"""Tells the engine where to ask: read by `jobs.engine.workers.worker_group`."""
SERVER = "jobs.engine.warm.server"
ROOM = "PITWALL_WARM_ROOM"
ROOM_BYTES = 32 << 10
SOCKET_NAME = "warm.sock"
NVIDIA = Path("/proc/driver/nvidia/version")


def is_wanted(environ: Mapping[str, str]) -> bool:
    """Return whether ranks are to be forked here: on CPU, where the engine is installed, unless it is turned off."""
    return environ.get(SETTING, "1") != "0" and not NVIDIA.exists() and importlib.util.find_spec("torch") is not None


def warm_service(data_dir: Path, env: Mapping[str, str]) -> tuple[Service, dict[str, str]]:
    """Return the service, and what the Ray head's environment needs besides so that runs find it."""
    path = data_dir / SOCKET_NAME
    if not fits(path):
        path = short_dir(data_dir, "warm", suffix=f"/{SOCKET_NAME}") / SOCKET_NAME
    own = {name: value for name, value in env.items() if name not in CONSOLE_SECRETS}
    # As many threads as Ray gives a worker of one CPU: OpenMP reads it once, and threads more than that would spin.
    own |= {ROOM: "x" * ROOM_BYTES, "OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu", "PYTHONWARNINGS": "ignore"}
    service = Service(
        name="warm",
        argv=(sys.executable, "-m", SERVER, str(path)),
        env=own,
        is_independent=True,
        is_quiet=True,
    )
    return service, {SOCKET: str(path)}
