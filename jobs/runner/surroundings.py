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
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple, TypedDict
from urllib.parse import unquote, urlsplit

from jobs.catalog.spec.runspec import RunSpec
from jobs.catalog.trainer_environment import TrainersMisread, environment_of, read_environments
from jobs.runner.nodes.devices import device_names, driver_version
from jobs.runner.source_trees import MAX_TREES, SourceTree, source_tree
from jobs.runner.training_data import data_digest, hub_revision
from jobs.runner.variables.variables import NO_VARIABLES, GivenVariables

ASK_SECONDS = 60.0  # a cold interpreter on a busy shared disk
LOOK_SECONDS = 0.5
_MAX_PACKAGES = 1000
_MAX_NAME = 80
_ASK = """
import importlib.metadata, json, platform
found, editable = {}, {}
for one in importlib.metadata.distributions():
    name = one.metadata["Name"]
    if name:
        found.setdefault(name.lower().replace("_", "-"), one.version)
        where = json.loads(one.read_text("direct_url.json") or "{}")
        if where.get("dir_info", {}).get("editable"):
            editable[name] = where.get("url", "")
print(json.dumps({"python": platform.python_version(), "packages": found, "editable": editable}))
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
    image: str  # the container image that PITWALL_TRAINERS declares for the trainer
    system: str  # the distribution, as it calls itself
    packages: dict[str, str]  # name, in lower case -> version, of the interpreter that has the trainer
    code: str  # digest of Pitwall's own sources there
    sources: list[SourceTree]  # folders of Git that packages are installed from, and that the run works in
    data: str  # SHA-256 of another trainer's training files, or why there is none; "" where they are told otherwise
    variables: dict[str, str]  # what people gave the run besides, with values
    secrets: list[str]  # names


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptParts:
    """What is known of an attempt beforehand: the interpreter that has the trainer, and what it is started with.

    Of `variables` secrets are named alone. `declared` is what PITWALL_TRAINERS says. `has_read_data` returns True once
    the trainer has its data, or has ended.
    """

    python: str
    variables: GivenVariables = NO_VARIABLES
    spec: RunSpec | None = None
    declared: str = ""
    working_dir: Path | None = None
    run_dir: Path | None = None
    has_read_data: Callable[[], bool] = lambda: True


def tell_surroundings(note: Callable[[str, Mapping[str, object]], None], *, parts: AttemptParts) -> threading.Thread:
    """Say what the attempt runs on and with, from a thread: `note(text, meta)` once, whatever could be read.

    Once more for a dataset of the hub, when the trainer has read it: only then is its newest revision in the cache.
    """

    def work() -> None:
        environment = surroundings(parts)
        note(_sentence(environment), {"environment": environment})
        spec = parts.spec
        if spec is None or spec.is_native or spec.data.kind != "hub":
            return
        while not parts.has_read_data():
            time.sleep(LOOK_SECONDS)
        revision = hub_revision(spec, {**os.environ, **parts.variables.all})
        text = f"revision {revision}" if revision else "its revision is not in the cache of this node"
        note(f"Training data: {spec.data.id}, {text}", {"data": {"hub": spec.data.id, "revision": revision}})

    thread = threading.Thread(target=work, name="surroundings", daemon=True)
    thread.start()
    return thread


def surroundings(parts: AttemptParts) -> Environment:
    """Return what this node is and what is installed for the trainer's Python."""
    installed = _installed(parts.python)
    return {
        "node": socket.gethostname(),
        "cpu": _cpu_model(),
        "cores": os.cpu_count() or 0,
        "kernel": platform.release(),
        "devices": device_names(),
        "driver": driver_version(),
        "python": installed.python,
        "image": _image(parts),
        "system": _system(),
        "packages": installed.packages,
        "code": _code_digest(),
        "sources": _sources(installed.editable, parts.working_dir),
        "data": data_digest(parts.spec, parts.run_dir),
        "variables": dict(parts.variables.shown),
        "secrets": sorted(parts.variables.secret),
    }


def _sentence(facts: Environment) -> str:
    parts = [f"{facts['cores']} cores of {facts['cpu'] or platform.machine()}"]
    devices = facts["devices"]
    parts += [f"{devices.count(name)} × {name}" for name in dict.fromkeys(devices)]
    parts += [f"driver {facts['driver']}"] if facts["driver"] else []
    parts += [f"Python {facts['python']}"] if facts["python"] else []
    parts += [f"{name} {facts['packages'][name]}" for name in ("torch", "vllm") if name in facts["packages"]]
    return f"On {facts['node']}: {', '.join(parts)}"


class _Installed(NamedTuple):
    python: str
    packages: dict[str, str]
    editable: dict[str, str]  # name -> address of the folder that it is installed from


def _installed(python: str) -> _Installed:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PITWALL_")}
    with contextlib.suppress(OSError, ValueError, KeyError, subprocess.SubprocessError):
        argv = [python, "-c", _ASK]
        done = subprocess.run(argv, check=True, capture_output=True, text=True, timeout=ASK_SECONDS, env=environ)
        answer = json.loads(done.stdout.strip().splitlines()[-1])
        names = sorted(answer["packages"])[:_MAX_PACKAGES]
        packages = {name[:_MAX_NAME]: str(answer["packages"][name])[:_MAX_NAME] for name in names}
        return _Installed(str(answer["python"]), packages, answer["editable"])
    return _Installed(platform.python_version() if python == sys.executable else "", {}, {})


def _sources(editable: Mapping[str, str], working_dir: Path | None) -> list[SourceTree]:
    """Return the repositories that packages are installed from as they lie there, and the one the run works in."""
    folders = {"working directory": working_dir} if working_dir is not None else {}
    for name, address in sorted(editable.items()):
        if address.startswith("file://"):
            folders[name] = Path(unquote(urlsplit(address).path))
    trees = (source_tree(folder, name=name) for name, folder in folders.items() if folder.is_dir())
    return list(islice((tree for tree in trees if tree is not None), MAX_TREES))


def _image(parts: AttemptParts) -> str:
    if parts.spec is None:
        return ""
    with contextlib.suppress(TrainersMisread):
        trainer = parts.spec.trainer
        declared = environment_of(trainer.name, trainer.version, read_environments(parts.declared))
        return declared.at if declared is not None and declared.kind == "image" else ""
    return ""


def _system() -> str:
    with contextlib.suppress(OSError):
        return str(platform.freedesktop_os_release().get("PRETTY_NAME", ""))
    return ""


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
