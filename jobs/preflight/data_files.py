"""Data files given to the console: streamed to disk under their hash, one row a project and content."""

import contextlib
import hashlib
import os
import secrets
import time
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path, PurePosixPath

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.utils.translation import gettext as _

from jobs.accounts.audit import record
from jobs.models import Project, Upload
from jobs.preflight.inputs import uploads_dir

ENDINGS = (".jsonl", ".json", ".csv", ".parquet")
_PARQUET_MARK = b"PAR1"
_STALE_SECONDS = 86_400


class UploadRefused(ValueError):
    """The file is not taken; the text says why and what to do."""


class NoRoomForUpload(UploadRefused):
    """There is no disk space for the file."""


def store_upload(
    *, project: Project, file_name: str, chunks: Iterable[bytes], user: AbstractBaseUser | None, now: datetime
) -> Upload:
    """Write the file under its SHA-256 and return its row; the same content twice is the same upload.

    Nothing is left behind when it is refused. Raises: UploadRefused, NoRoomForUpload.
    """
    name = PurePosixPath(file_name.replace("\\", "/")).name[-255:]
    if not name.lower().endswith(ENDINGS):
        text = _(
            "%(name)r is no JSONL, JSON, CSV or Parquet. Upload a file that ends in .jsonl, .json, .csv or .parquet."
        )
        raise UploadRefused(text % {"name": name or file_name})
    folder = uploads_dir()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _sweep(folder)
    part = folder / f".{secrets.token_hex(8)}.part"
    try:
        sha256, size = _write(part, chunks, name)
        part.replace(folder / sha256)
    except OSError as error:
        text = _("The console's disk cannot take %(name)s: %(why)s. Free some space in %(folder)s.")
        raise NoRoomForUpload(
            text % {"name": name, "why": os.strerror(error.errno or 0), "folder": folder.name}
        ) from error
    finally:
        part.unlink(missing_ok=True)
    with transaction.atomic():
        defaults = {"file_name": name, "size": size, "created_by_id": user.pk if user else None, "created_at": now}
        upload, is_new = Upload.objects.get_or_create(project=project, sha256=sha256, defaults=defaults)
        if is_new:
            record(actor=user, verb="upload.create", object_type="upload", object_id=sha256, after={"name": name})
    return upload


def _sweep(folder: Path) -> None:
    """Remove what a console that was killed in the middle of an upload has left."""
    for part in folder.glob(".*.part"):
        with contextlib.suppress(FileNotFoundError):
            if time.time() - part.stat().st_mtime > _STALE_SECONDS:
                part.unlink()


def _write(part: Path, chunks: Iterable[bytes], name: str) -> tuple[str, int]:
    digest = hashlib.sha256()
    size = 0
    head = tail = b""
    with part.open("xb") as file:
        for chunk in chunks:
            size += len(chunk)
            if size > settings.MAX_UPLOAD_BYTES:
                text = _("%(name)s is larger than %(most)s MiB. Put it on the cluster and name its path instead.")
                raise UploadRefused(text % {"name": name, "most": settings.MAX_UPLOAD_BYTES >> 20})
            digest.update(chunk)
            file.write(chunk)
            head = (head + chunk)[:4] if len(head) < 4 else head
            tail = (tail + chunk)[-4:]
        file.flush()
        os.fsync(file.fileno())
    if size == 0:
        raise UploadRefused(_("%(name)s is empty. Upload a file with rows.") % {"name": name})
    is_parquet = head == _PARQUET_MARK
    if name.lower().endswith(".parquet") and not (is_parquet and tail == _PARQUET_MARK):
        raise UploadRefused(_("%(name)s is not a Parquet file, or it was cut off. Upload it again.") % {"name": name})
    if is_parquet and not name.lower().endswith(".parquet"):
        raise UploadRefused(_("%(name)s is a Parquet file. Rename it to end in .parquet.") % {"name": name})
    return digest.hexdigest(), size
