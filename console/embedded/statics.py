"""Collect static files once per change: hashing and compressing them takes seconds that a start does not have."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

STAMP = "collected.sha256"


def fingerprint(directories: Iterable[Path]) -> str:
    """Return a digest of every file's name, size and time of change below the directories."""
    digest = hashlib.sha256()
    for directory in directories:
        for path in sorted(directory.rglob("*")):
            if path.is_file():
                stat = path.stat()
                digest.update(f"{path}\0{stat.st_size}\0{stat.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def is_current(root: Path, wanted: str) -> bool:
    """Return whether `root` was collected from exactly these files."""
    stamp = root / STAMP
    return stamp.exists() and stamp.read_text() == wanted


def collect_if_changed(directories: Iterable[Path], root: Path) -> bool:
    """Run collectstatic if any file changed since it last did; return whether it ran."""
    from django.core.management import call_command

    wanted = fingerprint(directories)
    if is_current(root, wanted):
        return False
    (root / STAMP).unlink(missing_ok=True)  # an interrupted run counts as none
    call_command("collectstatic", interactive=False, clear=True, verbosity=0)
    root.mkdir(parents=True, exist_ok=True)
    (root / STAMP).write_text(wanted)
    return True
