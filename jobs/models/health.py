"""What is wrong, or right, with a run from which step to which, as it was judged while the run went on."""

from django.db import models
from django.db.models import Q

from jobs.models.runs import Run


class HealthMark(models.Model):
    """A stretch of steps over which a run showed a symptom, or had left a band of its project.

    `finding` is the symptom's id, or `band:` and the metric. Written by jobs.diagnosis.health alone.
    """

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="health_marks")
    finding = models.CharField(max_length=140)
    tone = models.CharField(max_length=8)  # alarm | good
    begin_step = models.IntegerField()
    last_step = models.IntegerField()  # the newest judged step at which it held
    end_step = models.IntegerField(null=True)  # None: it holds still
    text = models.CharField(max_length=500)  # the newest evidence, in English
    began_at = models.DateTimeField()  # when it was seen first
    ended_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["run", "finding", "begin_step"], name="one_mark_per_step"),
            models.UniqueConstraint(fields=["run", "finding"], condition=Q(end_step=None), name="one_open_mark"),
        ]
