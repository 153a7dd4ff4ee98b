"""What every trainer's adapter promises: how a RunSpec becomes an argument vector, environment and files.

One file beside this one adds a trainer; it ends with `PLUGIN: Adapter = ...`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from jobs.catalog.runspec import RunSpec
from profiling import plugins


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How to start a trainer: never a shell string, never a secret.

    `env` is what is added to the runner's own environment; `files` are texts by path relative to the run directory, to
    be written before the start.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)


class Adapter(Protocol):
    """Knows one trainer's command line."""

    def command(self, *, spec: RunSpec, run_dir: Path, python: str, device: str) -> Launch:
        """Return how to start the trainer on `spec`.

        `run_dir` is the run directory on this node, `python` the interpreter that has the trainer, `device` one of
        auto, cpu and cuda. Nothing is read or written here.
        """
        ...


def adapter(name: str) -> Adapter:
    """Return the adapter of the trainer `name`.

    Raises: profiling.plugins.UnknownPlugin, naming the trainers there are.
    """
    plugin: Adapter = plugins.load(__package__, name)
    return plugin
