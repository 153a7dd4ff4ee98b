"""Files of captures in a run directory: where workers make them, where they go, how they are told of; and what a worker
that is gone has left of one.

Workers record to `traces/.recording/<capture>-<worker>...` on their node; what is handed over stands in
`traces/<capture>/<worker>...` on the driver's. A file that stands under its own name is whole, with one exception: a
report of nsys, which its tool looks at.
"""

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from profiling.captures.request import CaptureRequest
from profiling.recorders.recorder import load_tool, version_of

_PIECE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureWindow:
    """What a capture's files have in common: the tool, and the steps that it recorded."""

    capture: str
    tool: str
    first_step: int
    num_steps: int

    @classmethod
    def of(cls, request: CaptureRequest) -> "CaptureWindow":
        """Return what a request says of its files."""
        return cls(
            capture=request.capture, tool=request.tool, first_step=request.first_step, num_steps=request.num_steps
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftFile:
    """A file that was found in the folder of recordings; `problem` says why it is of no use, "" if it is whole."""

    size: int
    problem: str
    tool_version: str


def recordings(run_dir: Path) -> Path:
    """Return the folder in which a node's workers make their files."""
    return run_dir / "traces" / ".recording"


def leaving_sign(folder: Path, pid: int | str) -> Path:
    """Return the file that is there while a process that ends writes its recording into this folder."""
    return folder / f".leaving-{pid}"


def stem(capture: str, worker: str) -> str:
    """Return how the names of a worker's files begin while they are made."""
    return f"{capture}-{worker}"


def final_path(run_dir: Path, capture: str, name: str) -> Path:
    """Return where the file of that name, with its capture before the worker, stands once it can be handed over."""
    return run_dir / "traces" / capture / name.removeprefix(f"{capture}-")


def is_of(name: str, capture: str, worker: str) -> bool:
    """Return True if a file of that name was made by the worker, or by a process of its own (`vllm-0-worker1`)."""
    return name.startswith((f"{stem(capture, worker)}.", f"{stem(capture, worker)}-worker"))


def announcement(
    window: CaptureWindow, path: Path, *, role: str, rank: int, tool_version: str, size: int, sha256: str
) -> dict[str, Any]:
    """Return what an `artifact` event says of a capture's file at `path`, as the arguments of a report's `artifact`."""
    return {
        "name": f"{window.capture}-{path.name}",
        "artifact": "trace",
        "path": f"traces/{window.capture}/{path.name}",
        "step": window.first_step,
        "size": size,
        "capture": window.capture,
        "role": role,
        "rank": rank,
        "tool": window.tool,
        "tool_version": tool_version,
        "first_step": window.first_step,
        "num_steps": window.num_steps,
        "sha256": sha256,
    }


def missing_text(problems: Mapping[str, str]) -> str:
    """Return who has no file and why, for a sentence: each reason once, with all who have it."""
    by_reason: dict[str, list[str]] = {}
    for name, problem in sorted(problems.items()):
        by_reason.setdefault(problem, []).append(name)
    return " ".join(f"{', '.join(names)}: {reason}" for reason, names in by_reason.items())


def sha256_of(path: Path) -> str:
    """Return the checksum of a file, in hexadecimal digits. Raises: OSError."""
    digest = hashlib.sha256()
    with path.open("rb") as file:  # hashlib.file_digest is not in Python 3.10, which trainers may have
        while piece := file.read(_PIECE_BYTES):
            digest.update(piece)
    return digest.hexdigest()


def left(run_dir: Path, tools: Mapping[str, str], *, secrets: Collection[bytes]) -> dict[str, LeftFile]:
    """Return by name the files of captures (id -> tool) that workers left here; to be called when these are gone.

    Secrets are taken out of a file that its worker could not look through any more.
    """
    folder = recordings(run_dir)
    found: dict[str, LeftFile] = {}
    for capture, tool in tools.items():
        chosen = load_tool(tool)
        version = ""
        for name, problem in chosen.gather(folder, capture).items():
            found[name] = LeftFile(size=0, problem=problem, tool_version="")
        for path in sorted(folder.glob(f"{capture}-*{chosen.suffix}")):
            try:
                problem = chosen.problem_of_left(path, secrets)
                version = version or version_of(chosen)
                found[path.name] = LeftFile(size=path.stat().st_size, problem=problem, tool_version=version)
            except OSError as error:
                found[path.name] = LeftFile(
                    size=0, problem=f"The file cannot be read: {error.strerror}.", tool_version=""
                )
    return found
