"""Notes that people write on a step of a run: marks on its charts, and lines of its history."""

from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.db.models import F, QuerySet
from django.utils.translation import gettext as _

from jobs.accounts.access import role
from jobs.accounts.audit import record
from jobs.catalog.value import is_storable
from jobs.models import Run, RunEvent
from jobs.telemetry.notify import run_changed

WRITTEN = "person_note"
"""The verb of such a line of the history."""
MAX_CHARS = 500
MOST_NOTES = 500  # of a run
MAX_STEP = 2**31 - 1


class NoteRefused(ValueError):
    """A note makes no sense, or is another person's (`is_conflict`); `field` names what is wrong."""

    def __init__(self, field: str, message: str, *, is_conflict: bool = False) -> None:
        self.field = field
        self.is_conflict = is_conflict
        super().__init__(message)


def notes_of(run: Run) -> QuerySet[RunEvent]:
    """Return the notes of a run in the order of steps."""
    return run.events.filter(verb=WRITTEN).select_related("actor").order_by("step", "pk")


def write_note(*, run: Run, step: int, text: str, user: AbstractBaseUser, now: datetime) -> RunEvent:
    """Keep a note on a step, and tell open pages. Raises: NoteRefused."""
    values = {"step": _checked_step(step), "text": _checked_text(text)}
    with transaction.atomic():
        held = Run.objects.select_for_update(of=("self",)).get(pk=run.pk)
        if held.events.filter(verb=WRITTEN).count() >= MOST_NOTES:
            raise NoteRefused("", _("A run has at most %(most)s notes. Delete one first.") % {"most": MOST_NOTES})
        about = {"attempt": held.latest_attempt, "at": now, "verb": WRITTEN, "actor_id": user.pk}
        note = RunEvent.objects.create(run=held, **about, **values)
        _tell(held, user, "run.note", after=values)
    return note


def change_note(
    *, run: Run, note_id: int, changes: Mapping[str, Any], user: AbstractBaseUser, now: datetime
) -> RunEvent:
    """Change `step` or `text` of one's own note. Raises: NoteRefused."""
    values: dict[str, int | str] = {}
    if "step" in changes:
        values["step"] = _checked_step(changes["step"])
    if "text" in changes:
        values["text"] = _checked_text(changes["text"])
    with transaction.atomic():
        note = _held(run, note_id, user)
        before = {key: getattr(note, key) for key in values}
        if before != values:
            for key, value in values.items():
                setattr(note, key, value)
            note.data = {"edited_at": now.isoformat()}
            note.save(update_fields=[*values, "data"])
            _tell(run, user, "run.note_change", before=before, after=values)
    return note


def delete_note(*, run: Run, note_id: int, user: AbstractBaseUser) -> None:
    """Delete one's own note, or as an admin of the project anybody's; one that is gone stays so.

    Raises: NoteRefused.
    """
    with transaction.atomic():
        if not run.events.filter(verb=WRITTEN, pk=note_id).exists():
            return
        note = _held(run, note_id, user, is_admin=role(user, run.project) == "admin")
        before = {"step": note.step, "text": note.text, "by": note.actor.get_username() if note.actor else ""}
        note.delete()
        _tell(run, user, "run.note_delete", before=before)


def _held(run: Run, note_id: int, user: AbstractBaseUser, *, is_admin: bool = False) -> RunEvent:
    rows = RunEvent.objects.select_for_update(of=("self",)).select_related("actor")
    note = rows.filter(run=run, verb=WRITTEN, pk=note_id).first()
    if note is None:
        raise NoteRefused("note", _("This note is gone. Write a new one."), is_conflict=True)
    if note.actor_id != user.pk and not is_admin:
        author = note.actor.get_username() if note.actor else _("an account that is gone")
        text = _("This note is of %(author)s. Only who wrote it changes it; an admin of the project may delete it.")
        raise NoteRefused("note", text % {"author": author}, is_conflict=True)
    return note


def _tell(
    run: Run, user: AbstractBaseUser, verb: str, *, before: Mapping[str, Any] | None = None, after: Any = None
) -> None:
    Run.objects.filter(pk=run.pk).update(capture_changes=F("capture_changes") + 1)
    record(actor=user, verb=verb, object_type="run", object_id=run.pk, before=before or {}, after=after or {})
    transaction.on_commit(partial(run_changed, run.pk))


def _checked_step(step: int) -> int:
    if not 0 <= step <= MAX_STEP:
        raise NoteRefused("step", _("The step is %(given)s. Use 0 to %(most)s.") % {"given": step, "most": MAX_STEP})
    return step


def _checked_text(text: str) -> str:
    words = text.strip()
    if not 0 < len(words) <= MAX_CHARS or not is_storable(words):
        message = _("A note has 1 to %(most)s characters, this one has %(count)s.")
        raise NoteRefused("text", message % {"most": MAX_CHARS, "count": len(words)})
    return words
