"""Charts of runs that people have put together under a name."""

import secrets

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils import timezone

from jobs.models.projects import Project


def new_dashboard_id() -> str:
    """Return a random id that nobody guesses: whoever of the project has the address may read a person's own, too."""
    return f"d-{secrets.token_hex(8)}"


class Dashboard(models.Model):
    """Metrics in an order, each with a size, for every run of the project; `owner` None: the whole project's.

    `charts` is a list of {"metric": name, "width": columns, "height": rows}. `is_default`: what the tab of a run opens
    with, a person's own before the project's.
    """

    id = models.CharField(primary_key=True, max_length=20, default=new_dashboard_id, editable=False)
    project = models.ForeignKey(Project, on_delete=models.CASCADE)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.CASCADE, related_name="+")
    name = models.CharField(max_length=60)
    charts = models.JSONField(default=list)
    is_default = models.BooleanField(default=False)
    changed_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    changed_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["project", "owner", "name"], name="one_own_dashboard"),
            models.UniqueConstraint(fields=["project", "name"], condition=Q(owner=None), name="one_shared_dashboard"),
            models.UniqueConstraint(fields=["project", "owner"], condition=Q(is_default=True), name="one_own_default"),
            models.UniqueConstraint(
                fields=["project"], condition=Q(owner=None, is_default=True), name="one_shared_default"
            ),
        ]
