"""Quotas: what projects and people may take at most, and what they take."""

from django.contrib.auth import get_user_model
from django.http import HttpRequest
from django.utils import timezone
from ninja import Field, Router, Schema

from console.api.problem import REFUSALS, RequestProblem
from console.api.visible import caller, project_for
from jobs.accounts.access import require_superuser
from jobs.models import Project
from jobs.storage import quotas
from jobs.storage.quotas import Owner, QuotaRefused

router = Router(tags=["quotas"])


class UseOut(Schema):
    """How much of one quota is used; `most` is null without a limit. Bytes, numbers, or hours of this month (UTC)."""

    name: str
    used: float
    most: float | None
    is_near: bool = Field(description="80 % or more are used")


class QuotaOut(Schema):
    """The quotas of a project or a person."""

    of: str = Field(description="project:<slug> or person:<user name>")
    uses: list[UseOut]
    stops_runs: bool = Field(description="live runs on GPUs are stopped once the GPU hours of the month are used up")


class QuotasOut(Schema):
    """All quotas that are set."""

    quotas: list[QuotaOut]


class QuotaIn(Schema):
    """Limits to set; null is no limit, and what is left out stays."""

    model_config = {"extra": "forbid"}

    storage_bytes: int | None = None
    upload_bytes: int | None = None
    uploads: int | None = None
    live_runs: int | None = None
    gpu_hours: float | None = None
    imports: int | None = None
    stops_runs: bool = False


@router.get("", response={200: QuotasOut, **REFUSALS}, summary="All quotas")
def list_quotas(request: HttpRequest) -> QuotasOut:
    """Return every quota that is set, with its use; superusers only."""
    require_superuser(request.user)
    return QuotasOut(quotas=[_quota(owner) for owner, _row in quotas.all_set()])


@router.get("/mine", response={200: QuotaOut, **REFUSALS}, summary="Your own quotas")
def read_own_quota(request: HttpRequest) -> QuotaOut:
    """Return what you may take over all projects, and what you take."""
    return _quota(caller(request))


@router.get("/projects/{slug:project}", response={200: QuotaOut, **REFUSALS}, summary="Quotas of a project")
def read_project_quota(request: HttpRequest, project: str) -> QuotaOut:
    """Return what the project may take, and what it takes."""
    return _quota(project_for(request, project))


@router.put("/projects/{slug:project}", response={200: QuotaOut, **REFUSALS}, summary="Set quotas of a project")
def put_project_quota(request: HttpRequest, project: str, body: QuotaIn) -> QuotaOut:
    """Set limits of any project; superusers only."""
    require_superuser(request.user)
    owner = Project.objects.filter(slug=project).first()
    if owner is None:
        raise RequestProblem(404, f"There is no project {project!r}.", field="project")
    return _set(request, owner, body)


@router.put("/people/{username}", response={200: QuotaOut, **REFUSALS}, summary="Set quotas of a person")
def put_person_quota(request: HttpRequest, username: str, body: QuotaIn) -> QuotaOut:
    """Set limits of a person over all projects; superusers only."""
    require_superuser(request.user)
    owner = get_user_model().objects.filter(username=username.replace("\0", "")).first()
    if owner is None:
        raise RequestProblem(404, f"There is no account {username[:150]!r}.", field="username")
    return _set(request, owner, body)


def _set(request: HttpRequest, owner: Owner, body: QuotaIn) -> QuotaOut:
    try:
        quotas.set_quota(owner, values=body.dict(exclude_unset=True), actor=caller(request))
    except QuotaRefused as error:
        raise RequestProblem(422, str(error), field=error.field) from error
    return _quota(owner)


def _quota(owner: Owner) -> QuotaOut:
    uses = quotas.uses(owner, now=timezone.now())
    return QuotaOut(
        of=f"project:{owner.slug}" if isinstance(owner, Project) else f"person:{owner.get_username()}",
        uses=[UseOut(name=use.name, used=use.used, most=use.most, is_near=use.is_near) for use in uses],
        stops_runs=quotas.stops_runs(owner),
    )
