"""Settings: what the project takes of the console beside its quotas, its data files; for superusers, everybody's
quotas."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

from django.contrib import messages
from django.contrib.auth import get_user_model
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from console.views.frame import named_project, person
from jobs.accounts.access import User, allows, require_superuser, role
from jobs.models import Project, Upload
from jobs.preflight.data_files import KeptUpload, UploadInUse, delete_upload, kept_uploads
from jobs.storage import quotas
from jobs.storage.quotas import LABELS, NAMES, Name, Owner, QuotaRefused, QuotaUse

_GIB = 1 << 30
_IN_GIB: tuple[Name, ...] = ("storage_bytes", "upload_bytes")
_SHOWN_FILES = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaField:
    """One limit in the form: `value` as it is typed, in GiB where it is of bytes."""

    name: Name
    label: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerRow:
    """A project or person with limits; `owner` is how the form and the address name it."""

    owner: str
    label: str
    uses: tuple[QuotaUse, ...]
    stops_runs: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageCard:
    """Use beside limits, of the project and of the person who looks, and the project's data files."""

    uses: tuple[QuotaUse, ...]
    own_uses: tuple[QuotaUse, ...]
    files: tuple[KeptUpload, ...]
    num_files: int
    can_delete: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaCard:
    """All quotas there are, and the form for those of one owner, "" while none is chosen."""

    rows: tuple[OwnerRow, ...]
    projects: tuple[Project, ...]
    owner: str
    fields: tuple[QuotaField, ...]
    stops_runs: bool


def storage_card(project: Project, user: User) -> StorageCard:
    """Return what the project takes, and what its viewer takes over all projects where that is limited."""
    now = timezone.now()
    files = kept_uploads(project)
    own = [use for use in quotas.uses(user, now=now) if use.most is not None] if user.is_authenticated else []
    return StorageCard(
        uses=tuple(quotas.uses(project, now=now)),
        own_uses=tuple(own),
        files=tuple(files[:_SHOWN_FILES]),
        num_files=len(files),
        can_delete=allows(role(user, project), "editor"),
    )


def quota_card(request: HttpRequest) -> QuotaCard | None:
    """Return every quota for a superuser, and the form for whom the address names; None for anybody else."""
    if not getattr(request.user, "is_superuser", False):
        return None
    now = timezone.now()
    rows = [
        OwnerRow(
            owner=_named(owner),
            label=owner.name if isinstance(owner, Project) else owner.get_username(),
            uses=tuple(use for use in quotas.uses(owner, now=now) if use.most is not None),
            stops_runs=row.stops_runs,
        )
        for owner, row in quotas.all_set()
    ]
    text = request.GET.get("quota_of", "")[:200]
    chosen = _owner(text)
    limits = quotas.limits_of(chosen) if chosen else {}
    fields = tuple(
        QuotaField(name=name, label=str(LABELS[name]), value=_typed(name, limits.get(name))) for name in NAMES
    )
    return QuotaCard(
        rows=tuple(rows),
        projects=tuple(Project.objects.order_by("name")),
        owner=text,
        fields=fields,
        stops_runs=bool(chosen and quotas.stops_runs(chosen)),
    )


@require_POST
def drop_upload(request: HttpRequest, project: str) -> HttpResponse:
    """Delete a data file of the project; one that runs wait or train with only where that is said again."""
    home = named_project(request, project, "editor")
    upload = Upload.objects.filter(project=home, sha256=request.POST.get("sha256", "")[:64]).first()
    if upload is None:
        messages.error(request, _("That data file is gone already."))
        return _back(home)
    try:
        delete_upload(upload=upload, user=person(request), is_forced="force" in request.POST)
    except UploadInUse as error:
        messages.error(request, str(error))
        return _back(home)
    messages.success(request, _("%(name)s is deleted.") % {"name": upload.file_name})
    return _back(home)


@require_POST
def change_quota(request: HttpRequest) -> HttpResponse:
    """Set the limits of a project or a person; an empty field is no limit."""
    require_superuser(request.user)
    text = request.POST.get("quota_of", "")[:200]
    owner = _owner(text)
    try:
        if owner is None:
            raise QuotaRefused("quota_of", _("There is no project or person %(name)r.") % {"name": text})
        quotas.set_quota(owner, values=_values(request.POST), actor=person(request))
    except QuotaRefused as error:
        messages.error(request, str(error))
        return redirect(f"{reverse('settings')}?{urlencode({'quota_of': text})}#quotas")
    messages.success(request, _("The quotas of %(name)s are set.") % {"name": text.partition(":")[2]})
    return redirect(f"{reverse('settings')}?{urlencode({'quota_of': text})}#quotas")


def _values(posted: Mapping[str, str]) -> dict[str, object]:
    """Return the limits as they are set: bytes of GiB, None for what is empty; what is no number stays a text."""
    values: dict[str, object] = {"stops_runs": "stops_runs" in posted}
    for name in NAMES:
        text = posted.get(name, "").strip()[:40]
        try:
            number: object = float(text) if text else None
        except ValueError:
            number = text
        is_size = isinstance(number, float) and name in _IN_GIB and math.isfinite(number)
        values[name] = round(number * _GIB) if is_size and isinstance(number, float) else number
    return values


def _typed(name: Name, limit: float | None) -> str:
    if limit is None:
        return ""
    return f"{limit / _GIB:.10g}" if name in _IN_GIB else f"{limit:.10g}"


def _named(owner: Owner) -> str:
    return f"project:{owner.slug}" if isinstance(owner, Project) else f"person:{owner.get_username()}"


def _owner(text: str) -> Owner | None:
    """Return the project or person that a form names, None for neither."""
    kind, _colon, name = text.replace("\0", "").partition(":")
    if kind == "project":
        return Project.objects.filter(slug=name).first()
    return get_user_model().objects.filter(username=name).first() if kind == "person" else None


def _back(project: Project) -> HttpResponse:
    return redirect(f"{reverse('settings')}?project={project.slug}#storage")


urlpatterns: list[URLPattern] = [
    path("settings/quotas", change_quota, name="change-quota"),
    path("settings/<slug:project>/uploads/delete", drop_upload, name="drop-upload"),
]
