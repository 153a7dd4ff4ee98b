"""Traces that people bring: files of other runs and other tools, sent in pieces; and what may be deleted.

A file is sent piece by piece, so that a broken connection costs a piece: each one begins where the file ends so far.
"""

import fcntl
import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path, PurePosixPath

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.utils.translation import gettext as _

from jobs.accounts.audit import record
from jobs.catalog.value import is_storable
from jobs.models import Layer, Project, Run, Trace
from jobs.storage import floor, quotas
from jobs.traces.imports import delete_folder, notify, send, source_path, trace_folder
from profiling.counted import counted
from profiling.trace.importing import reader_of
from profiling.trace.limits import Unreadable

MAX_PIECE_BYTES = 8 << 20
MOST_FILES = 64
MAX_NAME_CHARS = 200
_ENOUGH_BYTES = 1 << 20  # tell the kind of a file, but of a database
_DATABASE = b"SQLite format 3\0"
_CONTAINERS = (_DATABASE, b"PK")


class TraceRefused(ValueError):
    """What was asked cannot be done; `field` names what is wrong with it, the text says why and what to do."""

    def __init__(self, field: str, text: str, *, is_conflict: bool = False) -> None:
        self.field = field
        self.is_conflict = is_conflict
        super().__init__(text)


class TraceOffsetWrong(ValueError):
    """The piece does not begin where the file ends so far; `received` says where."""

    def __init__(self, received: int) -> None:
        self.received = received
        super().__init__(_("%(n)s bytes have arrived; continue from there.") % {"n": received})


class NoRoomForTrace(TraceRefused):
    """There is no disk space for the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileAnnouncement:
    """A file that is about to be sent: its name and its size in bytes."""

    name: str
    size: int


def create_trace(
    *,
    project: Project,
    name: str,
    files: Sequence[FileAnnouncement],
    run: Run | None,
    user: AbstractBaseUser | None,
    now: datetime,
) -> Trace:
    """Make a trace of files that are about to be sent; each becomes a layer on one clock. Raises: TraceRefused."""
    if not 1 <= len(files) <= MOST_FILES:
        text = _("%(n)s files are announced. A trace has 1 to %(most)s.")
        raise TraceRefused("files", text % {"n": len(files), "most": MOST_FILES})
    names = [_file_name(file.name) for file in files]
    for file_name, file in zip(names, files, strict=True):
        _check_size(file_name, file.size)
    title = name.strip() or names[0][:MAX_NAME_CHARS]
    if len(title) > MAX_NAME_CHARS or any(ord(c) < 32 for c in title) or not is_storable(title):
        text = _("%(given)r is not a name. Use 1 to %(most)s characters on one line.")
        raise TraceRefused("name", text % {"given": name[:200], "most": MAX_NAME_CHARS})
    wanted = sum(file.size for file in files)
    _check_free_space(wanted)
    actor_id = user.pk if user else None
    with transaction.atomic():
        quotas.lock(project, user)  # two at once would both find the last bytes free
        _check_quota(project, wanted, user)
        trace = Trace.objects.create(project=project, run=run, name=title, created_by_id=actor_id, created_at=now)
        Layer.objects.bulk_create(
            Layer(trace=trace, file_name=file_name, size=file.size, state="uploading", created_at=now)
            for file_name, file in zip(names, files, strict=True)
        )
        after = {"name": title, "files": names}
        record(actor=user, verb="trace.create", object_type="trace", object_id=trace.pk, after=after)
    return trace


def receive(*, layer: Layer, offset: int, data: bytes, now: datetime) -> Layer:
    """Take the next piece of an announced file and return its layer; the last one queues the import.

    A piece that is here already is not written again. Raises: TraceOffsetWrong; TraceRefused where the file is of
    no known kind, too long, or here already; NoRoomForTrace.
    """
    if len(data) > MAX_PIECE_BYTES:
        raise TraceRefused("", _("A chunk may have at most %(n)s bytes. Send smaller ones.") % {"n": MAX_PIECE_BYTES})
    trace_folder(layer.trace).mkdir(mode=0o700, parents=True, exist_ok=True)
    path = source_path(layer)
    with _sole(path.with_suffix(".lock")):
        layer.refresh_from_db()
        if layer.state != "uploading":
            text = _("%(name)s is here already.") % {"name": layer.file_name}
            raise TraceRefused("", text, is_conflict=True)
        if offset != layer.received:
            raise TraceOffsetWrong(layer.received)
        if not data or offset + len(data) > layer.size:
            text = _("%(n)s bytes from %(offset)s on do not fit into a file of %(size)s bytes.")
            raise TraceRefused("offset", counted(text % {"n": len(data), "offset": offset, "size": layer.size}))
        _check_free_space(len(data))
        _append(path, offset, data)
        done = offset + len(data)
        if done == layer.size or offset < _ENOUGH_BYTES <= done:
            why = _why_unknown(path)
            if why:
                path.unlink(missing_ok=True)
                Layer.objects.filter(pk=layer.pk).update(state="failed", problem=why[:500], ended_at=now)
                notify(layer.trace_id)
                raise TraceRefused("files", why)
        layer.received = done
        values: dict[str, object] = {"received": layer.received}
        if layer.received == layer.size:
            with path.open("rb") as file:
                layer.sha256 = hashlib.file_digest(file, "sha256").hexdigest()
            layer.state = "queued"
            values |= {"sha256": layer.sha256, "state": "queued", "created_at": now}
        with transaction.atomic():
            Layer.objects.filter(pk=layer.pk).update(**values)
            if layer.state == "queued":
                send(layer.pk)
            notify(layer.trace_id)
    return layer


def delete_trace(*, trace: Trace, user: AbstractBaseUser | None) -> None:
    """Delete an uploaded trace with its files and stores. There is no way back.

    Raises: TraceRefused for that of a capture, which goes with its capture.
    """
    if trace.capture_id is not None:
        text = _("This trace belongs to capture %(id)s of its run. Delete the capture there; the trace goes with it.")
        raise TraceRefused("", text % {"id": trace.capture_id}, is_conflict=True)
    with transaction.atomic():
        before = {"name": trace.name, "files": list(trace.layers.values_list("file_name", flat=True))}
        deleted = Trace(pk=trace.pk, run_id=trace.run_id)
        trace.delete()
        record(
            actor=user,
            verb="trace.delete",
            object_type="trace",
            object_id=deleted.pk,
            before=before,
            project=trace.project,
            label=trace.name,
        )
        transaction.on_commit(partial(delete_folder, deleted))
        notify(deleted.pk)


def _file_name(text: str) -> str:
    """Return the last part of a name, in characters that can be shown and stored. Raises: TraceRefused."""
    name = PurePosixPath(text.replace("\\", "/")).name[-255:]
    if name in ("", ".", "..") or not is_storable(name) or any(ord(c) < 32 for c in name):
        raise TraceRefused("files", _("%(name)r is not a file name. Rename the file.") % {"name": text[:200]})
    return name


def _check_size(name: str, size: int) -> None:
    if size < 1:
        raise TraceRefused("files", _("%(name)s is empty. Choose a file with a trace.") % {"name": name})
    if size > settings.MAX_TRACE_BYTES:
        text = _("%(name)s is larger than %(most)s MiB. Record fewer steps or fewer ranks.")
        raise TraceRefused("files", text % {"name": name, "most": settings.MAX_TRACE_BYTES >> 20})


def _why_unknown(path: Path) -> str:
    """Return why a file, of which at least the beginning is here, is of no kind that can be looked at; "" if it is.

    Databases and archives are left to the importer: half of one cannot be opened, and a hostile one may keep whoever
    opens it busy for ever.
    """
    with path.open("rb") as file:
        if file.read(len(_DATABASE)).startswith(_CONTAINERS):
            return ""
    try:
        reader_of(path)
    except Unreadable as error:
        return str(error)
    return ""


def _check_free_space(size: int) -> None:
    try:
        floor.require_room(size)
    except floor.NoRoom as error:
        raise NoRoomForTrace("files", str(error)) from error


def _check_quota(project: Project, wanted: int, user: AbstractBaseUser | None) -> None:
    """Raise TraceRefused where uploads of a project, with what was made of them, would take more than they may."""
    layers = Layer.objects.filter(trace__project=project, trace__capture=None)
    taken = 0
    for size, received, state, facts in layers.values_list("size", "received", "state", "facts"):
        made = facts.get("bytes", 0) if isinstance(facts, dict) else 0
        taken += (received if state == "failed" else size) + (made if isinstance(made, int) else 0)
    most = settings.MAX_PROJECT_TRACE_BYTES
    if taken + wanted > most:
        text = _(
            "Uploaded traces of %(project)s take %(taken)s MiB of %(most)s MiB, and these files have %(size)s MiB. "
            "Delete traces that nobody needs, or let the operator raise PITWALL_MAX_PROJECT_TRACE_BYTES."
        )
        megabytes = {"taken": -(-taken >> 20), "most": most >> 20, "size": -(-wanted >> 20)}
        raise TraceRefused("files", text % {"project": project.slug, **megabytes})
    try:
        quotas.require_storage(wanted, project=project, user=user)
    except quotas.QuotaReached as error:
        raise TraceRefused("files", str(error)) from error


def _append(path: Path, offset: int, data: bytes) -> None:
    """Write the piece where the file ends so far; what a crash left above is cut off."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.ftruncate(fd, offset)
            done = 0
            while done < len(data):
                done += os.pwrite(fd, data[done:], offset + done)
            os.fsync(fd)
        finally:
            os.close(fd)
    except OSError as error:
        if error.errno in floor.FULL:
            raise NoRoomForTrace("files", _("The console's disk is full. Free some space, then go on.")) from error
        raise


@contextmanager
def _sole(path: Path) -> Iterator[None]:
    """Hold the file's lock: a piece that is sent again may arrive while the first one is still being written."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
