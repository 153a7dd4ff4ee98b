"""Read the audit: who may see which rows, filters, pages by cursor, all of it line by line."""

import heapq
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import reduce
from ipaddress import ip_address
from operator import or_
from typing import Any

from django.db.models import Q, QuerySet, TextField
from django.db.models.functions import Cast
from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext as _

from jobs.accounts.access import NotAllowed, User, limits_of, projects_of, require, role
from jobs.accounts.audit import OBJECT_TYPES
from jobs.catalog.value import is_storable
from jobs.models import AuditEvent, Project

PAGE_ROWS = 100
MAX_ROWS = 1000
MAX_WORDS = 5
_EXPORT_ROWS = 1000
_CURSOR = re.compile(r"([0-9]{1,17})-([0-9]{1,18})")


class AuditFilterInvalid(ValueError):
    """A filter cannot be read; `field` names it."""

    def __init__(self, field: str, message: str) -> None:
        self.field = field
        super().__init__(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFilter:
    """Which rows: texts as people type them, "" for any.

    `since`, `until`: ISO 8601 dates or times, UTC without an offset; a date as `until` counts as a whole. `verb`: one
    (`run.stop`), or a family (`run`). `object`: an id, or a type (`run`), or both (`run:r-12ab34cd`). `token`: the
    number of one. `text` is looked for in names, ids, tokens and in what was changed.
    """

    since: str = ""
    until: str = ""
    person: str = ""
    verb: str = ""
    object: str = ""
    token: str = ""
    ip: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditPage:
    """Rows, newest first; `next` is the cursor of older ones, "" if there are none."""

    rows: list[AuditEvent]
    next: str


@dataclass(frozen=True, slots=True)
class AuditScope:
    """The rows that somebody may see: those of `projects`, or all (None) for whoever runs the console."""

    projects: tuple[int, ...] | None


def scope_of(user: User, project: Project | None) -> AuditScope:
    """Return what the person may read: admins their projects' rows, superusers all; of `project` alone if one is given.

    Raises: NotAllowed.
    """
    runs_console = sees_all(user)
    if project is not None:
        if not runs_console:
            require(user, project, "admin")
        return AuditScope((project.pk,))
    if runs_console:
        return AuditScope(None)
    own = tuple(each.pk for each in projects_of(user) if role(user, each) == "admin")
    if not own:
        raise NotAllowed(_("Only admins of a project, and superusers, read the audit."), is_member=True)
    return AuditScope(own)


def sees_all(user: User) -> bool:
    """Return True for a superuser who did not come with a limited token."""
    limits = limits_of(user)
    is_whole = limits.role == "admin" and limits.project_id is None and not limits.has_end
    return bool(getattr(user, "is_superuser", False) and user.is_active and is_whole)


def audit_page(scope: AuditScope, chosen: AuditFilter, *, cursor: str = "", limit: int = PAGE_ROWS) -> AuditPage:
    """Return the newest rows that pass the filter, or those after a cursor. Raises: AuditFilterInvalid."""
    rows = _filtered(chosen)
    if cursor:
        at, number = _position(cursor)
        rows = rows.filter(Q(at__lt=at) | Q(at=at, id__lt=number), at__lte=at)
    newest = _newest(rows, scope, limit + 1)
    return AuditPage(rows=newest[:limit], next=_cursor(newest[limit - 1]) if len(newest) > limit else "")


def audit_lines(scope: AuditScope, chosen: AuditFilter) -> Iterator[str]:
    """Yield all rows that pass the filter as JSON lines, newest first, in many queries. Raises as `audit_page`."""
    page = audit_page(scope, chosen, limit=_EXPORT_ROWS)
    while True:
        for row in page.rows:
            yield json.dumps(row_json(row), ensure_ascii=False) + "\n"
        if not page.next:
            return
        page = audit_page(scope, chosen, cursor=page.next, limit=_EXPORT_ROWS)


def row_json(row: AuditEvent) -> dict[str, Any]:
    """Return a row as the API and the export give it."""
    return {
        "id": row.pk,
        "at": row.at.isoformat(),
        "actor": row.actor_name,
        "way": row.way,
        "token_id": row.token_id,
        "token": row.token,
        "ip": row.ip,
        "user_agent": row.user_agent,
        "verb": row.verb,
        "object_type": row.object_type,
        "object_id": row.object_id,
        "object_label": row.object_label,
        "project": row.project_slug,
        "before": row.before,
        "after": row.after,
    }


def _newest(rows: "QuerySet[AuditEvent]", scope: AuditScope, count: int) -> list[AuditEvent]:
    """Return the newest rows of the scope: each project's from its index, then the newest of those."""
    ordered = rows.order_by("-at", "-id")
    if scope.projects is None:
        return list(ordered[:count])
    parts = [list(ordered.filter(project_id=project)[:count]) for project in scope.projects]
    merged = heapq.merge(*parts, key=lambda row: (row.at, row.pk), reverse=True)
    return [row for row, _number in zip(merged, range(count), strict=False)]


def _filtered(chosen: AuditFilter) -> "QuerySet[AuditEvent]":
    for field in ("person", "verb", "object", "token", "ip", "text"):
        if not is_storable(getattr(chosen, field)):
            raise AuditFilterInvalid(field, _("It holds a character that no row can hold. Type it again."))
    rows = AuditEvent.objects.all()
    if chosen.since:
        rows = rows.filter(at__gte=_moment("since", chosen.since))
    if chosen.until:
        rows = rows.filter(at__lt=_moment("until", chosen.until, is_end=True))
    if chosen.person:
        rows = rows.filter(actor_name=chosen.person)
    if chosen.verb:
        verb = chosen.verb.rstrip(".")
        is_one = "." in verb
        rows = (
            rows.filter(verb=verb)
            if is_one
            else rows.filter(Q(verb=verb) | Q(verb__gt=f"{verb}.", verb__lt=f"{verb}/"))
        )
    if chosen.object:
        rows = rows.filter(_of_object(chosen.object))
    if chosen.token:
        if not re.fullmatch(r"[0-9]{1,18}", chosen.token):
            text = _(
                "%(given)r is not the number of a token. Take it from a row of the audit, or from GET /api/tokens."
            )
            raise AuditFilterInvalid("token", text % {"given": chosen.token[:80]})
        rows = rows.filter(token_id=int(chosen.token))
    if chosen.ip:
        rows = rows.filter(ip=_address(chosen.ip))
    if chosen.text:
        texts = {f"{field}_text": Cast(field, TextField()) for field in ("before", "after")}
        rows = rows.alias(**texts).filter(_with_text(chosen.text.split()[:MAX_WORDS]))
    return rows


def _of_object(text: str) -> Q:
    kind, parted, number = text.partition(":")
    if parted:
        return Q(object_type=kind, object_id=number)
    return Q(object_type=text) if text in OBJECT_TYPES else Q(object_id=text)


def _with_text(words: Sequence[str]) -> Q:
    every = Q()
    for word in words:
        fields = ("object_label", "object_id", "actor_name", "token", "verb", "before_text", "after_text")
        anywhere = [Q(**{f"{field}__icontains": word}) for field in fields]
        every &= reduce(or_, anywhere)
    return every


def _address(text: str) -> str:
    try:
        return str(ip_address(text))
    except ValueError as error:
        said = _("%(given)r is not an address. Use one like 192.0.2.7 or 2001:db8::1.")
        raise AuditFilterInvalid("ip", said % {"given": text[:80]}) from error


def _moment(field: str, text: str, *, is_end: bool = False) -> datetime:
    """Return the moment that a text names; of a date its first, or the one after its last."""
    try:
        if re.fullmatch(r"\d{4}-\d{2}-\d{2}", text):
            day = datetime.combine(date.fromisoformat(text), datetime.min.time(), tzinfo=UTC)
            return day + timedelta(days=1) if is_end else day
        moment = parse_datetime(text)
        if moment is not None:
            return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        pass
    said = _("%(given)r is not a time. Use a date like 2026-11-27, or a time like 2026-11-27T13:45.")
    raise AuditFilterInvalid(field, said % {"given": text[:80]})


def _cursor(row: AuditEvent) -> str:
    return f"{round(row.at.timestamp() * 1_000_000)}-{row.pk}"


def _position(cursor: str) -> tuple[datetime, int]:
    parts = _CURSOR.fullmatch(cursor)
    if parts is None:
        text = _("%(given)r is not a cursor. Use the one that the page before gave, or leave it out.")
        raise AuditFilterInvalid("cursor", text % {"given": cursor[:80]})
    micros, number = (int(part) for part in parts.groups())
    try:
        return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=micros), number
    except OverflowError as error:
        raise AuditFilterInvalid("cursor", _("The cursor names no moment.")) from error
