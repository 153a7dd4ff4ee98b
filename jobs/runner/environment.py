"""Which interpreter another trainer runs in, and whether it is there, before anything is started."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from jobs.adapters.command_line.services import services_of
from jobs.catalog.spec.runspec import RunSpec, Trainer
from jobs.catalog.trainer import TrainerInfo, trainers
from jobs.catalog.trainer_environment import (
    VARIABLE,
    TrainerEnvironment,
    TrainersMisread,
    environment_of,
    how_to_make,
    read_environments,
)
from jobs.runner.captures.attachable import attach_environment
from jobs.runner.trainer import HIDDEN

CHECK_SECONDS = 60.0  # a cold interpreter on a busy shared disk
_ASK = """
import importlib.metadata, json, sys
try:
    found = importlib.metadata.version(sys.argv[1])
except importlib.metadata.PackageNotFoundError:
    found = ""
print(json.dumps(found))
"""

_ASK_MODULES = """
import importlib.util, json, sys
print(json.dumps([name for name in sys.argv[1:] if importlib.util.find_spec(name) is None]))
"""
_PACKAGES = {name: name for name in ("wandb", "mlflow", "swanlab", "trackio", "tensorboard", "clearml", "comet_ml")}
_PACKAGES |= {"vemlp_wandb": "volcengine_ml_platform"}
"""The module that a logger imports, by its name."""

RAY_KEEPS_DEVICES = "RAY_EXPERIMENTAL_NOSET_"
"""What Ray gives a job's driver so that it may see devices that Ray did not give it."""

_SECRETS = ("PITWALL_TOKEN", "PITWALL_MERGE_KEY", "RAY_AUTH_TOKEN")
SHORTEST_SECRET = 16
"""What is shorter may stand in any value, in PATH as well: it is hidden by its name alone."""


class TrainerMissing(Exception):
    """The cluster does not have the trainer in this version; the sentence says what is there and what to do."""


def interpreter(trainer: Trainer, *, declared: str, own_python: str) -> str:
    """Return the Python that has the trainer in the asked version; `own_python` for the built-in one.

    `declared` is what PITWALL_TRAINERS says. What is not declared may be installed in the runner's own environment; in
    a container image the runner and the trainer share one.

    Raises: TrainerMissing.
    """
    info = trainers()[trainer.name]
    if not info.package:
        return own_python
    try:
        environments = read_environments(declared)
    except TrainersMisread as error:
        raise TrainerMissing(str(error)) from error
    environment = environment_of(trainer.name, trainer.version, environments)
    python = environment.at if environment is not None and environment.kind == "python" else own_python
    installed = _installed(python, info, trainer.version)
    if not _is_asked(installed, trainer.version):
        raise TrainerMissing(_sentence(info, trainer.version, installed, python, environment, environments))
    return python


def check_services(spec: RunSpec, python: str) -> None:
    """Let through a run whose loggers have their packages in the trainer's interpreter. Raises: TrainerMissing."""
    if packages := [_PACKAGES[name] for name in services_of(spec) if name in _PACKAGES]:
        info = trainers()[spec.trainer.name]
        missing = json.loads(_answer(python, info, spec.trainer.version, _ASK_MODULES, *packages))
        if missing:
            names = ", ".join(missing)
            raise TrainerMissing(
                f"{info.label} is to log to {names}, and its environment, {python}, has no such package. "
                f"Install {names} there, or take it out of the run's other loggers"
            )


def environment_for(spec: RunSpec, environ: Mapping[str, str], run_dir: Path) -> Mapping[str, str]:
    """Return the environment in which the trainer is started, before its launch adds to it.

    Another trainer gets what it takes to be recorded (attachable.py).

    Ray's marks for drivers are not for another trainer: it would take them for those of an actor, and ask Ray for
    devices that a process outside of Ray does not have.
    """
    if spec.is_native:
        return environ
    cleaned = {name: value for name, value in environ.items() if not name.startswith(RAY_KEEPS_DEVICES)}
    return attach_environment(cleaned, run_dir)


def without_secrets(environ: Mapping[str, str], *names: str) -> dict[str, str]:
    """Return the environment without what opens the console or Ray, and without the secrets called `names`.

    By their values, too: Ray's own variables repeat what a job was given.
    """
    secrets = {name: environ.get(name, "") for name in (*_SECRETS, *names)}
    values = [value for value in secrets.values() if len(value) >= SHORTEST_SECRET]
    return {
        name: value
        for name, value in environ.items()
        if name not in secrets and name not in HIDDEN and not any(secret in value for secret in values)
    }


def _installed(python: str, info: TrainerInfo, version: str) -> str:
    """Return the version of the trainer's package in that interpreter, "" if it has none."""
    return str(json.loads(_answer(python, info, version, _ASK, info.package)))


def _answer(python: str, info: TrainerInfo, version: str, *words: str) -> str:
    """Return the last line that a program prints there: a text and its arguments. Raises: TrainerMissing."""
    wanted = f"{info.label} {version} is declared at {python} ({VARIABLE}), and"
    if not Path(python).is_file():
        raise TrainerMissing(f"{wanted} there is no such file on this node. {_do(info, version)}")
    try:
        done = subprocess.run(
            [python, "-c", *words], check=False, capture_output=True, text=True, timeout=CHECK_SECONDS
        )
        if done.returncode == 0:
            return done.stdout.strip().splitlines()[-1]
        why = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    except subprocess.TimeoutExpired:
        why = f"no answer within {CHECK_SECONDS:.0f} s"
    except (OSError, IndexError) as error:
        why = str(error)
    raise TrainerMissing(f"{wanted} this interpreter does not run ({why[:200]}). {_do(info, version)}")


def _is_asked(installed: str, version: str) -> bool:
    """Return True for the version itself, a post-release and a local build of it."""
    return installed == version or installed.startswith((f"{version}.post", f"{version}+"))


def _sentence(
    info: TrainerInfo,
    version: str,
    installed: str,
    python: str,
    environment: TrainerEnvironment | None,
    environments: Sequence[TrainerEnvironment],
) -> str:
    has = f"has {info.package} {installed}" if installed else f"has no {info.package}"
    asks = f"this run asks for {info.label} {version}"
    if environment is not None and environment.kind == "python":
        return f"{asks}, and {python}, where {VARIABLE} declares it, {has}. {_do(info, version)}"
    if environment is not None:
        what = "The image" if environment.kind == "image" else "The runner's own environment"
        return f"{asks}. {what}, where {VARIABLE} declares it ({environment}), {has}. {_do(info, version)}"
    named = ", ".join(each.name for each in environments) or "nothing"
    return (
        f"{asks}, which this cluster does not have: {VARIABLE} declares {named}, and the runner's own environment "
        f"{has}. {_do(info, version)}"
    )


def _do(info: TrainerInfo, version: str) -> str:
    text = how_to_make(info.id, version)
    return text[:1].upper() + text[1:]
