"""Put a backup back: checked first, never over something that is in use or holds data unless told to."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any

import redis
from django.conf import settings
from django.core.management import call_command
from django.db import connection
from django.db.migrations.loader import MigrationLoader

from jobs.backup import database
from jobs.backup.backup import FILES, MANIFEST, SECRET, read_manifest, sha256_of
from jobs.backup.problem import BackupRefused
from jobs.telemetry.streams import client


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreDone:
    """What was put back. `kept_aside`: what stood there before. `migrated`: the backup was of an older release.

    `secret`: "restored", "same", or "differs" where PITWALL_SECRET_KEY says another one than the backup.
    `is_queue_emptied` is False where Redis could not be asked.
    """

    taken_at: str
    live: Sequence[Mapping[str, Any]]
    missing: Sequence[str]
    kept_aside: tuple[Path, ...]
    migrated: bool
    secret: str
    is_queue_emptied: bool


def check_backup(folder: Path) -> Any:
    """Return the manifest if all that it names is there with the right checksum, and this release can read it.

    Raises: BackupRefused naming what is wrong.
    """
    manifest = read_manifest(folder)
    for name in (database.name_of(manifest["database"]), SECRET):
        if name not in manifest["files"]:
            raise BackupRefused(f"{MANIFEST} in {folder} does not name {name}, so it is no backup of ours.")
    for name, described in manifest["files"].items():
        path = folder / name
        if not _is_inside(name, path, folder):
            raise BackupRefused(f"{name!r} in {MANIFEST} leads out of {folder}. This is no backup of ours.")
        if not path.is_file():
            raise BackupRefused(f"{name} is missing in {folder}.")
        if path.stat().st_size != described["size"] or sha256_of(path) != described["sha256"]:
            raise BackupRefused(f"{name} in {folder} is not what was backed up: its checksum differs.")
    if manifest["database"] != connection.vendor:
        text = f"The backup is of {manifest['database']}, this console uses {connection.vendor}. Set DATABASE_URL."
        raise BackupRefused(text)
    readable = {f"{app}.{name}" for app, name in MigrationLoader(None).disk_migrations}
    newer = sorted(name for name in manifest["migrations"] if name not in readable)
    if newer:
        raise BackupRefused(f"The backup is of a newer release ({newer[0]}). Install that one, then restore.")
    return manifest


def _is_inside(name: str, path: Path, folder: Path) -> bool:
    """Return whether a name of a manifest is a plain path below the backup, and no link on the way leads elsewhere."""
    is_plain = name == PurePosixPath(name).as_posix() and not name.startswith("/") and ".." not in Path(name).parts
    return is_plain and path.resolve() == folder.resolve() / name


def restore_backup(folder: Path, *, now: datetime, replace: bool = False) -> RestoreDone:
    """Put a backup into this console's data directory and database; with `replace` over what is there.

    Files that were there are moved aside, not deleted; a SQLite database too, one on PostgreSQL is overwritten.
    Raises: BackupRefused; OSError.
    """
    manifest = check_backup(folder)
    database.require_unused()
    files_dir = Path(settings.FILES_DIR)
    has_files = files_dir.is_dir() and any(path.is_file() for path in files_dir.rglob("*"))
    if not replace and (has_files or not database.is_empty()):
        what = "files" if has_files else "its database"
        raise BackupRefused(f"{settings.DATA_DIR} is in use: there are {what}. Say --replace to put them aside.")
    aside = _put_aside(files_dir, now)
    for name in manifest["files"]:
        if name.startswith(f"{FILES}/"):
            target = files_dir / name.removeprefix(f"{FILES}/")
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            shutil.copy2(folder / name, target)
    secret = _restore_secret(folder)
    database.load(folder / database.name_here())
    before = set(manifest["migrations"])
    call_command("migrate", interactive=False, verbosity=0)
    applied = {f"{app}.{name}" for app, name in MigrationLoader(connection).applied_migrations}
    database.skip_command_numbers()
    return RestoreDone(
        taken_at=manifest["taken_at"],
        live=manifest["live"],
        missing=manifest["missing"],
        kept_aside=aside,
        migrated=any(name not in before and name.startswith("jobs.") for name in applied),
        secret=secret,
        is_queue_emptied=_empty_queue(),
    )


def _put_aside(files_dir: Path, now: datetime) -> tuple[Path, ...]:
    """Move what a restore would overwrite to names of its own, and return these."""
    mark = f".before-{now:%Y%m%d-%H%M%S}"
    paths = [files_dir]
    if connection.vendor == "sqlite":
        connection.close()
        paths += [Path(f"{connection.settings_dict['NAME']}{suffix}") for suffix in ("", "-wal", "-shm")]
    moved = []
    for path in paths:
        if path.exists():
            moved.append(path.rename(path.with_name(f"{path.name}{mark}")))
    return tuple(moved)


def _restore_secret(folder: Path) -> str:
    """Put the secret key back, where it is this directory's and not the environment's."""
    held = (folder / SECRET).read_text(encoding="utf-8").strip()
    if held == settings.SECRET_KEY:
        return "same"
    path = Path(settings.DATA_DIR) / "secret_key"
    if not path.exists() or path.read_text(encoding="utf-8").strip() != settings.SECRET_KEY:
        return "differs"  # PITWALL_SECRET_KEY is set: the operator's word goes
    draft = path.with_name("secret_key.restoring")
    draft.touch(mode=0o600)
    draft.write_text(held, encoding="utf-8")
    draft.replace(path)
    return "restored"


def _empty_queue() -> bool:
    """Forget what Redis has of batches and of their numbers: they belong to what was there before.

    A runner asked for a batch that Redis believed to have would wait for ever otherwise.
    """
    try:
        with client() as queue:
            keys = list(queue.scan_iter("pitwall:*"))
            if keys:
                queue.delete(*keys)
    except redis.RedisError:
        return False
    return True
