"""How a trainer is started: what its `command.py` makes of a spec."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How to start a trainer: never a shell string, never a secret.

    `env` is what is added to the runner's own environment; `files` are texts by path relative to the run directory, to
    be written before the start, and `copies` folders on this node that have to be there too, by such paths. The working
    directory is the run directory, or `working_dir` where a run has its own.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    copies: Mapping[str, Path] = field(default_factory=dict)
    working_dir: Path | None = None
