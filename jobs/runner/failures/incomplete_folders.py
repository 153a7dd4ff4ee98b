"""What a trainer that was killed leaves half done: folders that it was about to put into place.

The trainer fills `.<name>.draft` and, where `<name>` is there already, moves that to `.<name>.old` before the
incomplete folder takes its place (jobs/engine/atomic_folder.py).
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

_KEPT_IN = ("checkpoints", "model")


def tidy(run_dir: Path) -> list[str]:
    """Delete incomplete folders, put an old folder back where the new one did not get there; return the names of
    incomplete folders deleted.

    Only once the trainer has ended. A disk that refuses is left as it is: nobody reads these folders.
    """
    deleted = []
    for old in _hidden(run_dir, ".old"):
        final = old.with_name(old.name[1 : -len(".old")])
        if final.exists():
            shutil.rmtree(old, ignore_errors=True)
        else:
            old.rename(final)
    for partial in _hidden(run_dir, ".draft"):
        shutil.rmtree(partial, ignore_errors=True)
        deleted.append(f"{partial.parent.name}/{partial.name[1 : -len('.draft')]}")
    return deleted


def _hidden(run_dir: Path, suffix: str) -> Iterator[Path]:
    for folder in _KEPT_IN:
        yield from sorted((run_dir / folder).glob(f".*{suffix}"))
