"""Data files given to the console: streamed to disk under their hash, one row a project and content."""

import contextlib
import fcntl
import hashlib
import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePosixPath

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.utils.translation import gettext as _

from jobs.accounts.audit import record
from jobs.models import ENDED, Project, Run, Upload
from jobs.preflight.inputs import uploads_dir
from jobs.storage import floor, quotas

ENDINGS = (".jsonl", ".json", ".csv", ".parquet")
_PARQUET_MARK = b"PAR1"
_STALE_SECONDS = 86_400


class UploadRefused(ValueError):
    """The file is not taken; the text says why and what to do."""


class NoRoomForUpload(UploadRefused):
    """There is no disk space for the file."""


class UploadInUse(Exception):
    """Runs that wait or train name the file; the text says which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadRun:
    """A run that names a data file."""

    id: str
    name: str
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptUpload:
    """A data file of a project, and the runs that name it, the newest first; `num_open` of them have not ended."""

    row: Upload
    runs: tuple[UploadRun, ...]

    @property
    def num_open(self) -> int:
        """How many of its runs wait or train."""
        return sum(run.state not in ENDED for run in self.runs)


def store_upload(
    *,
    project: Project,
    file_name: str,
    chunks: Iterable[bytes],
    user: AbstractBaseUser | None,
    now: datetime,
    size: int = 0,
) -> Upload:
    """Write the file under its SHA-256 and return its row; the same content twice is the same upload.

    `size`: its bytes where they are known before. Nothing is left behind when it is refused.
    Raises: UploadRefused, NoRoomForUpload.
    """
    name = PurePosixPath(file_name.replace("\\", "/")).name[-255:]
    if not name.lower().endswith(ENDINGS):
        text = _(
            "%(name)r is no JSONL, JSON, CSV or Parquet. Upload a file that ends in .jsonl, .json, .csv or .parquet."
        )
        raise UploadRefused(text % {"name": name or file_name})
    folder = uploads_dir()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    sweep_parts(folder, now=now)
    part = folder / f".{secrets.token_hex(8)}.part"
    try:
        quotas.require_upload(size, project=project, user=user)  # before a byte is written; it is asked again below
        sha256, size = _write(part, chunks, name)
        with _sole(folder):
            return _keep(part, project=project, name=name, sha256=sha256, size=size, user=user, now=now)
    except quotas.QuotaReached as error:
        raise UploadRefused(str(error)) from error
    except floor.NoRoom as error:
        raise NoRoomForUpload(str(error)) from error
    except OSError as error:
        text = _("The console's disk cannot take %(name)s: %(why)s. Free some space in %(folder)s.")
        raise NoRoomForUpload(
            text % {"name": name, "why": os.strerror(error.errno or 0), "folder": folder.name}
        ) from error
    finally:
        part.unlink(missing_ok=True)


def kept_uploads(project: Project) -> list[KeptUpload]:
    """Return the project's data files, the newest first, with the runs that use each."""
    runs: dict[str, list[UploadRun]] = {}
    named = Run.objects.filter(project=project, spec__data__kind="upload").order_by("-created_at", "-pk")
    for run_id, name, state, data in named.values_list("pk", "name", "state", "spec__data__id"):
        runs.setdefault(str(data), []).append(UploadRun(id=run_id, name=name, state=state))
    rows = Upload.objects.filter(project=project).select_related("created_by").order_by("-created_at", "-pk")
    return [KeptUpload(row=row, runs=tuple(runs.get(f"upload:{row.sha256}", ()))) for row in rows]


def delete_upload(*, upload: Upload, user: AbstractBaseUser | None, is_forced: bool = False) -> None:
    """Delete a data file of a project; its bytes go with the last project that has the same.

    Where it is forced, runs that wait for their turn with it fail with a sentence (jobs.runs.quota_holds).
    Raises: UploadInUse while a run that has not ended names it, unless it is forced.
    """
    named = Run.objects.filter(project_id=upload.project_id, spec__data__id=f"upload:{upload.sha256}")
    with _sole(uploads_dir()), transaction.atomic():
        open_runs = list(named.exclude(state__in=ENDED).order_by("-created_at").values_list("pk", flat=True))
        if open_runs and not is_forced:
            text = _("%(name)s is used by %(runs)s, which have not ended. Stop them first, or force the deletion.")
            shown = ", ".join(open_runs[:5]) + (" …" if len(open_runs) > 5 else "")
            raise UploadInUse(text % {"name": upload.file_name, "runs": shown})
        before = {"name": upload.file_name, "size": upload.size, "runs": open_runs[:50]}
        upload.delete()
        record(
            actor=user,
            verb="upload.delete",
            object_type="upload",
            object_id=upload.sha256,
            label=upload.file_name,
            project=upload.project,
            before=before,
        )
        is_last = not Upload.objects.filter(sha256=upload.sha256).exists()
        if is_last:  # only once it is certain: a file too many is better than a row without one
            transaction.on_commit(lambda: (uploads_dir() / upload.sha256).unlink(missing_ok=True))


def _keep(
    part: Path, *, project: Project, name: str, sha256: str, size: int, user: AbstractBaseUser | None, now: datetime
) -> Upload:
    """Put a whole file in its place, if it is new to the project and the quotas still have room for it."""
    with transaction.atomic():
        quotas.lock(project, user)
        upload = Upload.objects.filter(project=project, sha256=sha256).first()
        if upload is None:
            quotas.require_upload(size, project=project, user=user)
            author = user.pk if user else None
            upload = Upload.objects.create(
                project=project, sha256=sha256, file_name=name, size=size, created_by_id=author, created_at=now
            )
            record(
                actor=user,
                verb="upload.create",
                object_type="upload",
                object_id=sha256,
                label=name,
                project=project,
                after={"name": name, "size": size},
            )
        part.replace(part.parent / sha256)
    return upload


@contextmanager
def _sole(folder: Path) -> Iterator[None]:
    """Let nobody else make or drop rows of files here: what one project deletes another may just bring."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def sweep_parts(folder: Path, *, now: datetime) -> int:
    """Remove what a console that was killed in the middle of an upload has left; return how many files that were."""
    num_removed = 0
    for part in folder.glob(".*.part"):
        with contextlib.suppress(FileNotFoundError):
            if now.timestamp() - part.stat().st_mtime > _STALE_SECONDS:
                part.unlink()
                num_removed += 1
    return num_removed


def _write(part: Path, chunks: Iterable[bytes], name: str) -> tuple[str, int]:
    digest = hashlib.sha256()
    size = 0
    head = tail = b""
    with part.open("xb") as file:
        for chunk in chunks:
            floor.require_room(len(chunk))
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
