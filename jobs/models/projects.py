"""Projects, who is a member of them, and the data files given to them."""

from django.conf import settings
from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _


class Project(models.Model):
    """What runs belong to and people are members of."""

    slug = models.SlugField(max_length=60, unique=True)
    name = models.CharField(max_length=120)
    created_at = models.DateTimeField(auto_now_add=True)
    currency = models.CharField(max_length=3, default="USD")  # of all prices
    prices = models.JSONField(default=dict)  # accelerator id -> {"price": of a device hour, "on": ISO date}
    plan_constants = models.JSONField(default=dict)  # name of a constant of the planner -> the project's own value
    calibrations = models.JSONField(
        default=dict
    )  # accelerator id -> constants measured on finished runs (plan_settings)
    joined_runs = models.JSONField(default=dict)  # which runs joined these by themselves (planning.joining)
    metric_bands = models.JSONField(default=dict)  # metric -> its own healthy [least, most], [] for none
    log_rules = models.JSONField(default=list)  # its own known lines of logs (jobs.diagnosis.log_rules)

    def __str__(self) -> str:
        return self.name


class Membership(models.Model):
    """What a person may do in a project: viewers read, editors launch and stop, admins also manage members."""

    class Role(models.TextChoices):
        VIEWER = "viewer", _("Viewer")
        EDITOR = "editor", _("Editor")
        ADMIN = "admin", _("Admin")

    project = models.ForeignKey(Project, on_delete=models.CASCADE)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE)
    role = models.CharField(max_length=10, choices=Role.choices)
    from_groups = models.BooleanField(default=False)  # set anew at each sign-in by the provider's groups

    class Meta:
        constraints = [models.UniqueConstraint(fields=["project", "user"], name="one_membership")]


class Upload(models.Model):
    """A data file given to the console; its content stands in the data directory under its hash."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE)
    sha256 = models.CharField(max_length=64)
    file_name = models.CharField(max_length=255)
    size = models.BigIntegerField()
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["project", "sha256"], name="one_upload")]
