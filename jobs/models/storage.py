"""What projects and people may take at most, what runs take, and how full everything was."""

from django.conf import settings
from django.db import models
from django.db.models import Q

from jobs.models.projects import Project
from jobs.models.runs import Run


class Quota(models.Model):
    """What one project, or one person over all projects, may take at most; None: no limit. See jobs.storage.quotas."""

    project = models.OneToOneField(Project, null=True, on_delete=models.CASCADE, related_name="quota")
    user = models.OneToOneField(settings.AUTH_USER_MODEL, null=True, on_delete=models.CASCADE, related_name="quota")
    storage_bytes = models.BigIntegerField(null=True)
    upload_bytes = models.BigIntegerField(null=True)
    uploads = models.BigIntegerField(null=True)
    live_runs = models.BigIntegerField(null=True)
    gpu_hours = models.FloatField(null=True)  # of a calendar month, UTC
    imports = models.BigIntegerField(null=True)  # of traces, at once
    stops_runs = models.BooleanField(default=False)  # live ones, once the GPU hours of the month are used up

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(project=None, user__isnull=False) | Q(project__isnull=False, user=None), name="whose_quota"
            )
        ]


class RunUsage(models.Model):
    """What a run's rows take in the database, in bytes, as of its frame `seq`; jobs.storage.usage counts them."""

    run = models.OneToOneField(Run, primary_key=True, on_delete=models.CASCADE, related_name="usage")
    seq = models.BigIntegerField()
    series = models.BigIntegerField()
    logs = models.BigIntegerField()
    samples = models.BigIntegerField()
    counted_at = models.DateTimeField()


class DiskSample(models.Model):
    """How full everything was in one hour: `values` is place -> bytes used (jobs.storage.forecast)."""

    hour = models.DateTimeField(primary_key=True)
    values = models.JSONField(default=dict)
