"""What people may change of a run without touching what it is: name, tags, note, archived or not; and deleting it."""

from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.utils.translation import gettext as _

from jobs.accounts.audit import record
from jobs.captures.artifacts import delete_files
from jobs.catalog.value import is_storable
from jobs.models import ENDED, Run
from jobs.telemetry.notify import run_changed

MAX_NAME_CHARS = 120
MAX_TAGS = 20
MAX_TAG_CHARS = 40
MAX_NOTE_CHARS = 20_000


class ChangeRefused(ValueError):
    """The change is not allowed; `field` names it, `is_conflict` says that the run's state stands against it."""

    def __init__(self, field: str, message: str, *, is_conflict: bool = False) -> None:
        self.field = field
        self.is_conflict = is_conflict
        super().__init__(message)


def annotate_run(*, run_id: str, changes: Mapping[str, Any], user: AbstractBaseUser | None, now: datetime) -> Run:
    """Change name, tags, note or is_archived, all or none, and return the run.

    Raises: ChangeRefused naming the first field that is wrong.
    """
    with transaction.atomic():
        run = Run.objects.select_for_update(of=("self",)).select_related("project", "created_by").get(pk=run_id)
        before: dict[str, object] = {}
        after: dict[str, object] = {}
        for field, new in changes.items():
            held, value = _checked(run, field, new, now)
            if held != value:
                column = "archived_at" if field == "is_archived" else field
                before[field], after[field] = _plain(getattr(run, column)), _plain(value)
                setattr(run, column, value)
        if after:
            run.save(update_fields=["archived_at" if f == "is_archived" else f for f in after])
            record(actor=user, verb="run.change", object_type="run", object_id=run.pk, before=before, after=after)
            transaction.on_commit(partial(run_changed, run.pk))
    return run


def delete_run(*, run_id: str, confirmed_name: str, user: AbstractBaseUser | None) -> None:
    """Delete an ended run with everything it left here: series, logs, samples, files. There is no way back.

    Raises: ChangeRefused if it has not ended, or the name given is not its name.
    """
    with transaction.atomic():
        run = Run.objects.select_for_update(of=("self",)).select_related("project").get(pk=run_id)
        if run.state not in ENDED:
            text = _("%(name)s is %(state)s. Stop it before you delete it.") % {"name": run.name, "state": run.state}
            raise ChangeRefused("state", text, is_conflict=True)
        if confirmed_name != run.name:
            text = _("%(given)r is not its name. Type %(name)r to delete it.")
            raise ChangeRefused("confirm", text % {"given": confirmed_name, "name": run.name})
        before = {"name": run.name, "state": run.state}
        run.delete()
        record(
            actor=user,
            verb="run.delete",
            object_type="run",
            object_id=run_id,
            before=before,
            project=run.project,
            label=run.name,
        )
        transaction.on_commit(partial(delete_files, Run(id=run_id)))


def _checked(run: Run, field: str, new: Any, now: datetime) -> tuple[Any, Any]:
    """Return what the run holds in the field, and what it shall hold."""
    if field == "name":
        return run.name, _checked_name(new)
    if field == "tags":
        return run.tags, _checked_tags(new)
    if field == "note":
        if len(new) > MAX_NOTE_CHARS:
            raise ChangeRefused("note", _("The note has more than %(most)s characters.") % {"most": MAX_NOTE_CHARS})
        if not is_storable(new):
            raise ChangeRefused("note", _("The note holds a character that cannot be stored. Type it again."))
        return run.note, new
    if field == "is_archived":
        if new and run.state not in ENDED:
            text = _("%(name)s is %(state)s. Stop it before you archive it.") % {"name": run.name, "state": run.state}
            raise ChangeRefused("is_archived", text, is_conflict=True)
        return run.archived_at, (run.archived_at or now) if new else None
    raise AssertionError(f"{field} is no field that people change")


def _checked_name(new: str) -> str:
    name = new.strip()
    if not name or len(name) > MAX_NAME_CHARS or any(ord(c) < 32 for c in name) or not is_storable(name):
        text = _("%(given)r is not a name. Use 1 to %(most)s characters on one line.")
        raise ChangeRefused("name", text % {"given": new[:200], "most": MAX_NAME_CHARS})
    return name


def _checked_tags(new: list[str]) -> list[str]:
    tags = list(dict.fromkeys(tag.strip() for tag in new if tag.strip()))
    if len(tags) > MAX_TAGS:
        raise ChangeRefused(
            "tags", _("%(given)s tags are too many. Use at most %(most)s.") % {"given": len(tags), "most": MAX_TAGS}
        )
    for tag in tags:
        is_bad = any(c.isspace() or c == "," or ord(c) < 32 for c in tag) or not is_storable(tag)
        if len(tag) > MAX_TAG_CHARS or is_bad:
            text = _("%(tag)r is not a tag. Use up to %(most)s characters without spaces or commas.")
            raise ChangeRefused("tags", text % {"tag": tag[:200], "most": MAX_TAG_CHARS})
    return tags


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value
