"""Environment variables that runs are given besides those of their specs."""

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils import timezone

from jobs.models.projects import Project
from jobs.models.runs import Run


class Variable(models.Model):
    """A variable of all runs of a project, or with `run` a secret that was given with the launch of that one.

    `value` is shown, and "" for a secret, whose value is `sealed` (jobs.accounts.sealing) and shown to nobody.
    """

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="variables")
    run = models.ForeignKey(Run, null=True, on_delete=models.CASCADE, related_name="secrets")
    name = models.CharField(max_length=128)
    is_secret = models.BooleanField()
    value = models.TextField(default="")
    sealed = models.TextField(default="")
    set_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    set_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["project", "name"], condition=Q(run=None), name="one_variable_of_project"),
            models.UniqueConstraint(fields=["run", "name"], name="one_secret_of_run"),
            models.CheckConstraint(
                condition=Q(is_secret=False, sealed="", run=None) | (Q(is_secret=True, value="") & ~Q(sealed="")),
                name="secrets_are_sealed",
            ),
        ]
