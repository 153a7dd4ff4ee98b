"""Notes of people on steps of a run."""

from datetime import datetime

from django.http import HttpRequest
from django.utils import timezone
from ninja import Field, Router, Schema, Status

from console.api.problem import REFUSALS, RequestProblem
from console.api.visible import caller, run_for
from jobs.models import RunEvent
from jobs.runs.notes import NoteRefused, change_note, delete_note, notes_of, write_note

router = Router(tags=["runs"])
_MAX_ID = 2**62


class NoteIn(Schema):
    """What to remember of a step."""

    model_config = {"extra": "forbid"}

    step: int
    text: str = Field(max_length=10_000)


class NotePatchIn(Schema):
    """What to change of your own note; what is left out stays."""

    model_config = {"extra": "forbid"}

    step: int | None = None
    text: str | None = Field(None, max_length=10_000)


class NoteOut(Schema):
    """What somebody wrote on a step; `edited_at` is null until it was changed."""

    id: int
    step: int
    text: str
    by: str
    is_own: bool
    at: datetime
    edited_at: datetime | None


class NotesOut(Schema):
    """The notes of a run in the order of steps."""

    notes: list[NoteOut]


@router.get("/{run_id}/notes", response={200: NotesOut, **REFUSALS}, summary="Notes on steps")
def list_notes(request: HttpRequest, run_id: str) -> NotesOut:
    """Return what people wrote on steps of the run."""
    return NotesOut(notes=[_out(request, note) for note in notes_of(run_for(request, run_id))])


@router.post("/{run_id}/notes", response={201: NoteOut, **REFUSALS}, summary="Write a note on a step")
def post_note(request: HttpRequest, run_id: str, body: NoteIn) -> Status[NoteOut]:
    """Keep a note: a mark on every chart, and a line of the history."""
    run = run_for(request, run_id, "editor")
    try:
        note = write_note(run=run, step=body.step, text=body.text, user=caller(request), now=timezone.now())
    except NoteRefused as error:
        raise _refusal(error) from error
    return Status(201, _out(request, note))


@router.patch("/{run_id}/notes/{int:note_id}", response={200: NoteOut, **REFUSALS}, summary="Change a note")
def patch_note(request: HttpRequest, run_id: str, note_id: int, body: NotePatchIn) -> NoteOut:
    """Change your own note."""
    run = run_for(request, run_id, "editor")
    changes = {key: value for key, value in body.model_dump().items() if value is not None}
    try:
        note = change_note(
            run=run, note_id=min(note_id, _MAX_ID), changes=changes, user=caller(request), now=timezone.now()
        )
    except NoteRefused as error:
        raise _refusal(error) from error
    return _out(request, note)


@router.delete("/{run_id}/notes/{int:note_id}", response={204: None, **REFUSALS}, summary="Delete a note")
def remove_note(request: HttpRequest, run_id: str, note_id: int) -> Status[None]:
    """Delete your own note, or as an admin anybody's; one that is gone stays so."""
    run = run_for(request, run_id, "editor")
    try:
        delete_note(run=run, note_id=min(note_id, _MAX_ID), user=caller(request))
    except NoteRefused as error:
        raise _refusal(error) from error
    return Status(204, None)


def _refusal(error: NoteRefused) -> RequestProblem:
    return RequestProblem(409 if error.is_conflict else 422, str(error), field=error.field)


def _out(request: HttpRequest, note: RunEvent) -> NoteOut:
    assert note.step is not None
    return NoteOut(
        id=note.pk,
        step=note.step,
        text=note.text,
        by=note.actor.get_username() if note.actor else "",
        is_own=note.actor_id == caller(request).pk,
        at=note.at,
        edited_at=note.data.get("edited_at"),
    )
