"""Dashboards of a project: the charts that people put together, in which order and how large."""

from datetime import datetime
from typing import Any

from django.http import Http404, HttpRequest
from ninja import Field, Router, Schema, Status

from console.api.problem import REFUSALS, RequestProblem
from console.api.visible import caller, project_for
from jobs.accounts.access import allows, role
from jobs.models import Dashboard, Project
from jobs.runs.dashboards import (
    MOST_CHARTS,
    TALLEST,
    WIDEST,
    DashboardRefused,
    change_dashboard,
    create_dashboard,
    dashboard_at,
    dashboards_of,
    delete_dashboard,
    may_change,
)

projects = Router(tags=["dashboards"])


class DashboardChart(Schema):
    """One chart: a metric as charts call it, and how many columns and rows it takes."""

    model_config = {"extra": "forbid"}

    metric: str = Field(max_length=1000)
    width: int = Field(1, description=f"Columns, 1 to {WIDEST}")
    height: int = Field(1, description=f"Rows, 1 to {TALLEST}")


class DashboardIn(Schema):
    """A dashboard to keep."""

    model_config = {"extra": "forbid"}

    name: str = Field(max_length=1000)
    charts: list[DashboardChart] = Field([], max_length=10 * MOST_CHARTS)
    is_shared: bool = Field(False, description="For the whole project, not for you alone; needs an editor")


class DashboardPatchIn(Schema):
    """What to change; what is left out stays."""

    model_config = {"extra": "forbid"}

    name: str | None = Field(None, max_length=1000)
    charts: list[DashboardChart] | None = Field(None, max_length=10 * MOST_CHARTS)
    is_shared: bool | None = None
    is_default: bool | None = Field(None, description="The tab of a run opens with it: yours before the project's")


class DashboardOut(Schema):
    """A dashboard. `owner` is null for the project's; `may_change`: you may change and delete it."""

    id: str
    name: str
    charts: list[DashboardChart]
    is_shared: bool
    is_default: bool
    owner: str | None
    may_change: bool
    changed_at: datetime


class DashboardsOut(Schema):
    """The project's dashboards and yours."""

    dashboards: list[DashboardOut]


@projects.get("/{slug:project}/dashboards", response={200: DashboardsOut, **REFUSALS}, summary="Dashboards")
def list_dashboards(request: HttpRequest, project: str) -> DashboardsOut:
    """Return the project's dashboards and your own of it."""
    home = project_for(request, project)
    is_editor = allows(role(request.user, home), "editor")
    return DashboardsOut(dashboards=[_out(request, one, is_editor) for one in dashboards_of(home, request.user)])


@projects.post("/{slug:project}/dashboards", response={201: DashboardOut, **REFUSALS}, summary="Make a dashboard")
def post_dashboard(request: HttpRequest, project: str, body: DashboardIn) -> Status[DashboardOut]:
    """Keep charts under a name that is not taken."""
    home = project_for(request, project)
    try:
        made = create_dashboard(project=home, user=caller(request), **body.model_dump())
    except DashboardRefused as error:
        raise RequestProblem(422, str(error), field=error.field) from error
    return Status(201, _out(request, made))


@projects.get(
    "/{slug:project}/dashboards/{slug:dashboard_id}", response={200: DashboardOut, **REFUSALS}, summary="A dashboard"
)
def read_dashboard(request: HttpRequest, project: str, dashboard_id: str) -> DashboardOut:
    """Return a dashboard of the project: also a person's own, for whoever was given its address."""
    return _out(request, _dashboard(project_for(request, project), dashboard_id))


@projects.patch(
    "/{slug:project}/dashboards/{slug:dashboard_id}",
    response={200: DashboardOut, **REFUSALS},
    summary="Change a dashboard",
)
def patch_dashboard(request: HttpRequest, project: str, dashboard_id: str, body: DashboardPatchIn) -> DashboardOut:
    """Rename it, change its charts, share it or no longer, make it the default: your own, or as an editor the
    project's.
    """
    dashboard = _own(request, project_for(request, project), dashboard_id)
    changes = {key: value for key, value in body.model_dump().items() if value is not None}
    try:
        changed = change_dashboard(dashboard=dashboard, user=caller(request), changes=changes)
    except DashboardRefused as error:
        raise RequestProblem(422, str(error), field=error.field) from error
    return _out(request, changed)


@projects.delete(
    "/{slug:project}/dashboards/{slug:dashboard_id}", response={204: None, **REFUSALS}, summary="Delete a dashboard"
)
def remove_dashboard(request: HttpRequest, project: str, dashboard_id: str) -> Any:
    """Delete your own, or as an editor the project's."""
    dashboard = _own(request, project_for(request, project), dashboard_id)
    delete_dashboard(dashboard=dashboard, user=caller(request))
    return Status(204, None)


def _dashboard(project: Project, dashboard_id: str) -> Dashboard:
    dashboard = dashboard_at(project, dashboard_id)
    if dashboard is None:
        raise Http404
    return dashboard


def _own(request: HttpRequest, project: Project, dashboard_id: str) -> Dashboard:
    """Return the project's, or the caller's own. Raises: Http404, RequestProblem for another person's."""
    dashboard = _dashboard(project, dashboard_id)
    if dashboard.owner_id not in (None, caller(request).pk):
        raise RequestProblem(403, f"{dashboard.name} is of {dashboard.owner}. Save a copy to change it.", field="id")
    return dashboard


def _out(request: HttpRequest, dashboard: Dashboard, is_editor: bool | None = None) -> DashboardOut:
    if is_editor is None:
        is_editor = allows(role(request.user, dashboard.project), "editor")
    return DashboardOut(
        id=dashboard.pk,
        name=dashboard.name,
        charts=[DashboardChart(**chart) for chart in dashboard.charts],
        is_shared=dashboard.owner_id is None,
        is_default=dashboard.is_default,
        owner=dashboard.owner.get_username() if dashboard.owner else None,
        may_change=may_change(request.user, dashboard, is_editor=is_editor),
        changed_at=dashboard.changed_at,
    )
