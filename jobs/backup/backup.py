"""Write a backup: the database at one moment, the files it knows, the secret key, and a manifest with all hashes.

A backup is a folder that appears whole: it is written beside its place and renamed last.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import connection

from jobs.backup import database
from jobs.backup.problem import BackupRefused
from jobs.models import Artifact

MANIFEST, FILES, SECRET = "manifest.json", "files", "secret_key"
FORMAT = 1
_NOT_KEPT = (".lock", ".tmp")
_PIECE = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupDone:
    """What a backup holds: bytes and files in all, how many of them another backup lent (`num_linked`), attempts that
    had not ended (`num_live`), and files that vanished while it was taken."""

    path: Path
    num_files: int
    num_bytes: int
    num_linked: int
    num_live: int
    missing: tuple[str, ...]


def write_backup(target: Path, *, now: datetime, link_to: Path | None = None) -> BackupDone:
    """Write a backup to the folder `target`, which must not exist or be empty.

    Files that stand unchanged in the backup `link_to` are hard-linked to it: files of runs never change.
    Raises: BackupRefused; OSError, as from a full disk.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise BackupRefused(f"{target} exists already and is not an empty folder. Name another one.")
    earlier = read_manifest(link_to)["files"] if link_to is not None else {}
    draft = target.with_name(f".{target.name}.part")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(mode=0o700, parents=True)
    files: dict[str, dict[str, Any]] = {}
    name = database.name_here()
    moment = database.dump(draft / name)
    (draft / name).chmod(0o600)
    files[name] = _described(draft / name)
    num_linked = 0
    for path in _own_files():
        inside = f"{FILES}/{path.relative_to(settings.FILES_DIR)}"
        try:
            lent = link_to / inside if link_to is not None else None
            is_linked, files[inside] = _keep(path, draft / inside, earlier.get(inside), lent)
        except FileNotFoundError:
            continue  # deleted meanwhile
        num_linked += is_linked
    _write(draft / SECRET, settings.SECRET_KEY.encode())
    files[SECRET] = _described(draft / SECRET)
    missing = [name for name in map(_inside, moment.ready) if name not in files]
    manifest = {
        "format": FORMAT,
        "taken_at": now.isoformat(),
        "database": connection.vendor,
        "migrations": moment.migrations,
        "live": moment.live,
        "missing": missing,
        "files": files,
    }
    _write(draft / MANIFEST, json.dumps(manifest, indent=1).encode())
    if target.exists():
        target.rmdir()
    draft.rename(target)
    num_bytes = sum(each["size"] for each in files.values())
    done = {"num_files": len(files), "num_bytes": num_bytes, "num_linked": num_linked, "num_live": len(moment.live)}
    return BackupDone(path=target, **done, missing=tuple(missing))


def read_manifest(folder: Path) -> Any:
    """Return the manifest of a backup. Raises: BackupRefused if there is none, or it is of another format."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        number = manifest["format"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BackupRefused(f"{folder} is no backup: {MANIFEST} is not there or cannot be read.") from error
    if number != FORMAT:
        raise BackupRefused(f"{folder} has the format {number}, this console reads {FORMAT}. Use the newer release.")
    return manifest


def sha256_of(path: Path) -> str:
    """Return the checksum of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _described(path: Path) -> dict[str, Any]:
    return {"size": path.stat().st_size, "sha256": sha256_of(path)}


def _own_files() -> Iterator[Path]:
    """Yield the console's files: uploads, artifacts in whole and in part, traces and their stores."""
    for base, _folders, names in os.walk(settings.FILES_DIR):
        for name in names:
            path = Path(base, name)
            if not name.endswith(_NOT_KEPT) and not path.is_symlink():
                yield path


def _keep(path: Path, target: Path, earlier: Any, lent: Path | None) -> tuple[bool, dict[str, Any]]:
    """Copy a file into the backup, or link it to the earlier backup where it is the same one by size and time."""
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    seen = path.stat()
    is_same = earlier is not None and (earlier["size"], earlier.get("mtime_ns")) == (seen.st_size, seen.st_mtime_ns)
    if is_same and lent is not None:
        try:
            target.hardlink_to(lent)
            return True, earlier
        except OSError:
            pass  # another file system, or that backup is damaged
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as source, target.open("xb") as copy:
        while piece := source.read(_PIECE):
            digest.update(piece)
            size += len(piece)
            copy.write(piece)
        copy.flush()
        os.fsync(copy.fileno())
    target.chmod(0o600)
    return False, {"size": size, "sha256": digest.hexdigest(), "mtime_ns": seen.st_mtime_ns}


def _inside(ready: tuple[str, int, int]) -> str:
    """Return where a backup has a file of a run."""
    run, attempt, number = ready
    path = Artifact(pk=number, run_id=run, attempt=attempt).stored_path
    return f"{FILES}/{path.relative_to(settings.FILES_DIR)}"


def _write(path: Path, content: bytes) -> None:
    """Write a file that nobody else may read, for good."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
