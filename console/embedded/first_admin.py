"""What a fresh console needs before anyone can use it: one project and one person who may do everything."""

from datetime import datetime, timedelta

from django.contrib.auth.models import User
from django.db import transaction

from console.sign_in.link import make_link
from console.sign_in.trail import keep_link
from jobs.accounts.audit import record
from jobs.models import Membership, Project

ADMIN_NAME = "admin"
LINK_LIFETIME = timedelta(hours=12)  # it stands in the terminal of the person who started the console
PROJECT_SLUG = "default"
PROJECT_NAME = "Default project"


@transaction.atomic
def ensure_admin() -> User:
    """Return the first admin; make the person and the default project where they are missing.

    The account has no password: the printed link signs in, and a password can then be set on the account page.
    """
    users = User.objects
    admin = users.filter(is_superuser=True, is_active=True).order_by("pk").first()
    if admin is None:
        admin = users.create_superuser(ADMIN_NAME)
        after = {"is_superuser": True}
        record(actor=None, verb="account.create", object_type="account", object_id=ADMIN_NAME, after=after)
    project = Project.objects.order_by("pk").first()
    if project is None:
        project = Project.objects.create(slug=PROJECT_SLUG, name=PROJECT_NAME)
    Membership.objects.get_or_create(project=project, user=admin, defaults={"role": Membership.Role.ADMIN})
    return admin


def signin_url(base_url: str, *, now: datetime) -> str:
    """Return a fresh one-time link for the first admin."""
    admin = ensure_admin()
    link = make_link(user=admin, base_url=base_url, now=now, lifetime=LINK_LIFETIME)
    keep_link(admin, lifetime=LINK_LIFETIME)
    return link
