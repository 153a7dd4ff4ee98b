"""What a trainer's own profiling has written: the shape that every adapter tells it in."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MAX_DEPTH = 4
MAX_LOOKED_AT = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedFile:
    """A file below the run directory; `size` in bytes as it is now, `step` 0 where its name does not tell."""

    path: Path
    size: int
    role: str
    rank: int = 0
    step: int = 0


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
