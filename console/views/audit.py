"""The page Audit: who did what, from where and by which token; its address holds all filters."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import render
from django.urls import NoReverseMatch, path, reverse
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from console.api.account.audit import audit_export, audit_scope
from console.budget import expensive
from console.labels.deeds import DEED_WORDS, deed_words
from jobs.accounts.access import projects_of, role
from jobs.accounts.audit_log import AuditFilter, AuditFilterInvalid, AuditPage, audit_page, sees_all
from jobs.models import AuditEvent, Capture, Project

_FIELDS = {"q": "text"}  # in the address -> in the filter
_NAMES = ("q", "person", "verb", "object", "token", "ip", "since", "until")
_MAX_VALUE_CHARS = 300
_DEPTH = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldChange:
    """What a deed did to one field; "" where there was, or is, nothing. `is_same`: it says what else was meant."""

    field: str
    before: str
    after: str
    is_same: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditLine:
    """A row as the table shows it, its deed in `words`. `url`: the page of what it was done to, "" where there is none
    (any more).
    """

    row: AuditEvent
    way: str
    words: str
    url: str
    changes: list[FieldChange]


@require_GET
@never_cache
@expensive
def audit(request: HttpRequest) -> HttpResponse:
    """Show the newest rows that the filters leave, or those after the cursor."""
    query = {name: request.GET.get(name, "").strip() for name in _NAMES}
    slug = request.GET.get("project", "")
    scope, project = audit_scope(request, slug or None)
    context: dict[str, object] = {"asked": query, "chosen_project": project, "problem": "", "problem_field": ""}
    page = AuditPage(rows=[], next="")
    try:
        page = audit_page(scope, _filter(query), cursor=request.GET.get("cursor", ""))
    except AuditFilterInvalid as error:
        context |= {"problem": str(error), "problem_field": {"text": "q"}.get(error.field, error.field)}
    address = {name: value for name, value in {"project": slug, **query}.items() if value}
    context |= {
        "lines": lines(page.rows),
        "verbs": DEED_WORDS.items(),
        "query": urlencode(address),
        "is_filtered": any(query.values()),
        "older": urlencode({**address, "cursor": page.next}) if page.next else "",
        "is_older": bool(request.GET.get("cursor")),
        "sees_all": sees_all(request.user),
        "readable": _readable(request),
    }
    return render(request, "audit/audit.html", context, status=422 if context["problem"] else 200)


@require_GET
@expensive
def audit_jsonl(request: HttpRequest) -> HttpResponse | StreamingHttpResponse:
    """Give all rows that the filters leave as JSON lines."""
    query = {name: request.GET.get(name, "").strip() for name in _NAMES}
    scope, project = audit_scope(request, request.GET.get("project") or None)
    try:
        return audit_export(request, scope, _filter(query), project)
    except AuditFilterInvalid as error:
        return HttpResponse(str(error), status=422, content_type="text/plain; charset=utf-8")


def lines(rows: Iterable[AuditEvent]) -> list[AuditLine]:
    """Return the rows as the table shows them."""
    listed = list(rows)
    captures = [row.object_id for row in listed if row.object_type == "capture"]
    runs = dict(Capture.objects.filter(pk__in=captures).values_list("pk", "run_id")) if captures else {}
    words = way_words()
    return [
        AuditLine(
            row=row,
            way=words.get(row.way, row.way),
            words=deed_words(row.verb),
            url=_url(row, runs),
            changes=changes(row.before, row.after),
        )
        for row in listed
    ]


def way_words() -> dict[str, str]:
    """Return how somebody came, in words."""
    return {
        "session": _("browser"),
        "token": _("API token"),
        "password": _("password"),
        "link": _("one-time link"),
        "oidc": _("single sign-on"),
        "command": _("command line"),
        "console": _("the console itself"),
        "signed-out": _("not signed in"),
    }


def changes(before: object, after: object) -> list[FieldChange]:
    """Return what was and what is, field by field; fields of fields are named with dots."""
    was, now = _flat(before), _flat(after)
    names = [*was, *(name for name in now if name not in was)]
    pairs = ((name, was.get(name, ""), now.get(name, "")) for name in names)
    return [
        FieldChange(field=name, before="" if old == new else old, after=new, is_same=old == new)
        for name, old, new in pairs
    ]


def _flat(value: object, name: str = "", depth: int = _DEPTH) -> dict[str, str]:
    if isinstance(value, Mapping) and depth and value:
        parts = (_flat(inner, f"{name}.{key}" if name else str(key), depth - 1) for key, inner in value.items())
        return {key: text for part in parts for key, text in part.items()}
    if value is None:
        return {}
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return {name: text if len(text) <= _MAX_VALUE_CHARS else f"{text[:_MAX_VALUE_CHARS]}…"}


def _url(row: AuditEvent, runs: Mapping[str, str]) -> str:
    """Return the page of what the deed was done to."""
    if row.verb.endswith(".delete"):
        return ""
    if row.object_type == "project":
        return f"{reverse('settings')}?{urlencode({'project': row.object_id})}"
    pages: dict[str, tuple[str, list[str]]] = {
        "run": ("run", [row.object_id]),
        "study": ("study", [row.object_id]),
        "trace": ("trace", [row.object_id]),
        "capture": ("run", [runs.get(row.object_id, ""), "profile"]),
        "alert": ("alert", [row.object_id]),
    }
    if row.object_type not in pages:
        return ""
    name, parts = pages[row.object_type]
    try:
        return reverse(name, args=parts)
    except NoReverseMatch:  # no id of ours
        return ""


def _filter(query: Mapping[str, str]) -> AuditFilter:
    return AuditFilter(**{_FIELDS.get(name, name): value for name, value in query.items()})


def _readable(request: HttpRequest) -> list[Project]:
    """Return the projects whose rows the person may choose."""
    if sees_all(request.user):
        return list(Project.objects.order_by("slug"))
    return [project for project in projects_of(request.user) if role(request.user, project) == "admin"]


urlpatterns = [
    path("audit", audit, name="audit"),
    path("audit.jsonl", audit_jsonl, name="audit-jsonl"),
]
