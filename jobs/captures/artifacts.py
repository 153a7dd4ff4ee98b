"""The files that a run hands over: they arrive in pieces, are checked, and are then ready, whole or not at all.

On disk a file is named by its row's number, never by what a runner calls it, so no name can lead anywhere else.
"""

import errno
import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from django.db import transaction
from django.utils import timezone

from jobs.captures import captures
from jobs.models import Artifact, Run, RunEvent
from jobs.storage import floor, quotas

MAX_PIECE_BYTES = 8 << 20
MAX_FILE_BYTES = 1 << 40


class OffsetWrong(ValueError):
    """The piece does not begin where the file ends so far; `received` says where."""

    def __init__(self, received: int) -> None:
        self.received = received
        super().__init__(f"{received} bytes have arrived; continue from there.")


class ChecksumWrong(ValueError):
    """All bytes came, but they are not the announced ones; the file begins anew."""


class FileGone(LookupError):
    """The file's row was deleted while a piece arrived; nothing of it is left on disk."""


class DiskFull(OSError):
    """No disk space for the piece, or none that its project may take; the sentence says which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePiece:
    """One piece of a file, and what is said of the whole: `offset` and `size` in bytes, `sha256` of the whole."""

    offset: int
    size: int
    sha256: str
    type: str
    step: int
    path: str
    meta: dict[str, object]
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class FileProgress:
    """How much of a file is here."""

    received: int
    is_ready: bool


def progress(*, run_id: str, attempt: int, name: str) -> FileProgress:
    """Return how much of the file is here; 0 bytes of an unknown one."""
    row = Artifact.objects.filter(run_id=run_id, attempt=attempt, name=name).first()
    return FileProgress(received=row.received if row else 0, is_ready=bool(row and row.is_ready))


def ready_file(*, run_id: str, attempt: int, name: str) -> tuple[Artifact, Path] | None:
    """Return the ready file of that name, of this attempt or else of the newest earlier one."""
    rows = Artifact.objects.filter(run_id=run_id, attempt__lte=attempt, name=name, is_ready=True)
    for row in rows.order_by("-attempt"):
        path = row.stored_path
        if path.is_file():
            return row, path
    return None


def receive(*, run_id: str, attempt: int, name: str, piece: FilePiece) -> FileProgress:
    """Write one piece to disk for good and return how much is here; the last piece makes the file ready.

    A file whose announced checksum or size changed begins anew. The caller has checked `name`.
    Raises: OffsetWrong; ChecksumWrong; FileGone; DiskFull, with what was there before still there.
    """
    row, _ = Artifact.objects.get_or_create(
        run_id=run_id, attempt=attempt, name=name, defaults={"type": piece.type, "path": piece.path, "step": piece.step}
    )
    row.stored_path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        return _take(row, piece)
    except (Artifact.DoesNotExist, FileGone) as error:
        row.delete_bytes()
        raise FileGone(name) from error


def _take(row: Artifact, piece: FilePiece) -> FileProgress:
    part = row.stored_path.with_suffix(".part")
    with _sole(row.stored_path.with_suffix(".lock")):
        row.refresh_from_db()
        is_same = (row.sha256, row.size) == (piece.sha256, piece.size)
        if row.is_ready and is_same:
            return FileProgress(received=row.size, is_ready=True)
        if not is_same:
            _begin(row, piece)
        if piece.offset != row.received:
            raise OffsetWrong(row.received)
        _append(part, piece)
        _say(row, piece, received=piece.offset + len(piece.data), is_ready=False)
        if row.received == row.size:
            _complete(row, part, piece)
    return FileProgress(received=row.received, is_ready=row.is_ready)


def _begin(row: Artifact, piece: FilePiece) -> None:
    """Take note of a new file, if its project has room for it: from here on it is counted whole. Raises: DiskFull."""
    run = Run.objects.select_related("project", "created_by").get(pk=row.run_id)
    with transaction.atomic():
        quotas.lock(run.project, run.created_by)
        try:
            quotas.require_storage(piece.size - row.size, project=run.project, user=run.created_by)
        except quotas.QuotaReached as error:
            raise DiskFull(errno.EDQUOT, str(error)) from error
        _say(row, piece, received=0, is_ready=False)


def _append(part: Path, piece: FilePiece) -> None:
    try:
        floor.require_room(len(piece.data), of_a_run=piece.type != "trace")
        fd = os.open(part, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if os.fstat(fd).st_size > piece.offset:
                os.ftruncate(fd, piece.offset)  # what a crash left above the last byte that was counted
            done = 0
            while done < len(piece.data):
                done += os.pwrite(fd, piece.data[done:], piece.offset + done)
            os.fsync(fd)
        finally:
            os.close(fd)
    except floor.NoRoom as error:
        raise DiskFull(error.errno, str(error)) from error
    except OSError as error:
        if error.errno in floor.FULL:
            raise DiskFull(error.errno, "The console's disk is full.") from error
        raise


def _complete(row: Artifact, part: Path, piece: FilePiece) -> None:
    with part.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    if sha256 != piece.sha256:
        part.unlink()
        _say(row, piece, received=0, is_ready=False)
        raise ChecksumWrong(f"{row.name} arrived with the checksum {sha256}, not {piece.sha256}; send it again.")
    part.replace(row.stored_path)
    folder = os.open(part.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    now = timezone.now()
    with transaction.atomic():
        _say(row, piece, received=piece.size, is_ready=True)
        captures.file_arrived(row, now=now)
        if row.capture_id is not None:
            return  # its capture is told of, not each of its files
        step = row.step if row.step >= 0 else None
        text = f"{row.name} can be downloaded"
        RunEvent.objects.create(
            run_id=row.run_id, attempt=row.attempt, at=now, verb="artifact", text=text[:500], step=step
        )


def _say(row: Artifact, piece: FilePiece, *, received: int, is_ready: bool) -> None:
    row.received, row.is_ready, row.size, row.sha256 = received, is_ready, piece.size, piece.sha256
    row.type, row.path, row.step = piece.type, piece.path, piece.step
    row.meta = {**row.meta, **piece.meta}
    if row.capture_id is None:
        row.capture_id = captures.capture_of(run_id=row.run_id, attempt=row.attempt, meta=row.meta)
    fields = ("received", "is_ready", "size", "sha256", "type", "path", "step", "meta", "capture_id")
    if not Artifact.objects.filter(pk=row.pk).update(**{name: getattr(row, name) for name in fields}):
        raise FileGone(row.name)


def opens_in_perfetto(name: str) -> bool:
    """Return True if a file of this name is a trace in a format that Perfetto reads: torch's JSON, gzipped or not."""
    return name.lower().endswith((".json", ".json.gz"))


@contextmanager
def _sole(path: Path) -> Iterator[None]:
    """Hold the file's lock: a retried piece may arrive while the first one is still being written."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
