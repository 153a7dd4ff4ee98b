"""What people sign in with, and what they did."""

from django.conf import settings
from django.db import models

from jobs.models.projects import Membership, Project


class ApiToken(models.Model):
    """A token for the API and the command line; only its hash is kept.

    It may do what its person may, but never more than `role`, and with a `project` only there.
    """

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE)
    name = models.CharField(max_length=120)
    sha256 = models.CharField(max_length=64, unique=True)
    prefix = models.CharField(max_length=12)
    role = models.CharField(max_length=10, choices=Membership.Role.choices, default=Membership.Role.ADMIN)
    project = models.ForeignKey(Project, null=True, on_delete=models.CASCADE)  # None: all projects of its person
    expires_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField(auto_now_add=True)
    used_at = models.DateTimeField(null=True)
    revoked_at = models.DateTimeField(null=True)


class SigninLink(models.Model):
    """A link that signs one person in, once; only its hash is kept."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE)
    sha256 = models.CharField(max_length=64, unique=True)
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True)


class Identity(models.Model):
    """Who of an OpenID Connect provider signs in to an account: known by issuer and subject, never by a name."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE)
    issuer = models.CharField(max_length=255)
    subject = models.CharField(max_length=255)
    made_superuser = models.BooleanField(default=False)  # by a group of the provider, which can take it back
    created_at = models.DateTimeField(auto_now_add=True)
    used_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["issuer", "subject"], name="one_identity")]


class AuditEvent(models.Model):
    """Who did what, for good: triggers of the database refuse to change or delete a row (jobs.accounts.append_only).

    Names are kept beside numbers, and the numbers are no constraints: the row outlives its person, token and project.
    """

    at = models.DateTimeField(auto_now_add=True)
    actor = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False
    )
    actor_name = models.CharField(max_length=150, default="")
    way = models.CharField(max_length=10, default="")  # how the person came: jobs.accounts.origin.Way
    token_id = models.BigIntegerField(null=True)
    token = models.CharField(max_length=140, default="")  # name and first characters of the token
    verb = models.CharField(max_length=40)
    object_type = models.CharField(max_length=40)
    object_id = models.CharField(max_length=64)
    object_label = models.CharField(max_length=200, default="")
    project = models.ForeignKey(
        Project, null=True, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+"
    )  # whose admins may read it; None: superusers alone
    project_slug = models.CharField(max_length=60, default="")
    before = models.JSONField(null=True)
    after = models.JSONField(null=True)
    ip = models.GenericIPAddressField(null=True)
    user_agent = models.CharField(max_length=200, default="")

    class Meta:
        # Each filter of the page reads its rows from the newest on; the number decides between two of one moment.
        indexes = [
            models.Index(fields=["at", "id"], name="audit_at"),
            models.Index(fields=["project", "at", "id"], name="audit_project"),
            models.Index(fields=["actor_name", "at", "id"], name="audit_actor"),
            models.Index(fields=["verb", "at", "id"], name="audit_verb"),
            models.Index(fields=["object_type", "object_id", "at", "id"], name="audit_object"),
            models.Index(fields=["token_id", "at", "id"], name="audit_token"),
            models.Index(fields=["ip", "at", "id"], name="audit_ip"),
        ]


class AuditSweep(models.Model):
    """Leave to delete audit rows of before a moment: there only within the transaction that does (audit.sweep)."""

    before = models.DateTimeField()
