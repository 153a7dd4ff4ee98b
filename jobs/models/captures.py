"""Recordings and files of runs, and traces with their layers."""

import secrets
from pathlib import Path

from django.conf import settings
from django.db import models
from django.utils import timezone

from jobs.models.projects import Project
from jobs.models.runs import Run


def new_capture_id() -> str:
    """Return a short random id of a capture."""
    return f"c-{secrets.token_hex(4)}"


def new_trace_id() -> str:
    """Return a short random id of a trace."""
    return f"t-{secrets.token_hex(4)}"


class _KeptCaptures(models.Manager["Capture"]):
    """Captures without those in the trash, which only jobs.retention reads."""

    def get_queryset(self) -> models.QuerySet["Capture"]:
        return super().get_queryset().filter(trashed_at=None)


class Capture(models.Model):
    """A recording of some steps by a profiler; its files are the artifacts that name it. States:
    profiling.captures.capture.STATES.
    """

    id = models.CharField(primary_key=True, max_length=16, default=new_capture_id, editable=False)
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="captures")
    attempt = models.PositiveIntegerField()
    what = models.CharField(max_length=16, default="")  # is to be seen (profiling.config.What); "" in older rows
    tool = models.CharField(
        max_length=10
    )  # a file of profiling.recorders; "" until it is selected, once workers are there
    first_step = models.IntegerField(default=0)  # 0: the next one
    num_steps = models.PositiveIntegerField(default=1)
    seconds = models.FloatField(default=0)  # recorded by time, from the moment it was asked for; 0: whole steps
    roles = models.JSONField(default=list)  # [] for all
    ranks = models.JSONField(default=list)
    state = models.CharField(max_length=10, default="armed")
    problem = models.CharField(max_length=500, default="")  # why it failed
    state_times = models.JSONField(default=dict)  # state -> ISO 8601, when it was reached
    withdraw_asked_at = models.DateTimeField(null=True)  # the trainer decides whether that was in time: state withdrawn
    withdraw_asked_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )
    meta = models.JSONField(default=dict)  # what the trainer told: steps recorded, overhead in seconds, files by name
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    created_at = models.DateTimeField(default=timezone.now)
    ended_at = models.DateTimeField(null=True)
    trashed_at = models.DateTimeField(null=True)  # in the trash (jobs.retention)

    objects = _KeptCaptures()
    with_trashed = models.Manager["Capture"]()

    @property
    def recorded_steps(self) -> tuple[int, int] | None:
        """The first and last step as the trainer told them, or else as asked for; None while neither is known."""
        first, count = self.meta.get("first_step"), self.meta.get("num_steps")
        if isinstance(first, int) and isinstance(count, int) and first > 0 and count > 0:
            return first, first + count - 1
        return (self.first_step, self.first_step + self.num_steps - 1) if self.first_step else None


class Artifact(models.Model):
    """A file the run made. Announced first; ready once all bytes are here and the checksum is right."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="artifacts")
    attempt = models.PositiveIntegerField()
    name = models.CharField(max_length=255)
    type = models.CharField(max_length=20)  # model | checkpoint | tensorboard | trace | log
    step = models.IntegerField(default=-1)
    path = models.CharField(max_length=500)  # relative to the run directory on the cluster
    size = models.BigIntegerField(default=0)
    sha256 = models.CharField(max_length=64, default="")
    received = models.BigIntegerField(default=0)  # bytes here so far
    is_ready = models.BooleanField(default=False)
    capture = models.ForeignKey(Capture, null=True, on_delete=models.CASCADE, related_name="files")
    meta = models.JSONField(default=dict)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "attempt", "name"], name="one_artifact")]

    @property
    def stored_path(self) -> Path:
        """Where the console keeps the file's bytes, once they are all here."""
        return Path(settings.FILES_DIR) / "runs" / self.run_id / f"a{self.attempt}" / str(self.pk)

    def delete_bytes(self) -> None:
        """Remove what the file takes on disk, whole or in part."""
        for path in (self.stored_path, self.stored_path.with_suffix(".part"), self.stored_path.with_suffix(".lock")):
            path.unlink(missing_ok=True)


class Trace(models.Model):
    """What is looked at on one clock: a capture of a run, or files that somebody uploaded."""

    id = models.CharField(primary_key=True, max_length=16, default=new_trace_id, editable=False)
    project = models.ForeignKey(Project, on_delete=models.CASCADE)
    run = models.ForeignKey(Run, null=True, on_delete=models.CASCADE, related_name="traces")
    capture = models.OneToOneField(Capture, null=True, on_delete=models.CASCADE, related_name="trace")
    name = models.CharField(max_length=200)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    created_at = models.DateTimeField(default=timezone.now, db_index=True)


class Layer(models.Model):
    """One file of a trace and what it was imported to. States: uploading, queued, importing, ready, failed.

    Only jobs.traces.imports sets the state from queued on. `facts` are those of the store (profiling.trace.schema).
    """

    trace = models.ForeignKey(Trace, on_delete=models.CASCADE, related_name="layers")
    artifact = models.OneToOneField(Artifact, null=True, on_delete=models.CASCADE, related_name="layer")
    file_name = models.CharField(max_length=255)
    role = models.CharField(max_length=20, default="")
    rank = models.IntegerField(null=True)
    size = models.BigIntegerField(default=0)
    received = models.BigIntegerField(default=0)  # bytes here so far
    sha256 = models.CharField(max_length=64, default="")
    kind = models.CharField(max_length=20, default="")  # the reader that knows it
    state = models.CharField(max_length=10, default="queued", db_index=True)
    progress = models.FloatField(default=0)  # of the import, 0 to 1
    problem = models.CharField(max_length=500, default="")
    facts = models.JSONField(default=dict)
    claim = models.CharField(max_length=32, default="")  # of the process that imports it
    seen_at = models.DateTimeField(null=True)  # when that process last said that it is at it
    tries = models.PositiveSmallIntegerField(default=0)
    created_at = models.DateTimeField(default=timezone.now)
    ended_at = models.DateTimeField(null=True)
