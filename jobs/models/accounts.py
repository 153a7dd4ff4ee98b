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
    """Who did what, for good; rows are never changed."""

    at = models.DateTimeField(auto_now_add=True)
    actor = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    verb = models.CharField(max_length=40)
    object_type = models.CharField(max_length=40)
    object_id = models.CharField(max_length=64)
    before = models.JSONField(null=True)
    after = models.JSONField(null=True)
    ip = models.GenericIPAddressField(null=True)
