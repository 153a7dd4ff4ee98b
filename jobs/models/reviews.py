"""What people think of samples."""

from django.conf import settings
from django.db import models
from django.utils import timezone

from jobs.models.telemetry import Sample


class SampleReview(models.Model):
    """One person's word on a sample: a verdict, a note, or both. It goes when the sample goes."""

    class Verdict(models.TextChoices):
        """Thumbs up, thumbs down, or neither: a note alone."""

        UP = "up"
        DOWN = "down"
        NONE = ""

    sample = models.ForeignKey(Sample, on_delete=models.CASCADE, related_name="reviews")
    author = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    verdict = models.CharField(max_length=4, default="", blank=True, choices=Verdict.choices)
    note = models.CharField(max_length=2000, default="", blank=True)
    at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["sample", "author"], name="one_sample_review")]
