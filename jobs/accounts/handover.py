"""Give the runs and sweeps of somebody who leaves to somebody who stays."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.utils.translation import gettext as _

from jobs.accounts.access import allows, role
from jobs.accounts.audit import record
from jobs.accounts.people import PersonRefused, find_person
from jobs.models import Project, Run, Study


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedOver:
    """How much has another owner now."""

    runs: int = 0
    studies: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Owned:
    """What a person owns in a project."""

    project: Project
    runs: int
    studies: int


def owned(user: AbstractBaseUser) -> list[Owned]:
    """Return what the person owns, by name of the project; projects without anything are left out."""
    runs = Counter(Run.objects.filter(created_by_id=user.pk).values_list("project_id", flat=True))
    studies = Counter(Study.objects.filter(created_by_id=user.pk).values_list("project_id", flat=True))
    projects = Project.objects.filter(pk__in={*runs, *studies}).order_by("name")
    return [Owned(project=each, runs=runs[each.pk], studies=studies[each.pk]) for each in projects]


def hand_over(
    *, project: Project, username: str, to: str, actor: AbstractBaseUser | None, ids: Collection[str] | None = None
) -> HandedOver:
    """Make `to` the owner of the person's runs and sweeps in the project: of all, or of those named by id.

    Raises: PersonRefused if `to` may not start runs there, or an id is not one of the person's.
    """
    with transaction.atomic():
        giver, taker = find_person(username), find_person(to)
        if giver.pk == taker.pk:
            raise PersonRefused(_("%(name)s owns these runs already. Name somebody else.") % {"name": to})
        if not allows(role(taker, project), "editor"):
            text = _("%(name)s is no active editor or admin of %(project)s, so cannot own runs there.")
            raise PersonRefused(text % {"name": to, "project": project.name})
        runs = Run.objects.filter(project=project, created_by=giver)
        studies = Study.objects.filter(project=project, created_by=giver)
        if ids is not None:
            runs, studies = runs.filter(pk__in=ids), studies.filter(pk__in=ids)
            own_ids = {*runs.values_list("pk", flat=True), *studies.values_list("pk", flat=True)}
            if unknown := sorted(set(ids) - own_ids):
                text = _("%(name)s owns no run or sweep %(id)r in %(project)s.")
                raise PersonRefused(text % {"name": username, "id": unknown[0][:80], "project": project.name})
        done = HandedOver(runs=runs.update(created_by=taker), studies=studies.update(created_by=taker))
        if done.runs or done.studies:
            before = {"owner": username}
            after = {"owner": to, "runs": done.runs, "studies": done.studies, "ids": sorted(ids) if ids else "all"}
            slug = project.slug
            record(actor=actor, verb="run.hand_over", object_type="project", object_id=slug, before=before, after=after)
    return done
