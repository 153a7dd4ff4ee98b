"""The environment that has a trainer on the cluster: what PITWALL_TRAINERS says, read by the console and by the runner.

    trainer-0.11.2=/srv/trainer/bin/python; other-0.9.1=image:registry.example/other:0.9.1; trainer-0.10.2=installed

Entries are divided by semicolons or line ends. `<trainer>-<version>` is one version, `<trainer>` alone every version of
it. An environment is `installed` (the runner's own), the absolute path of a Python interpreter on every
node, or `image:` and a container image that Ray starts the whole job in. Standard library only.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from jobs.catalog.trainer import trainers

VARIABLE = "PITWALL_TRAINERS"
FOLDER = ".trainers"
"""Where `make trainer-env` puts environments, below the checkout."""

EnvironmentKind = Literal["installed", "python", "image"]


class TrainersMisread(ValueError):
    """PITWALL_TRAINERS does not say what it should; the sentence names the entry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerEnvironment:
    """An environment with a trainer: `version` "" is every version; `at` is a path of an interpreter or an image."""

    trainer: str
    version: str
    kind: EnvironmentKind
    at: str = ""

    @property
    def name(self) -> str:
        """How the entry names it: with its version, or for all of them without."""
        return f"{self.trainer}-{self.version}" if self.version else self.trainer

    def __str__(self) -> str:
        """Return the entry as it is written."""
        where = {"installed": "installed", "python": self.at, "image": f"image:{self.at}"}[self.kind]
        return f"{self.name}={where}"


def read_environments(text: str) -> tuple[TrainerEnvironment, ...]:
    """Return what PITWALL_TRAINERS declares, in its order.

    Raises: TrainersMisread naming the entry that makes no sense.
    """
    entries = [entry.strip() for entry in re.split(r"[;\n]", text)]
    return tuple(_environment(entry) for entry in entries if entry)


def environment_of(trainer: str, version: str, environments: Sequence[TrainerEnvironment]) -> TrainerEnvironment | None:
    """Return the environment declared for this version of the trainer, else the one for all its versions, else None."""
    here = [environment for environment in environments if environment.trainer == trainer]
    exact = [environment for environment in here if environment.version == version]
    return next(iter(exact or [environment for environment in here if not environment.version]), None)


def to_text(environments: Sequence[TrainerEnvironment]) -> str:
    """Return environments as `read_environments` takes them."""
    return "; ".join(str(environment) for environment in environments)


def found_below(folder: Path) -> tuple[TrainerEnvironment, ...]:
    """Return the environments that `make trainer-env` finished in `folder`, by the names of their folders."""
    environments = []
    for stamp in sorted(folder.glob("*/pitwall.json")):
        trainer, _, version = stamp.parent.name.partition("-")
        python = stamp.parent / "bin" / "python"
        if trainer in trainers() and version in trainers()[trainer].versions and python.exists():
            environments.append(TrainerEnvironment(trainer=trainer, version=version, kind="python", at=str(python)))
    return tuple(environments)


def how_to_make(trainer: str, version: str) -> str:
    """Return what to do where no environment has it, as the end of a sentence."""
    return (
        f"make an environment with `make trainer-env TRAINER={trainer} VERSION={version}`, or name the interpreter "
        f"that has it: {VARIABLE}='{trainer}-{version}=/srv/{trainer}/bin/python'"
    )


def _environment(entry: str) -> TrainerEnvironment:
    name, sign, where = (part.strip() for part in entry.partition("="))
    trainer, _, version = name.partition("-")
    others = [key for key, info in trainers().items() if info.package]
    if not sign or not where:
        raise TrainersMisread(f"{VARIABLE} has the entry {entry!r}. Write <trainer>-<version>=<place>.")
    if trainer not in others:
        raise TrainersMisread(f"{VARIABLE} names a trainer {trainer!r}. Known: {', '.join(others)}.")
    versions = trainers()[trainer].versions
    if version and version not in versions:
        raise TrainersMisread(
            f"{VARIABLE} names {name!r}; versions of {trainer} that are known: {', '.join(versions)}."
        )
    if where == "installed":
        return TrainerEnvironment(trainer=trainer, version=version, kind="installed")
    if where.startswith("image:"):
        image = where.removeprefix("image:").strip()
        if not image or any(c.isspace() for c in image):
            raise TrainersMisread(f"{VARIABLE} names no image for {name}: {where!r}. Write image:<name>:<tag>.")
        return TrainerEnvironment(trainer=trainer, version=version, kind="image", at=image)
    if not PurePosixPath(where).is_absolute():
        raise TrainersMisread(
            f"{VARIABLE} says that {name} is at {where!r}. Give the absolute path of a Python interpreter, "
            "installed, or image:<name>."
        )
    return TrainerEnvironment(trainer=trainer, version=version, kind="python", at=where)
