"""Dashboards: charts of runs that people put together, for themselves or for their project."""

from collections.abc import Mapping, Sequence
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet
from django.utils import timezone
from django.utils.translation import gettext as _

from jobs.accounts.access import User, require
from jobs.accounts.audit import record
from jobs.catalog.value import is_storable
from jobs.models import Dashboard, Project

MAX_NAME_CHARS = 60
MAX_METRIC_CHARS = 200
MOST_CHARTS = 60
MOST_DASHBOARDS = 100  # of one person, or of a project
WIDEST = 3  # columns
TALLEST = 3  # rows


class DashboardRefused(ValueError):
    """A dashboard makes no sense; `field` names what is wrong with it."""

    def __init__(self, field: str, message: str) -> None:
        self.field = field
        super().__init__(message)


def dashboards_of(project: Project, user: User) -> QuerySet[Dashboard]:
    """Return the project's dashboards and the person's own of it, by name."""
    seen = Q(owner=None) | Q(owner=user.pk)
    return Dashboard.objects.filter(seen, project=project).select_related("owner").order_by("name", "pk")


def dashboard_at(project: Project, dashboard_id: str) -> Dashboard | None:
    """Return the dashboard of the project that an address names, whoever's it is."""
    return Dashboard.objects.select_related("owner").filter(project=project, pk=dashboard_id).first()


def may_change(user: User, dashboard: Dashboard, *, is_editor: bool) -> bool:
    """Return True for the person's own dashboards, and for the project's to who may edit in it."""
    return is_editor if dashboard.owner_id is None else dashboard.owner_id == user.pk


def create_dashboard(
    *, project: Project, user: AbstractBaseUser, name: str, charts: Sequence[Mapping[str, Any]], is_shared: bool
) -> Dashboard:
    """Keep a new dashboard and return it. Raises: DashboardRefused; NotAllowed where a viewer makes the project's."""
    if is_shared:
        require(user, project, "editor")
    owner_id = None if is_shared else user.pk
    if Dashboard.objects.filter(project=project, owner=owner_id).count() >= MOST_DASHBOARDS:
        text = _("There are %(most)s dashboards already. Delete one first.") % {"most": MOST_DASHBOARDS}
        raise DashboardRefused("name", text)
    made = Dashboard(project=project, owner_id=owner_id, name=_checked_name(name), charts=_checked_charts(charts))
    _keep(made, user, "dashboard.create", {})
    return made


def change_dashboard(*, dashboard: Dashboard, user: AbstractBaseUser, changes: Mapping[str, Any]) -> Dashboard:
    """Change `name`, `charts`, `is_default` or `is_shared`, all or none, and return the dashboard.

    Another default of the same people stops being it. What is no longer shared becomes that person's own.
    Raises: DashboardRefused; NotAllowed where a viewer touches the project's.
    """
    if dashboard.owner_id is None or changes.get("is_shared"):
        require(user, dashboard.project, "editor")
    with transaction.atomic():
        held = Dashboard.objects.select_for_update(of=("self",)).select_related("project").get(pk=dashboard.pk)
        before = _said(held)
        if "name" in changes:
            held.name = _checked_name(changes["name"])
        if "charts" in changes:
            held.charts = _checked_charts(changes["charts"])
        if "is_shared" in changes and changes["is_shared"] != (held.owner_id is None):
            held.owner_id, held.is_default = (None if changes["is_shared"] else user.pk), False
        if "is_default" in changes:
            held.is_default = changes["is_default"]
            if held.is_default:
                others = Dashboard.objects.filter(project=held.project, owner=held.owner_id, is_default=True)
                others.exclude(pk=held.pk).update(is_default=False)
        if _said(held) != before:
            _keep(held, user, "dashboard.change", before)
    return held


def delete_dashboard(*, dashboard: Dashboard, user: AbstractBaseUser) -> None:
    """Delete it. Raises: NotAllowed where a viewer deletes the project's."""
    if dashboard.owner_id is None:
        require(user, dashboard.project, "editor")
    with transaction.atomic():
        _tell(dashboard, user, "dashboard.delete", before=_said(dashboard), after={})
        dashboard.delete()


def _keep(dashboard: Dashboard, user: AbstractBaseUser, verb: str, before: Mapping[str, Any]) -> None:
    dashboard.changed_by_id, dashboard.changed_at = user.pk, timezone.now()
    try:
        with transaction.atomic():
            dashboard.save()
            after = _said(dashboard)
            changed = {key: value for key, value in after.items() if before.get(key) != value}
            _tell(dashboard, user, verb, before={key: before[key] for key in changed if key in before}, after=changed)
    except IntegrityError as error:
        text = _("There is a dashboard of the name “%(name)s” already. Use another one.") % {"name": dashboard.name}
        raise DashboardRefused("name", text) from error


def _tell(
    dashboard: Dashboard, user: AbstractBaseUser, verb: str, *, before: Mapping[str, Any], after: Mapping[str, Any]
) -> None:
    record(
        actor=user,
        verb=verb,
        object_type="dashboard",
        object_id=dashboard.pk,
        before=before,
        after=after,
        project=dashboard.project,
        label=dashboard.name,
    )


def _said(dashboard: Dashboard) -> dict[str, Any]:
    """Return what people can change of it."""
    return {
        "name": dashboard.name,
        "charts": dashboard.charts,
        "is_default": dashboard.is_default,
        "is_shared": dashboard.owner_id is None,
    }


def _checked_name(name: str) -> str:
    words = " ".join(name.split())
    if not 0 < len(words) <= MAX_NAME_CHARS or not is_storable(words):
        text = _("%(given)r is not a name. Use 1 to %(most)s characters on one line.")
        raise DashboardRefused("name", text % {"given": words[:200], "most": MAX_NAME_CHARS})
    return words


def _checked_charts(charts: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    if len(charts) > MOST_CHARTS:
        text = _("A dashboard has at most %(most)s charts, this one has %(count)s.")
        raise DashboardRefused("charts", text % {"most": MOST_CHARTS, "count": len(charts)})
    seen = set()
    for place, chart in enumerate(charts):
        metric = str(chart["metric"])
        if not 0 < len(metric) <= MAX_METRIC_CHARS or any(ord(c) < 33 for c in metric) or not is_storable(metric):
            text = _("%(given)r is not the name of a metric. Use one as charts call it, like kl/reference.")
            raise DashboardRefused(f"charts.{place}.metric", text % {"given": metric[:40]})
        if metric in seen:
            text = _("%(metric)s is on the dashboard twice. Leave one of the two out.")
            raise DashboardRefused(f"charts.{place}.metric", text % {"metric": metric})
        seen.add(metric)
        for side, most in (("width", WIDEST), ("height", TALLEST)):
            if not 1 <= chart[side] <= most:
                text = _("The %(side)s of %(metric)s is %(given)s. Use 1 to %(most)s.")
                words = {"side": side, "metric": metric, "given": chart[side], "most": most}
                raise DashboardRefused(f"charts.{place}.{side}", text % words)
    return [{"metric": str(c["metric"]), "width": int(c["width"]), "height": int(c["height"])} for c in charts]
