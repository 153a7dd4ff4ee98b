"""Layers of traces: where their files stand, and their way from a file to a store that can be looked at.

A file that arrived becomes a layer of its trace, and a message asks a worker to import it. The message may be lost or
come twice: each layer is taken once, and jobs.processes.reconcile sends again. An import runs in a process of its own,
which ends with the one that started it: what a hostile file does to a reader, it does to that process only. Whoever
imports a layer holds its claim and says every few seconds that it is at it; a claim that nobody spoke for is given away
by the reconciler, so that a killed worker costs seconds, not the trace.
"""

import contextlib
import json
import logging
import os
import secrets
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from celery import shared_task
from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.db.models import F
from django.utils import timezone
from django.utils.translation import gettext as _
from kombu.exceptions import OperationalError

from jobs.accounts.audit import record
from jobs.models import Artifact, Capture, Layer, Run, Trace
from jobs.storage.floor import room_for_people
from jobs.telemetry.notify import run_changed, trace_changed
from jobs.traces import turns
from jobs.traces.turns import LOST_AFTER
from profiling.counted import counted
from profiling.trace.store import NotAStore, Store

log = logging.getLogger(__name__)

TIMELESS = (".stacks.txt",)
"""Endings of files that hold no times, so that a timeline has nothing to show of them: they are downloads alone."""

SENT_AGAIN_AFTER = timedelta(seconds=5)  # for a worker to take what was sent
MOST_TRIES = 3
UPLOAD_WITHIN = timedelta(days=1)
_BEAT_SECONDS = 1.0
_GROWTH = 3  # a store takes so much more than a compressed trace, with what is sorted beside it
_LONGEST_LINE = 64 << 10


def trace_folder(trace: Trace) -> Path:
    """Return where everything of a trace stands: with its run's files, so that it goes with them."""
    home = Path(settings.FILES_DIR)
    return home / "runs" / trace.run_id / "traces" / trace.pk if trace.run_id else home / "traces" / trace.pk


def store_path(layer: Layer) -> Path:
    """Return where the layer's store stands once it is ready."""
    return trace_folder(layer.trace) / f"{layer.pk}.store"


def source_path(layer: Layer) -> Path:
    """Return where the layer's own file stands: a capture's with the run's files, an uploaded one with its trace."""
    return layer.artifact.stored_path if layer.artifact is not None else trace_folder(layer.trace) / str(layer.pk)


def disk_bytes(trace: Trace) -> int:
    """Return what the trace's own folder takes on disk; files of a capture are counted with the run."""
    total = 0
    with contextlib.suppress(FileNotFoundError):
        for entry in os.scandir(trace_folder(trace)):
            if entry.is_file(follow_symlinks=False):
                total += entry.stat(follow_symlinks=False).st_size
    return total


def delete_folder(trace: Trace) -> None:
    """Remove everything that a trace takes on disk."""
    shutil.rmtree(trace_folder(trace), ignore_errors=True)


def trace_of(capture: Capture) -> Trace:
    """Return the trace of a capture, made with the first call."""
    values = {"run_id": capture.run_id, "project_id": capture.run.project_id, "created_by_id": capture.created_by_id}
    return Trace.objects.get_or_create(capture=capture, defaults={**values, "name": capture.run.name[:200]})[0]


def add_file(artifact: Artifact) -> None:
    """Make the ready file of a capture a layer of its trace and queue it; again changes nothing."""
    if artifact.capture is None or artifact.name.endswith(TIMELESS):
        return
    trace = trace_of(artifact.capture)
    meta = artifact.meta if isinstance(artifact.meta, dict) else {}
    rank = meta.get("rank")
    values = {
        "trace": trace,
        "file_name": artifact.name.rpartition("/")[2][:255],
        "role": str(meta.get("role") or "")[:20],
        "rank": rank if isinstance(rank, int) and 0 <= rank < 2**31 else None,
        "size": artifact.size,
        "received": artifact.size,
        "sha256": artifact.sha256,
    }
    layer, is_new = Layer.objects.get_or_create(artifact=artifact, defaults=values)
    if is_new:
        send(layer.pk)
        notify(trace.pk)


def send(layer_id: int) -> None:
    """Ask a worker to import the layer, once the open transaction has committed; a broker away costs seconds."""

    def now() -> None:
        try:
            import_in_worker.apply_async(kwargs={"layer_id": layer_id}, retry=False)
        except (OperationalError, OSError) as error:
            log.warning("the broker is away, layer %s is left to the reconciler: %s", layer_id, error)

    transaction.on_commit(now)


def notify(trace_id: str) -> None:
    """Let open pages of the trace read it again, once the open transaction has committed."""
    transaction.on_commit(partial(trace_changed, trace_id))


@shared_task(name="jobs.tasks.import_layer")  # in messages, so it stays when the code moves
def import_in_worker(*, layer_id: int, **_extra: Any) -> None:
    """Celery's entry point. It may run twice or never; then jobs.processes.reconcile does its work."""
    import_layer(layer_id=layer_id)


def import_layer(*, layer_id: int) -> None:
    """Import a queued layer, whole or not at all; one that is taken, done or gone is left as it is."""
    layer = _take(layer_id, now=timezone.now())
    if layer is None:
        return
    try:
        with _workplace(layer) as folder:
            facts, problem = _import(layer, folder)
            _end(layer, facts, problem, made=folder / "store")
    finally:
        queue_lost(now=timezone.now())  # the next one in line


def import_again(*, layer: Layer, user: AbstractBaseUser | None = None) -> bool:
    """Queue a layer once more that has failed, or whose store may be damaged; True if this call did it.

    Until the new store is there the old one stays where it is: if the import fails and it is whole, it is shown again.
    """
    ended = Layer.objects.filter(pk=layer.pk, state__in=("failed", "ready"), received=layer.size)
    changed = ended.update(state="queued", problem="", progress=0, tries=0, ended_at=None, created_at=timezone.now())
    if changed:
        after = {"file": layer.file_name}
        record(actor=user, verb="trace.import", object_type="trace", object_id=layer.trace_id, after=after)
        send(layer.pk)
        _notify(layer)
    return bool(changed)


def queue_lost(*, now: datetime) -> None:
    """Send what may be imported now; take layers back from importers that are gone; find files nobody queued."""
    lost = Layer.objects.filter(state="importing", seen_at__lt=now - LOST_AFTER)
    for layer in list(lost.select_related("trace")):
        if layer.tries < MOST_TRIES:
            lost.filter(pk=layer.pk).update(state="queued", claim="", progress=0)
            continue
        text = _("The import stopped %(n)s times: its process was ended. Free some memory and import again.")
        values = _without_import(layer, text % {"n": layer.tries})
        if lost.filter(pk=layer.pk).update(claim="", ended_at=now, **values):
            _notify(layer)
    stale = Layer.objects.filter(state="uploading", created_at__lt=now - UPLOAD_WITHIN)
    if stale.exists():  # an update locks the database each time
        stale.update(state="failed", problem=_("The rest of the file never arrived. Delete this and upload again."))
    for pk in turns.next_layers(queued_before=now - SENT_AGAIN_AFTER):
        send(pk)
    arrived = Artifact.objects.filter(capture__isnull=False, is_ready=True, type="trace", layer=None)
    for ending in TIMELESS:
        arrived = arrived.exclude(name__endswith=ending)
    for artifact in arrived.select_related("capture__run__project")[:20]:
        with transaction.atomic():
            add_file(artifact)


def _take(layer_id: int, *, now: datetime) -> Layer | None:
    """Claim a queued layer if its turn has come; None if not."""
    layer = Layer.objects.select_related("trace", "artifact").filter(pk=layer_id, state="queued").first()
    if layer is None or not turns.is_its_turn(layer):
        return None
    claim = secrets.token_hex(8)
    num_taken = Layer.objects.filter(pk=layer_id, state="queued").update(
        state="importing", claim=claim, seen_at=now, progress=0, problem="", tries=layer.tries + 1
    )
    if not num_taken:
        return None
    layer.claim = claim
    notify(layer.trace_id)
    return layer


def _beat(layer: Layer, progress: float) -> bool:
    """Say that the import goes on; False if it is not ours any more: deleted, or given to somebody else."""
    held = Layer.objects.filter(pk=layer.pk, state="importing", claim=layer.claim)
    is_ours = bool(held.update(seen_at=timezone.now(), progress=min(max(progress, 0.0), 1.0)))
    if is_ours:
        notify(layer.trace_id)
    return is_ours


def _end(layer: Layer, facts: dict[str, object], problem: str, *, made: Path) -> None:
    """Put the store in its place and say what became of the layer, if it is still ours."""
    failed = _without_import(layer, problem) if problem else {}
    with transaction.atomic():
        held = Layer.objects.select_for_update().filter(pk=layer.pk, state="importing", claim=layer.claim)
        if not held.exists():
            return
        values: dict[str, object] = {"claim": "", "ended_at": timezone.now()}
        if problem:
            held.update(**failed, **values)
        else:
            facts["bytes"] = made.stat().st_size
            made.replace(store_path(layer))
            kind = str(facts.pop("kind", ""))[:20]
            held.update(state="ready", progress=1, facts=facts, kind=kind or layer.kind, **values)
    _notify(layer)


def _without_import(layer: Layer, problem: str) -> dict[str, object]:
    """Return what a layer is whose import has failed: what its store is, if there is one from before that opens."""
    path = store_path(layer)
    try:
        with Store(path) as store:
            facts = {**asdict(store.facts), "bytes": path.stat().st_size}
    except (NotAStore, OSError):
        return {"state": "failed", "problem": problem[:500]}
    text = _("It was not imported again, what was there before is kept: %(problem)s") % {"problem": problem}
    return {"state": "ready", "progress": 1, "facts": facts, "problem": text[:500]}


def _notify(layer: Layer) -> None:
    """Let open pages of the trace and of its run read it again.

    Never while the layer is locked: whoever deletes a run locks the run first.
    """
    notify(layer.trace_id)
    if layer.trace.run_id:
        Run.objects.filter(pk=layer.trace.run_id).update(capture_changes=F("capture_changes") + 1)
        transaction.on_commit(partial(run_changed, layer.trace.run_id))


@contextmanager
def _workplace(layer: Layer) -> Iterator[Path]:
    """Yield a folder of this import's own beside the store; what is left in it goes."""
    folder = trace_folder(layer.trace) / f".import-{layer.pk}-{layer.claim}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for old in folder.parent.glob(f".import-{layer.pk}-*"):
        if old != folder:
            shutil.rmtree(old, ignore_errors=True)  # of an importer that was killed
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            folder.parent.rmdir()  # the trace was deleted meanwhile


def _import(layer: Layer, folder: Path) -> tuple[dict[str, object], str]:
    """Return the facts of the store that was made in `folder`, or why there is none, in a sentence."""
    source = source_path(layer)
    if not source.is_file():
        return {}, _("The file is not on the console's disk any more. Upload it again.")
    free = room_for_people()
    if free < _GROWTH * source.stat().st_size:
        text = _("The console's disk has no space left to import %(name)s. Free some space, then import again.")
        return {}, text % {"name": layer.file_name}
    named = folder / f"file-{layer.file_name[-200:]}"  # readers look at the ending, and at the rank in it
    named.symlink_to(source)
    command = [sys.executable, "-m", "profiling.trace.importing", str(named), str(folder / "store")]
    command += ["--name", layer.file_name, "--most-bytes", str(free)]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,  # closed with us: then it ends itself
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=settings.BASE_DIR,
        env=_environment(folder),
        start_new_session=True,
    )
    try:
        return _follow(layer, process)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # with the exporter of nsys, if one is under way
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


def _environment(folder: Path) -> dict[str, str]:
    """Return what the importer may know: where programs are, and where its temporary files go; no secret."""
    environment = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH") if name in os.environ}
    return {**environment, "TMPDIR": str(folder), "PYTHONUNBUFFERED": "1"}


def _follow(layer: Layer, process: subprocess.Popen[bytes]) -> tuple[dict[str, object], str]:
    """Read what the importer says, a JSON object a line, until it has said how it ended."""
    assert process.stdout is not None
    end = time.monotonic() + settings.TRACE_IMPORT_SECONDS
    progress, beat_at, line = 0.0, 0.0, b""
    while True:
        if time.monotonic() > end:
            text = _("The import took longer than %(n)s minutes. Record fewer steps, or raise the limit.")
            return {}, counted(text % {"n": round(settings.TRACE_IMPORT_SECONDS / 60)})
        if time.monotonic() >= beat_at:
            if not _beat(layer, progress):
                return {}, _("Another import of the same file is under way.")
            if turns.gives_way(layer, now=timezone.now()):
                notify(layer.trace_id)
                return {}, ""
            beat_at = time.monotonic() + _BEAT_SECONDS
        if not select.select([process.stdout], [], [], _BEAT_SECONDS)[0]:
            continue
        piece = os.read(process.stdout.fileno(), _LONGEST_LINE)
        *lines, line = (line + piece).split(b"\n")
        for message in map(_parsed, lines):
            progress = float(message.get("progress", progress))
            if "problem" in message:
                return {}, str(message["problem"])
            if "facts" in message:
                return dict(message["facts"]), ""
        if not piece:
            text = _("The import ended without a message (exit code %(code)s), most likely because memory ran out.")
            return {}, text % {"code": process.wait()}


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        message = json.loads(line)
    except ValueError:
        return {}
    return message if isinstance(message, dict) else {}
