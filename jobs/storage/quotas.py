"""Quotas: what a project, or a person over all projects, may take at most.

They are set by superusers; none is set at first. Storage, uploads and imports are asked for where something is brought,
under the project's lock, so that two at once cannot pass a quota together. Runs are never refused: those over a quota
wait in the queue (jobs.runs.quota_holds).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.db.models import F, QuerySet
from django.db.models.functions import Coalesce
from django.utils import timezone
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from jobs.accounts.audit import record
from jobs.models import LIVE, Attempt, Layer, Project, Quota, Upload
from jobs.storage import usage
from jobs.storage.floor import size_text

Name = Literal["storage_bytes", "upload_bytes", "uploads", "live_runs", "gpu_hours", "imports"]
Owner = Project | AbstractBaseUser

LABELS: Mapping[Name, Promise] = {
    "storage_bytes": gettext_lazy("Storage"),
    "upload_bytes": gettext_lazy("Data files, size"),
    "uploads": gettext_lazy("Data files, number"),
    "live_runs": gettext_lazy("Runs at once"),
    "gpu_hours": gettext_lazy("GPU hours of the month"),
    "imports": gettext_lazy("Imports of traces at once"),
}
NAMES: tuple[Name, ...] = tuple(LABELS)
NEAR = 0.8
"""The part of a limit from which on people are told."""

_BYTES = ("storage_bytes", "upload_bytes")
_MOST = 1 << 60


class QuotaRefused(ValueError):
    """A quota cannot be set so; `field` names it."""

    def __init__(self, field: str, text: str) -> None:
        self.field = field
        super().__init__(text)


class QuotaReached(Exception):
    """What is brought does not fit into a quota; the sentence names it, what is used, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaUse:
    """How much of one quota is used; `most` is None without a limit."""

    name: Name
    used: float
    most: float | None

    @property
    def share(self) -> float:
        """Used part of the limit; 0 without one."""
        if self.most is None:
            return 0.0
        return self.used / self.most if self.most else 1.0

    @property
    def is_near(self) -> bool:
        """True from 80 % on."""
        return self.most is not None and self.share >= NEAR

    @property
    def is_full(self) -> bool:
        """True once nothing is left."""
        return self.most is not None and self.share >= 1

    @property
    def bar(self) -> str:
        """Used part of the limit for a bar, 1 at most; in no language."""
        return f"{min(self.share, 1):.4f}"

    @property
    def label(self) -> str:
        """What people call it."""
        return str(LABELS[self.name])

    @property
    def used_text(self) -> str:
        """What is used, with its unit."""
        return amount_text(self.name, self.used)

    @property
    def most_text(self) -> str:
        """The limit, with its unit; "" without one."""
        return "" if self.most is None else amount_text(self.name, self.most)


def amount_text(name: Name, amount: float) -> str:
    """Return an amount of a quota with its unit."""
    if name in _BYTES:
        return size_text(amount)
    return f"{amount:,.1f} h" if name == "gpu_hours" else f"{amount:,.0f}"


def limits_of(owner: Owner) -> dict[Name, float | None]:
    """Return every limit of a project or a person. Data files of a project have one by a setting of the console."""
    row = _row(owner)
    limits: dict[Name, float | None] = {name: getattr(row, name) if row else None for name in NAMES}
    if isinstance(owner, Project) and limits["upload_bytes"] is None:
        limits["upload_bytes"] = settings.MAX_PROJECT_UPLOAD_BYTES
    return limits


def stops_runs(owner: Owner) -> bool:
    """Return True if live runs of this owner are stopped once its GPU hours are used up."""
    row = _row(owner)
    return bool(row and row.stops_runs)


def uses(owner: Owner, *, now: datetime) -> list[QuotaUse]:
    """Return how much of each quota is used now."""
    limits = limits_of(owner)
    return [QuotaUse(name=name, used=_used(owner, name, now), most=limits[name]) for name in NAMES]


def limited_uses(owner: Owner, names: Iterable[Name], *, now: datetime) -> dict[Name, QuotaUse]:
    """Return how much is used of those of these quotas that have a limit."""
    limits = limits_of(owner)
    limited = [name for name in names if limits[name] is not None]
    return {name: QuotaUse(name=name, used=_used(owner, name, now), most=limits[name]) for name in limited}


def all_set() -> list[tuple[Owner, Quota]]:
    """Return every quota with its owner: projects by name, then people."""
    rows = Quota.objects.select_related("project", "user")
    ordered = rows.order_by(F("project__name").asc(nulls_last=True), "user__username")
    return [(owner, row) for row in ordered if (owner := row.project or row.user) is not None]


def stopping() -> QuerySet[Quota]:
    """Return the quotas whose live runs are stopped once their GPU hours are used up."""
    return Quota.objects.filter(stops_runs=True, gpu_hours__isnull=False)


def set_quota(owner: Owner, *, values: Mapping[str, object], actor: AbstractBaseUser | None) -> None:
    """Set these limits, None for no limit; others stay. `stops_runs` is True or False. Raises: QuotaRefused.

    The caller has checked that the actor may.
    """
    checked = {name: _checked(name, value) for name, value in values.items()}
    with transaction.atomic():
        row, _is_new = Quota.objects.select_for_update().get_or_create(**_whose(owner))
        before = {name: getattr(row, name) for name in checked}
        for name, value in checked.items():
            setattr(row, name, value)
        row.save()
        kind, name = ("project", owner.slug) if isinstance(owner, Project) else ("account", owner.get_username())
        record(actor=actor, verb="quota.set", object_type=kind, object_id=name, before=before, after=checked)


def lock(project: Project, user: AbstractBaseUser | None) -> None:
    """Let nobody else take of these quotas until the transaction ends."""
    Project.objects.select_for_update().get(pk=project.pk)
    if user is not None:
        list(Quota.objects.select_for_update().filter(user_id=user.pk))


def require_storage(size: int, *, project: Project, user: AbstractBaseUser | None) -> None:
    """Let `size` more bytes pass. Raises: QuotaReached. Where it must hold, the caller has the `lock`."""
    for owner in _owners(project, user):
        _require(owner, "storage_bytes", size)


def require_upload(size: int, *, project: Project, user: AbstractBaseUser | None) -> None:
    """Let one more data file of `size` bytes pass. Raises: QuotaReached. As `require_storage`."""
    for owner in _owners(project, user):
        _require(owner, "uploads", 1)
        _require(owner, "upload_bytes", size)
        _require(owner, "storage_bytes", size)


def reached(owner: Owner, use: QuotaUse, *, adds: float = 0) -> str:
    """Say that a quota is used up, or would be by so much more."""
    words = {
        "quota": str(LABELS[use.name]),
        "owner": owner.name if isinstance(owner, Project) else owner.get_username(),
        "used": use.used_text,
        "most": use.most_text,
        "adds": amount_text(use.name, adds),
    }
    if adds and use.name in _BYTES:
        text = _("%(quota)s of %(owner)s: %(used)s of %(most)s are used, and this takes %(adds)s.")
    else:
        text = _("%(quota)s of %(owner)s: %(used)s of %(most)s are used.")
    return text % words


def month_of(now: datetime) -> datetime:
    """Return the first moment of the calendar month, UTC."""
    return now.astimezone(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)


def next_month(now: datetime) -> datetime:
    """Return the first moment of the next calendar month, UTC."""
    return month_of(month_of(now) + timedelta(days=32))


def gpu_hours(owner: Owner, *, now: datetime) -> float:
    """Return the GPU hours of this calendar month: for each attempt its devices, from when Ray was given it until its
    end, what of that lies in the month.
    """
    begin = month_of(now)
    held = attempts_of(owner).filter(num_gpus__gt=0, submitted_at__lt=now).exclude(ended_at__lt=begin)
    seconds = 0.0
    for gpus, since, end in held.values_list("num_gpus", "submitted_at", "ended_at"):
        if since is not None:
            seconds += gpus * ((end or now) - max(since, begin)).total_seconds()
    return seconds / 3600


def live_runs(owner: Owner) -> int:
    """Return how many runs are live."""
    return attempts_of(owner).filter(state__in=LIVE).count()


def imports(owner: Owner) -> int:
    """Return how many traces are being imported."""
    whose = {"trace__project": owner} if isinstance(owner, Project) else {"trace__created_by_id": owner.pk}
    return Layer.objects.filter(state="importing", **whose).count()


def attempts_of(owner: Owner) -> QuerySet[Attempt]:
    """Return the attempts of a project, or those that a person began; retries count for who launched the run."""
    if isinstance(owner, Project):
        return Attempt.objects.filter(run__project=owner)
    began = Coalesce("created_by_id", "run__created_by_id")
    return Attempt.objects.annotate(began_by=began).filter(began_by=owner.pk)


def _used(owner: Owner, name: Name, now: datetime) -> float:
    if name == "gpu_hours":
        return gpu_hours(owner, now=now)
    if name in ("live_runs", "imports"):
        return live_runs(owner) if name == "live_runs" else imports(owner)
    if name == "uploads":
        return Upload.objects.filter(**_brought(owner)).count()
    whose: usage.Owner = "project" if isinstance(owner, Project) else "created_by"
    taken = usage.use_of(whose, owner.pk)
    return taken.uploads if name == "upload_bytes" else taken.total


def _brought(owner: Owner) -> dict[str, object]:
    return {"project": owner} if isinstance(owner, Project) else {"created_by_id": owner.pk}


def _whose(owner: Owner) -> dict[str, Any]:
    return {"project": owner} if isinstance(owner, Project) else {"user_id": owner.pk}


def _row(owner: Owner) -> Quota | None:
    return Quota.objects.filter(**_whose(owner)).first()


def _owners(project: Project, user: AbstractBaseUser | None) -> Iterator[Owner]:
    yield project
    if user is not None:
        yield user


def _require(owner: Owner, name: Name, adds: float) -> None:
    most = limits_of(owner)[name]
    if most is None:
        return
    use = QuotaUse(name=name, used=_used(owner, name, timezone.now()), most=most)
    if use.used + adds > most:
        text = _("%(why)s Delete what nobody needs, or ask the operator of this console for more.")
        raise QuotaReached(text % {"why": reached(owner, use, adds=adds)})


def _checked(name: str, value: object) -> float | bool | None:
    """Return a limit as it is kept. Raises: QuotaRefused."""
    if name == "stops_runs":
        if not isinstance(value, bool):
            raise QuotaRefused(name, _("stops_runs: %(value)r is neither true nor false.") % {"value": value})
        return value
    if name not in LABELS:
        text = _("There is no quota %(name)r. There are %(names)s.")
        raise QuotaRefused(name[:60], text % {"name": name[:60], "names": ", ".join((*NAMES, "stops_runs"))})
    if value is None:
        return None
    is_hours = name == "gpu_hours"
    number = value if isinstance(value, (int, float)) and not isinstance(value, bool) else -1
    if 0 <= number <= _MOST and (is_hours or number == int(number)):
        return float(number) if is_hours else int(number)
    kind = _("a number from 0 on") if is_hours else _("a whole number from 0 on")
    text = _("%(name)s: %(value)s is not %(kind)s, or nothing for no limit.")
    raise QuotaRefused(name, text % {"name": name, "value": str(value)[:60], "kind": kind})
