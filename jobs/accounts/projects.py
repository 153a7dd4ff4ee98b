"""New projects: a name for people, a slug for addresses, and whoever makes one is its admin."""

import re

from django.contrib.auth.models import AbstractBaseUser
from django.db import IntegrityError, transaction
from django.utils.text import slugify
from django.utils.translation import gettext as _

from jobs.accounts.audit import record
from jobs.catalog.value import is_storable
from jobs.models import Membership, Project

MAX_NAME_CHARS = 120
MAX_SLUG_CHARS = 60
_SLUG = re.compile(rf"[a-z0-9](?:[a-z0-9-]{{0,{MAX_SLUG_CHARS - 1}}})")


class ProjectRefused(ValueError):
    """The project is not made; `field` names what is wrong, `is_taken` says that its slug stands for another."""

    def __init__(self, field: str, message: str, *, is_taken: bool = False) -> None:
        self.field = field
        self.is_taken = is_taken
        super().__init__(message)


def make_project(*, name: str, slug: str, actor: AbstractBaseUser) -> Project:
    """Return a new project with `actor` as its admin; without a slug one is made of the name. Raises: ProjectRefused.

    The caller has checked that the actor may.
    """
    name, slug = name.strip(), slug.strip()
    if not 1 <= len(name) <= MAX_NAME_CHARS or any(ord(c) < 32 for c in name) or not is_storable(name):
        text = _("%(given)r is not a name of a project. Use 1 to %(most)s characters on one line.")
        raise ProjectRefused("name", text % {"given": name[:200], "most": MAX_NAME_CHARS})
    slug = slug or slugify(name)[:MAX_SLUG_CHARS].strip("-_").replace("_", "-")
    if not slug:
        text = _("No address name can be derived from %(name)r. Type 1 to %(most)s of a-z, 0-9 and -.")
        raise ProjectRefused("slug", text % {"name": name, "most": MAX_SLUG_CHARS})
    if not _SLUG.fullmatch(slug):
        text = _("%(given)r cannot name a project in addresses. Use 1 to %(most)s of a-z, 0-9 and -.")
        raise ProjectRefused("slug", text % {"given": slug[:200], "most": MAX_SLUG_CHARS})
    try:
        with transaction.atomic():
            project = Project.objects.create(slug=slug, name=name)
            Membership.objects.create(project=project, user_id=actor.pk, role=Membership.Role.ADMIN)
            record(actor=actor, verb="project.create", object_type="project", object_id=slug, after={"name": name})
    except IntegrityError as error:
        text = _("There is a project %(slug)r already. Choose another name in addresses.")
        raise ProjectRefused("slug", text % {"slug": slug}, is_taken=True) from error
    return project
