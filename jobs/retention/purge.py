"""Delete for good what was long enough in the trash: in bounded steps, each of which may be the last of its process.

The item in the trash is the journal. Once it says `purging` nobody can take it back, and every step looks at what is
left: rows first, some thousand at a time, then files, then the run's own row, files that came before it went, and the
word that the console's part is done. The folders on the cluster go by a short Ray job (jobs.runner.remove_folders),
again and again until one has succeeded; then the item goes. A run is never half there: it was hidden before the first
row went.
"""

import json
import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone
from django.utils.translation import gettext as _

from jobs.accounts.audit import record
from jobs.cluster import ray_api as cluster
from jobs.cluster.ray_api import ClusterState, JobInfo
from jobs.models import (
    Artifact,
    Attempt,
    Capture,
    Chunk,
    Frame,
    LogChunk,
    LogIndex,
    Metric,
    Run,
    RunEvent,
    Sample,
    SeriesStatistics,
    TrashItem,
)
from jobs.runs.checkpoints import newest_visible
from jobs.storage.usage import count_again
from jobs.telemetry.log_index import forget_index
from jobs.traces.imports import trace_folder

log = logging.getLogger(__name__)

STEP_SECONDS = 0.3  # of the reconciler's second
ROWS_AT_ONCE = 500
FILES_AT_ONCE = 200
MOST_JOBS = 4  # on Ray at a time
_FIRST_RETRY = timedelta(seconds=30)
_LAST_RETRY = timedelta(hours=1)


def purge_step(*, now: datetime, seconds: float = STEP_SECONDS) -> None:
    """Begin what is due, and delete the console's part of it for at most about `seconds`."""
    for pk in TrashItem.objects.filter(state="kept", purge_at__lte=now).values_list("pk", flat=True)[:20]:
        _begin(pk)
    ends = time.monotonic() + seconds
    for item in TrashItem.objects.filter(state="purging", is_gone_here=False).order_by("pk"):
        try:
            while not _delete_some(item):
                if time.monotonic() >= ends:
                    return
        except OSError as error:  # of one item; the others go on
            log.warning("what %s left cannot be removed yet: %s", item.run_id, error)
            text = _("Its files here could not be removed: %(why)s") % {"why": error.strerror or error}
            TrashItem.objects.filter(pk=item.pk).exclude(problem=text[:300]).update(problem=text[:300])
    _drop_done()


def has_jobs() -> bool:
    """Return True if a folder is to be removed on the cluster, so that its jobs are worth asking for."""
    return TrashItem.objects.filter(state="purging").exclude(folders=[]).exists()


def remove_folders(*, jobs: Mapping[str, JobInfo], state: ClusterState, now: datetime) -> None:
    """Start the jobs that remove folders on the cluster, and act on how the earlier ones ended.

    Raises: ClusterUnreachable.
    """
    waiting = list(TrashItem.objects.filter(state="purging").exclude(folders=[]).order_by("pk"))
    for item in waiting:
        if item.job:
            _follow(item, jobs.get(item.job), now)
    num_under_way = sum(bool(item.job) for item in waiting)
    due = [item for item in waiting if not item.job and (item.next_try_at is None or item.next_try_at <= now)]
    for item in due[: max(0, MOST_JOBS - num_under_way)]:
        _submit(item, state, now)
    _drop_done()


def say_away(problem: str) -> None:
    """Say of what is to be removed on the cluster why it waits."""
    text = _("Ray cannot be asked, so its folders on the cluster stay until it can: %(problem)s") % {"problem": problem}
    waiting = TrashItem.objects.filter(state="purging").exclude(folders=[]).exclude(problem=text[:300])
    waiting.update(problem=text[:300])


def _begin(pk: int) -> None:
    """Make the item a journal: from here on it cannot be taken back."""
    with transaction.atomic():
        item = TrashItem.objects.select_for_update().filter(pk=pk, state="kept").first()
        if item is None:
            return
        run = Run.objects.filter(pk=item.run_id).first()
        if run is not None and item.kind != TrashItem.Kind.RUN and run.trashed_at is not None:
            return  # all of it is in the trash, and goes or comes back with it
        if item.kind == TrashItem.Kind.CHECKPOINTS and run is not None and newest_visible(run) is None:
            item.purge_at += timedelta(days=1)
            item.problem = _("Kept for another day: the run has no other checkpoint to go on from. Restore it.")
            item.save(update_fields=["purge_at", "problem"])
            return
        item.state, item.folders = "purging", _folders_of(item)
        item.save(update_fields=["state", "folders"])


def _folders_of(item: TrashItem) -> list[str]:
    """Return what is to be removed on the cluster, below the run root."""
    if item.kind == TrashItem.Kind.RUN:
        was_there = Attempt.objects.filter(run_id=item.run_id).exclude(submitted_at=None).exists()
        return [item.run_id] if was_there else []
    if item.kind == TrashItem.Kind.CHECKPOINTS:
        rows = Artifact.objects.filter(pk__in=item.artifact_ids, type="checkpoint")
        return [f"{row.run_id}/a{row.attempt}/{row.path}" for row in rows if not row.meta.get("removed")]
    return []


def _delete_some(item: TrashItem) -> bool:
    """Delete a bounded part of what the console keeps; True if nothing is left of it."""
    return _PARTS[TrashItem.Kind(item.kind)](item)


def _run(item: TrashItem) -> bool:
    run_id = item.run_id
    rows: Iterable[QuerySet[Any]] = (
        Frame.objects.filter(run=run_id),
        Chunk.objects.filter(metric__run=run_id),
        SeriesStatistics.objects.filter(metric__run=run_id),
        Metric.objects.filter(run=run_id),
        LogChunk.objects.filter(run=run_id),
        LogIndex.objects.filter(run=run_id),
        Sample.objects.filter(run=run_id),
        RunEvent.objects.filter(run=run_id),
    )
    if any(_delete_rows(queryset) for queryset in rows) or _unlink_some(_files_of(run_id)):
        return False
    with transaction.atomic():
        TrashItem.objects.filter(run_id=run_id).exclude(pk=item.pk).delete()  # parts of it that were there before
        Run.objects.filter(pk=run_id).delete()
    if _unlink_some(_files_of(run_id)):
        return False  # of a piece that arrived while its row was still there
    return _done_here(item)


def _files_of(run_id: str) -> Path:
    return Path(settings.FILES_DIR) / "runs" / run_id


def _logs(item: TrashItem) -> bool:
    if _delete_rows(LogChunk.objects.filter(run=item.run_id, attempt__lte=item.through_attempt)):
        return False
    forget_index(item.run_id)
    return _rows_gone(item)


def _samples(item: TrashItem) -> bool:
    if _delete_rows(Sample.objects.filter(run=item.run_id, attempt__lte=item.through_attempt)):
        return False
    return _rows_gone(item)


def _capture(item: TrashItem) -> bool:
    capture = Capture.with_trashed.filter(pk=item.capture_id).first()
    if capture is not None:
        trace = getattr(capture, "trace", None)
        if trace is not None and _unlink_some(trace_folder(trace)):
            return False
        for artifact in Artifact.objects.filter(capture=capture):
            artifact.delete_bytes()
    with transaction.atomic():
        Capture.with_trashed.filter(pk=item.capture_id).delete()
        _done_here(item)
    return True


def _checkpoints(item: TrashItem) -> bool:
    return _done_here(item)


_PARTS: Mapping[TrashItem.Kind, Callable[[TrashItem], bool]] = {
    TrashItem.Kind.RUN: _run,
    TrashItem.Kind.LOGS: _logs,
    TrashItem.Kind.SAMPLES: _samples,
    TrashItem.Kind.CAPTURE: _capture,
    TrashItem.Kind.CHECKPOINTS: _checkpoints,
}


def _delete_rows(queryset: QuerySet[Any]) -> bool:
    """Delete some rows; True if there were any."""
    pks = list(queryset.order_by("pk").values_list("pk", flat=True)[:ROWS_AT_ONCE])
    if pks:
        queryset.model.objects.filter(pk__in=pks).delete()
    return bool(pks)


def _unlink_some(folder: Path) -> bool:
    """Delete some files of the folder, or folders that are empty, itself last; True if there were any.

    Links are removed, not followed. Raises: OSError.
    """
    num = 0
    for base, folders, files in os.walk(folder, topdown=False):
        for name in files:
            Path(base, name).unlink(missing_ok=True)
            num += 1
        for name in folders:
            path = Path(base, name)
            if path.is_symlink():
                path.unlink()
                num += 1
        if num >= FILES_AT_ONCE:
            return True
        Path(base).rmdir()
        num += 1
    return num > 0


def _done_here(item: TrashItem) -> bool:
    TrashItem.objects.filter(pk=item.pk).update(is_gone_here=True)
    return True


def _rows_gone(item: TrashItem) -> bool:
    """Let the quotas know at once what an ended run takes now: nobody else counts it again."""
    count_again([item.run_id], now=timezone.now())
    return _done_here(item)


def _drop_done() -> None:
    """Let the items go of which nothing is left, here or on the cluster."""
    for item in TrashItem.objects.filter(state="purging", is_gone_here=True, folders=[]).select_related("project"):
        with transaction.atomic():
            if item.kind == TrashItem.Kind.CHECKPOINTS:
                for row in Artifact.objects.select_for_update().filter(pk__in=item.artifact_ids):
                    row.meta, row.size = {**row.meta, "trashed": False, "removed": True}, 0
                    row.save(update_fields=["meta", "size"])
            about = {"kind": item.kind, "name": item.run_name, "bytes": item.bytes_here + item.bytes_cluster}
            record(
                actor=None,
                verb="trash.delete",
                object_type="run",
                object_id=item.run_id,
                label=item.run_name,
                project=item.project,  # the run is gone, and the audit cannot look it up
                before=about,
            )
            item.delete()


def _follow(item: TrashItem, job: JobInfo | None, now: datetime) -> None:
    """Act on what became of the item's job."""
    if job is not None and job.status not in cluster.JOB_ENDED:
        return
    if job is not None and job.status == "SUCCEEDED":
        item.folders, item.problem = [], ""
    else:
        wait = min(_FIRST_RETRY * 2 ** min(item.tries, 10), _LAST_RETRY)
        item.next_try_at = now + wait
        said = (job.message.strip().splitlines() or [job.status])[-1] if job else _("Ray no longer knows its job")
        item.problem = (_("Its folders on the cluster could not be removed: %(why)s") % {"why": said})[:300]
    item.job = ""
    item.save(update_fields=["folders", "problem", "job", "next_try_at"])


def _submit(item: TrashItem, state: ClusterState, now: datetime) -> None:
    """Hand the job to Ray under a name that is stored before, so that twice does no harm."""
    item.tries += 1
    item.job = f"remove-{item.pk}-{item.tries}-{now:%Y%m%d%H%M%S}"
    item.save(update_fields=["job", "tries"])
    environment = {
        "PITWALL_RUN_ROOT": str(settings.RUN_ROOT),
        "PITWALL_FOLDERS": json.dumps(item.folders),
        "PITWALL_NODES": json.dumps([node.id for node in state.nodes]),
    }
    metadata = {"pitwall_removed_run": item.run_id}
    try:
        cluster.submit_job(
            submission_id=item.job, module="jobs.runner.remove_folders", environment=environment, metadata=metadata
        )
    except cluster.JobRefused as error:
        item.job, item.problem, item.next_try_at = "", str(error)[:300], now + _LAST_RETRY
        item.save(update_fields=["job", "problem", "next_try_at"])
