"""What the runner asks of a trainer to record it: `captures.py` of the trainer's folder."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from jobs.catalog.spec.runspec import RunSpec

MAX_DEPTH = 4
MAX_LOOKED_AT = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureFile:
    """A file below the run directory; `size` in bytes as it is now, `step` 0 where its name does not tell."""

    path: Path
    size: int
    role: str
    rank: int = 0
    step: int = 0


class Captures(Protocol):
    """How one trainer's processes and the files of its own profiler are told apart."""

    def role_of(self, *, spec: RunSpec, actor: str) -> str:
        """Return the role of a process that trains or generates, by the class of the Ray actor that it is.

        `actor` is "" for a process that is none; the role is "" for one that is not to be recorded.
        """
        ...

    def files(self, *, run_dir: Path) -> Sequence[CaptureFile]:
        """Return the files that the trainer's own profiler has written so far; () where it has none."""
        ...


class NoCaptures:
    """A trainer that records its workers and announces the files itself."""

    def role_of(self, *, spec: RunSpec, actor: str) -> str:  # noqa: ARG002
        """See Captures."""
        return ""

    def files(self, *, run_dir: Path) -> Sequence[CaptureFile]:  # noqa: ARG002
        """See Captures."""
        return ()


def files_below(folder: Path) -> Iterator[tuple[Path, int]]:
    """Yield path and size of the plain files below a folder, in the order of their names; links are passed over.

    What cannot be read is left out: it may be there at the next look.
    """
    looked_at = 0
    for place, folders, names in os.walk(folder):
        folders.sort()
        if len(Path(place).relative_to(folder).parts) >= MAX_DEPTH:
            folders.clear()
        for name in sorted(names):
            looked_at += 1
            if looked_at > MAX_LOOKED_AT:
                return
            path = Path(place) / name
            try:
                if path.is_file() and not path.is_symlink():
                    yield path, path.stat().st_size
            except OSError:
                continue
