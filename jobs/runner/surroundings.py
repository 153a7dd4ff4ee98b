"""What an attempt runs on and with: node, CPU, devices, driver, interpreter, packages and code.

Told once, as `environment` in the meta of a note, so that a comparison can say what else than a knob differs
(jobs.comparison.environment). Nothing is decided by it.
"""

import contextlib
import hashlib
import json
import os
import platform
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypedDict

from jobs.runner.nodes.devices import device_names, driver_version
from jobs.runner.variables.variables import NO_VARIABLES, GivenVariables

ASK_SECONDS = 60.0  # a cold interpreter on a busy shared disk
_MAX_PACKAGES = 1000
_MAX_NAME = 80
_ASK = """
import importlib.metadata, json, platform
found = {}
for one in importlib.metadata.distributions():
    name = one.metadata["Name"]
    if name:
        found.setdefault(name.lower().replace("_", "-"), one.version)
print(json.dumps({"python": platform.python_version(), "packages": found}))
"""
_CODE = ("jobs", "profiling")


class Environment(TypedDict):
    """What one attempt ran on and with; "" and empty where something cannot be read."""

    node: str
    cpu: str
    cores: int
    kernel: str
    devices: list[str]
    driver: str
    python: str
    packages: dict[str, str]  # name, in lower case -> version, of the interpreter that has the trainer
    code: str  # digest of Pitwall's own sources there
    variables: dict[str, str]  # what people gave the run besides, with values
    secrets: list[str]  # names


def tell_surroundings(
    note: Callable[[str, Mapping[str, object]], None], *, python: str, variables: GivenVariables = NO_VARIABLES
) -> threading.Thread:
    """Say what the attempt runs on and with, from a thread: `note(text, meta)` once, whatever could be read.

    `python` is the interpreter that has the trainer; of what it is given as variables, secrets are named alone.
    """

    def work() -> None:
        environment = surroundings(python=python, variables=variables)
        note(_sentence(environment), {"environment": environment})

    thread = threading.Thread(target=work, name="surroundings", daemon=True)
    thread.start()
    return thread


def surroundings(*, python: str, variables: GivenVariables = NO_VARIABLES) -> Environment:
    """Return what this node is and what is installed for `python`."""
    installed = _installed(python)
    return {
        "node": socket.gethostname(),
        "cpu": _cpu_model(),
        "cores": os.cpu_count() or 0,
        "kernel": platform.release(),
        "devices": device_names(),
        "driver": driver_version(),
        "python": installed[0],
        "packages": installed[1],
        "code": _code_digest(),
        "variables": dict(variables.shown),
        "secrets": sorted(variables.secret),
    }


def _sentence(facts: Environment) -> str:
    parts = [f"{facts['cores']} cores of {facts['cpu'] or platform.machine()}"]
    devices = facts["devices"]
    parts += [f"{devices.count(name)} × {name}" for name in dict.fromkeys(devices)]
    parts += [f"driver {facts['driver']}"] if facts["driver"] else []
    parts += [f"Python {facts['python']}"] if facts["python"] else []
    parts += [f"{name} {facts['packages'][name]}" for name in ("torch", "vllm") if name in facts["packages"]]
    return f"On {facts['node']}: {', '.join(parts)}"


def _installed(python: str) -> tuple[str, dict[str, str]]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PITWALL_")}
    with contextlib.suppress(OSError, ValueError, KeyError, subprocess.SubprocessError):
        argv = [python, "-c", _ASK]
        done = subprocess.run(argv, check=True, capture_output=True, text=True, timeout=ASK_SECONDS, env=environ)
        answer = json.loads(done.stdout.strip().splitlines()[-1])
        names = sorted(answer["packages"])[:_MAX_PACKAGES]
        return str(answer["python"]), {name[:_MAX_NAME]: str(answer["packages"][name])[:_MAX_NAME] for name in names}
    return (platform.python_version(), {}) if python == sys.executable else ("", {})


def _cpu_model() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()


def _code_digest() -> str:
    """Return a digest of the sources that the cluster received, by name and content."""
    root = Path(__file__).resolve().parents[2]
    digest = hashlib.sha256()
    for package in _CODE:
        for path in sorted((root / package).rglob("*")):
            if path.suffix in (".py", ".toml") and "__pycache__" not in path.parts:
                with contextlib.suppress(OSError):
                    digest.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]
