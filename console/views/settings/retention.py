"""How long a project keeps what its runs leave: the rules, and what they would let go."""

from dataclasses import dataclass
from typing import Any

from django.conf import settings as console_settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import path
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_POST

from console.views.frame import named_project, person
from jobs.accounts.access import role
from jobs.models import Project, Retention
from jobs.retention.apply import Going, preview
from jobs.retention.policy import KINDS, RetentionRefused, parse_rules, rules_of, set_retention

_SHOWN = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleRow:
    """A kind as the form shows it: its name, what `keep_last` counts, and its fields as typed."""

    kind: str
    label: str
    of: str
    days: object
    keep_last: object
    keep_best: object


@require_GET
def retention(request: HttpRequest, project: str) -> HttpResponse:
    """Show the rules."""
    return _show(request, named_project(request, project, "viewer"))


@require_POST
def change_retention(request: HttpRequest, project: str) -> HttpResponse:
    """Keep the rules of the form, or with `preview` only say what they would let go."""
    home = named_project(request, project, "admin")
    raw: dict[str, object] = {kind: fields for kind in KINDS if (fields := _fields(request, kind))}
    now = timezone.now()
    try:
        if "preview" in request.POST:
            going = list(preview(home, parse_rules(raw), now=now))
            return _show(request, home, going=going)
        days = _typed(request.POST.get("trash_days", ""))
        set_retention(project=home, raw=raw, trash_days=days, user=person(request), now=now)
    except RetentionRefused as error:
        return _show(request, home, sentence=str(error), wrong=error.field)
    messages.success(request, _("The retention is kept. It is applied within a day, through the trash."))
    return redirect("retention", home.slug)


def _fields(request: HttpRequest, kind: str) -> dict[str, Any]:
    """Return what was typed for a kind, without what was left empty."""
    typed = {name: _typed(request.POST.get(f"{kind}.{name}", "")) for name in ("days", "keep_last", "keep_best")}
    return {name: value for name, value in typed.items() if value is not None}


def _typed(text: str) -> Any:
    """Return a number, None for an empty field; what is none is left for the rules to refuse."""
    text = text.strip()
    return None if not text else int(text) if text.isdecimal() and len(text) < 10 else text


def _show(request: HttpRequest, project: Project, **more: Any) -> HttpResponse:
    row = Retention.objects.filter(project=project).first()
    going: list[Going] | None = more.pop("going", None)
    context = {
        "project": project,
        "heading": _("Retention"),
        "is_admin": role(request.user, project) == "admin",
        "rules": _rows(request, project),
        "trash_days": request.POST.get("trash_days", (row.trash_days or "") if row else ""),
        "console_days": console_settings.TRASH_DAYS,
        "applied_at": row.applied_at if row else None,
        "is_preview": going is not None,
        "going": (going or [])[:_SHOWN],
        "num_more": max(0, len(going or []) - _SHOWN),
        "total": len(going or []),
        "bytes_here": sum(each.bytes_here for each in going or []),
        "bytes_cluster": sum(each.bytes_cluster for each in going or []),
    }
    return render(request, "settings/retention.html", context | more, status=422 if more.get("sentence") else 200)


def _rows(request: HttpRequest, project: Project) -> list[RuleRow]:
    labels = {
        "logs": (_("Logs"), _("runs")),
        "samples": (_("Samples"), _("runs")),
        "captures": (_("Captures and their traces"), _("of each run")),
        "checkpoints": (_("Checkpoints"), _("of each run")),
    }
    rules = rules_of(project)
    rows = []
    for kind in KINDS:
        rule = rules.get(kind)
        names = ("days", "keep_last", "keep_best")
        typed = {name: request.POST.get(f"{kind}.{name}", getattr(rule, name, None) or "") for name in names}
        rows.append(RuleRow(kind=kind, label=labels[kind][0], of=labels[kind][1], **typed))
    return rows


urlpatterns = [
    path("settings/<slug:project>/retention", retention, name="retention"),
    path("settings/<slug:project>/retention/change", change_retention, name="change-retention"),
]
