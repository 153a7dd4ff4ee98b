"""What people ask of a run besides training: short Ray jobs, and what came of them."""

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils import timezone

from jobs.models.captures import Artifact
from jobs.models.runs import Run

UNDER_WAY = ("queued", "starting")


class ShortJob(models.Model):
    """A job of minutes for one person. States: queued until there is room, starting until its own word or its end,
    then finished or failed, with the sentence `problem`, or canceled.
    """

    run = models.ForeignKey(Run, on_delete=models.CASCADE)
    state = models.CharField(max_length=10, default="queued")
    problem = models.CharField(max_length=500, default="")
    submission_id = models.CharField(max_length=80, unique=True)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    created_at = models.DateTimeField(default=timezone.now)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        abstract = True


class Answer(ShortJob):
    """A prompt tried on a trained model, and what it said."""

    artifact = models.ForeignKey(Artifact, on_delete=models.CASCADE)
    prompt = models.TextField()
    text = models.TextField(default="")
    token_ids = models.JSONField(default=list)


class Merge(ShortJob):
    """A model that is made of the checkpoint of a step of an attempt. Its file is `artifact` once it is here.

    The key that opens the way for the file is derived from the row (jobs.runs.merges), and stored nowhere.
    """

    attempt = models.PositiveIntegerField()
    step = models.PositiveIntegerField()
    artifact = models.ForeignKey(Artifact, null=True, on_delete=models.SET_NULL)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["run", "attempt", "step"], condition=Q(state__in=UNDER_WAY), name="one_merge_at_a_time"
            )
        ]

    @property
    def file_name(self) -> str:
        """What the file is called among those of the run."""
        return f"model-step-{self.step}.zip"
