"""Who did what, for good: rows that are only ever added, and go when they are older than they are kept."""

from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction

from jobs.accounts.origin import MAX_USER_AGENT_CHARS, Way, origin
from jobs.models import AuditEvent, AuditSweep, Capture, Project, Run, Study, Trace
from profiling.redaction import hide_in

OBJECT_TYPES = frozenset(
    {"access", "account", "address", "alert", "alert_channel", "alert_rule", "audit", "backup", "capture"}
    | {"dashboard", "project", "run", "study", "token", "trace", "upload"}
)
"""What deeds are done to; the filter tells these words from ids by them."""
MAX_ID_CHARS = 64
MAX_LABEL_CHARS = 200


def record(
    *,
    actor: AbstractBaseUser | None,
    verb: str,
    object_type: str,
    object_id: str,
    before: Any = None,
    after: Any = None,
    project: Project | None = None,
    label: str = "",
    way: Way | None = None,
) -> None:
    """Keep one deed; `before` and `after` hold what it changed, never a secret (what looks like one is hidden).

    Where it came from is known (jobs.accounts.origin); `way` says it where that is more than the request shows.
    `project` and `label` (what people call the object) are looked up where they are left out and the object still is.
    An account is named by its whole name; its id is cut to what the column holds. Each verb has its words for people
    in console.labels.deeds.
    """
    came = origin.get()
    if way is None:
        way = "signed-out" if came.way == "session" and actor is None else came.way
    if project is None:
        project, name = _home(object_type, object_id)
        label = label or name
    AuditEvent.objects.create(
        actor_id=actor.pk if actor else None,
        actor_name=actor.get_username() if actor else came.person,
        way=way,
        token_id=came.token_id,
        token=came.token,
        verb=verb,
        object_type=object_type,
        object_id=object_id[:MAX_ID_CHARS],
        object_label=hide_in(label)[:MAX_LABEL_CHARS],
        project_id=project.pk if project else None,
        project_slug=project.slug if project else "",
        before=hide_in(before),
        after=hide_in(after),
        ip=came.ip,
        user_agent=came.user_agent[:MAX_USER_AGENT_CHARS],
    )


def sweep(*, now: datetime, days: int) -> int:
    """Delete rows older than `days` (0: none ever) and return how many; that they went is a row, too."""
    if not days:
        return 0
    until = now - timedelta(days=days)
    with transaction.atomic():
        leave = AuditSweep.objects.create(before=until)
        num_rows = AuditEvent.objects.filter(at__lt=until).delete()[0]
        leave.delete()
        if num_rows:
            after = {"before": until.isoformat(), "rows": num_rows}
            record(actor=None, verb="audit.sweep", object_type="audit", object_id="", after=after)
    return num_rows


def _home(object_type: str, object_id: str) -> tuple[Project | None, str]:
    """Return the project of what a deed was done to and what people call it; None and "" for what has none."""
    if object_type == "account":
        return None, object_id
    if object_type == "project":
        project = Project.objects.filter(slug=object_id).first()
        return project, project.name if project else ""
    if object_type == "capture":
        capture = Capture.objects.select_related("run__project").filter(pk=object_id).first()
        return (capture.run.project, f"{capture.run_id} {capture.tool}") if capture else (None, "")
    models: dict[str, type[Run] | type[Study] | type[Trace]] = {"run": Run, "study": Study, "trace": Trace}
    if object_type not in models:
        return None, ""
    row = models[object_type]._default_manager.select_related("project").filter(pk=object_id).first()
    return (row.project, row.name) if row else (None, "")
