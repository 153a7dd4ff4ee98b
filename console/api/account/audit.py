"""Who did what: the rows of the audit, with filters, page by page or all of them as JSON lines."""

from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any

from django.http import HttpRequest, StreamingHttpResponse
from ninja import Field, Query, Router, Schema

from console.api.problem import EXPENSIVE, RequestProblem
from console.api.visible import ProjectSlug, caller
from console.budget import expensive
from console.downloads.csv_response import csv_answer
from jobs.accounts.access import NotAllowed, projects_of
from jobs.accounts.audit import record
from jobs.accounts.audit_log import (
    MAX_ROWS,
    PAGE_ROWS,
    AuditFilter,
    AuditFilterInvalid,
    AuditScope,
    audit_lines,
    audit_page,
    row_json,
    scope_of,
    sees_all,
)
from jobs.catalog.value import is_storable
from jobs.models import Project

router = Router(tags=["account"])


class AuditEventOut(Schema):
    """A deed: who (by name, as it was), how they came, from where, what they did to what, and what changed."""

    id: int
    at: datetime
    actor: str
    way: str
    token_id: int | None
    token: str
    ip: str | None
    user_agent: str
    verb: str
    object_type: str
    object_id: str
    object_label: str
    project: str
    before: Any
    after: Any


class AuditOut(Schema):
    """Deeds, newest first; `next` is the cursor of older ones, "" if there are none."""

    events: list[AuditEventOut]
    next: str


class AuditQuery(Schema):
    """Filters of the audit; all of them must hold."""

    since: str = Field("", max_length=40, description="ISO 8601 date or time, UTC without an offset")
    until: str = Field("", max_length=40, description="before this time; a date counts as a whole")
    person: str = Field("", max_length=150, description="who did it, by name")
    verb: str = Field("", max_length=40, description="run.stop, or run for all of its family")
    object: str = Field("", max_length=110, description="an id, a type (run), or both (run:r-12ab34cd)")
    token: str = Field("", max_length=20, description="number of the API token that was used")
    ip: str = Field("", max_length=45, description="address that it was done from")
    q: str = Field("", max_length=200, description="words in names, ids and what changed")


@router.get("", response={200: AuditOut, **EXPENSIVE}, summary="Who did what")
@expensive
def list_audit(
    request: HttpRequest,
    filters: Query[AuditQuery],
    project: ProjectSlug = None,
    cursor: Annotated[str, Query("", max_length=40, description="`next` of the page before")] = "",
    limit: Annotated[int, Query(PAGE_ROWS, ge=1, le=MAX_ROWS)] = PAGE_ROWS,
) -> AuditOut:
    """Return deeds of a project, or of all whose audit you may read: admins their projects', superusers everything."""
    scope, _project = audit_scope(request, project)
    try:
        page = audit_page(scope, as_filter(filters), cursor=cursor, limit=limit)
    except AuditFilterInvalid as error:
        raise RequestProblem(422, str(error), field=_FIELDS.get(error.field, error.field)) from error
    return AuditOut(events=[AuditEventOut(**row_json(row)) for row in page.rows], next=page.next)


@router.get(
    "/export",
    response={200: None, **EXPENSIVE},
    summary="The audit as JSON lines",
    openapi_extra={
        "responses": {
            200: {"description": "JSON lines", "content": {"application/jsonl": {"schema": {"type": "string"}}}}
        }
    },
)
@expensive
def export_audit(
    request: HttpRequest, filters: Query[AuditQuery], project: ProjectSlug = None
) -> StreamingHttpResponse:
    """Return every deed that passes the filters, newest first, one JSON object a line. The export is a deed, too."""
    scope, home = audit_scope(request, project)
    try:
        return audit_export(request, scope, as_filter(filters), home)
    except AuditFilterInvalid as error:
        raise RequestProblem(422, str(error), field=_FIELDS.get(error.field, error.field)) from error


_FIELDS = {"text": "q"}


def as_filter(query: AuditQuery) -> AuditFilter:
    """Return the filter that the query's texts are."""
    texts = query.model_dump()
    return AuditFilter(text=texts.pop("q"), **texts)


def audit_scope(request: HttpRequest, slug: str | None) -> tuple[AuditScope, Project | None]:
    """Return what the caller may read, of the project named or of all. Raises: NotAllowed, RequestProblem."""
    if not slug:
        return scope_of(caller(request), None), None
    seen = Project.objects.all() if sees_all(request.user) else projects_of(request.user)
    project = seen.filter(slug=slug).first() if is_storable(slug) else None
    if project is None:
        raise NotAllowed("There is no such project, or you have no access to it.", is_member=False)
    return scope_of(caller(request), project), project


def audit_export(
    request: HttpRequest, scope: AuditScope, chosen: AuditFilter, project: Project | None
) -> StreamingHttpResponse:
    """Stream the rows as a file, and keep that somebody took them along. Raises: AuditFilterInvalid."""
    audit_page(scope, chosen, limit=1)  # a filter that cannot be read is refused before the first byte
    filters = {name: value for name, value in asdict(chosen).items() if value}
    record(
        actor=caller(request),
        verb="audit.export",
        object_type="audit",
        object_id="",
        after={"filter": filters},
        project=project,
    )
    name = f"audit-{project.slug}.jsonl" if project else "audit.jsonl"
    return csv_answer(audit_lines(scope, chosen), name=name, content_type="application/jsonl")
