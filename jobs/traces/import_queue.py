"""What waits to be imported: a file that arrived becomes a layer of its trace, and a worker hears of it.

A message to the worker may be lost or come twice; jobs.traces.imports takes each layer once, and
jobs.processes.reconcile sends again.
"""

import logging
from functools import partial

from celery import current_app
from django.db import transaction
from django.db.models import F
from kombu.exceptions import OperationalError

from jobs.models import Artifact, Capture, Layer, Run, Trace
from jobs.telemetry.notify import run_changed, trace_changed

log = logging.getLogger(__name__)

TASK = "jobs.tasks.import_layer"
TIMELESS = (".stacks.txt",)
"""Endings of files that hold no times, so that a timeline has nothing to show of them: they are downloads alone."""


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
        tell(trace.pk)


def send(layer_id: int) -> None:
    """Ask a worker to import the layer, once the open transaction has committed; a broker away costs seconds."""

    def now() -> None:
        try:
            if TASK not in current_app.tasks:
                current_app.loader.import_default_modules()  # this process has not needed any task yet
            current_app.tasks[TASK].apply_async(kwargs={"layer_id": layer_id}, retry=False)
        except (OperationalError, OSError) as error:
            log.warning("the broker is away, layer %s is left to the reconciler: %s", layer_id, error)

    transaction.on_commit(now)


def tell_run(trace: Trace) -> None:
    """Let open pages of the run that a trace is of read its captures again, once the open transaction has committed."""
    if trace.run_id:
        Run.objects.filter(pk=trace.run_id).update(capture_changes=F("capture_changes") + 1)
        transaction.on_commit(partial(run_changed, trace.run_id))


def tell(trace_id: str) -> None:
    """Let open pages of the trace read it again, once the open transaction has committed."""
    transaction.on_commit(partial(trace_changed, trace_id))
