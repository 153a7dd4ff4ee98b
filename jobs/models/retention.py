"""What waits in the trash, and what a project lets go by itself."""

from django.conf import settings
from django.db import models
from django.utils import timezone

from jobs.models.projects import Project


class TrashItem(models.Model):
    """Something that was deleted and can be taken back until `purge_at`; while it is purged, the journal of that.

    `run_id` is no foreign key: the row outlives its run's, until nothing of it is left on the cluster either.
    States: waiting (for a live run to stop), kept, purging. Only jobs.retention writes here.
    """

    class Kind(models.TextChoices):
        RUN = "run"  # all of a run
        LOGS = "logs"  # log lines of its attempts up to `through_attempt`
        SAMPLES = "samples"  # likewise
        CAPTURE = "capture"  # the capture `capture_id`, with files and trace
        CHECKPOINTS = "checkpoints"  # the folders of `artifact_ids`, which lie on the cluster

    project = models.ForeignKey(Project, on_delete=models.CASCADE)
    kind = models.CharField(max_length=12, choices=Kind.choices)
    run_id = models.CharField(max_length=16, db_index=True)
    run_name = models.CharField(max_length=120)
    through_attempt = models.PositiveIntegerField(default=0)
    capture_id = models.CharField(max_length=16, default="")
    artifact_ids = models.JSONField(default=list)
    num_things = models.BigIntegerField(default=1)  # lines, samples, files or checkpoints
    bytes_here = models.BigIntegerField(default=0)  # rows and files of the console
    bytes_cluster = models.BigIntegerField(default=0)
    state = models.CharField(max_length=10, default="kept", db_index=True)
    is_by_rule = models.BooleanField(default=False)  # of the project's retention, not of a person
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(default=timezone.now)
    purge_at = models.DateTimeField(db_index=True)
    folders = models.JSONField(default=list)  # still to be removed on the cluster, below the run root
    is_gone_here = models.BooleanField(default=False)  # its rows and files of the console
    job = models.CharField(max_length=80, default="")  # Ray's, that removes the folders
    tries = models.PositiveIntegerField(default=0)
    next_try_at = models.DateTimeField(null=True)
    problem = models.CharField(max_length=300, default="")  # why the cluster's part waits

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["run_id"], condition=models.Q(kind="run"), name="one_trash_item_per_run")
        ]


class Retention(models.Model):
    """How long a project keeps what its runs leave; without a row, everything for good.

    `rules`: kind ("logs", "samples", "captures", "checkpoints") -> what `jobs.retention.policy` reads.
    """

    project = models.OneToOneField(Project, on_delete=models.CASCADE, related_name="retention")
    trash_days = models.PositiveIntegerField(null=True)  # None: as the console's setting says
    rules = models.JSONField(default=dict)
    changed_at = models.DateTimeField(default=timezone.now)
    changed_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    applied_at = models.DateTimeField(null=True)  # begun last
    cursor = models.CharField(max_length=16, default="")  # the last run that the round under way has looked at
