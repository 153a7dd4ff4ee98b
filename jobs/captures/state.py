"""The rows of captures: moved by what the trainer reports, by what arrives, and by the end of an attempt.

Only this module sets the state of a Capture, and only as profiling.captures.capture lets it; what comes twice or late
changes nothing. `ready` is the console's own: all announced files are here, checksums right. `withdrawn` is the
trainer's, which alone knows whether it had begun to record; of a run that was not sent to the cluster, ours.

An attempt that ends cuts its open captures off: they fail with a sentence. If the clean-up job of a killed runner still
brings all their files, they become ready after all; a capture that the trainer itself gave up stays failed.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.db.models import F, QuerySet

from jobs.models import Artifact, Capture, Command, Run, RunEvent
from jobs.telemetry.notify import run_changed
from jobs.traces.imports import add_file, trace_of
from profiling.captures.capture import OPEN, Event, event_of, next_state
from profiling.config import TOOLS
from profiling.events import CaptureEvent

CUT_OFF = "cut_off"  # in Capture.meta: the state when the attempt ended, or what it has come to since by clean-up


def held(*, run_id: str) -> QuerySet[Capture]:
    """Return the run's captures, to be locked as they are read. Call it inside a transaction.

    The run itself is locked first, as ingest and the lifecycle do: who locks the other way round waits for ever.
    """
    Run.objects.select_for_update().only("pk").get(pk=run_id)
    return Capture.objects.select_for_update(of=("self",)).filter(run_id=run_id)


def apply_events(*, run_id: str, attempt: int, events: Sequence[CaptureEvent], now: datetime) -> None:
    """Take what the trainer said of captures in one attempt, in order. That of an unknown capture changes nothing."""
    if not events:
        return
    mine = held(run_id=run_id).filter(attempt=attempt)
    rows = {row.pk: row for row in mine.filter(pk__in={event["capture"] for event in events})}
    for event in events:
        row = rows.get(event["capture"])
        if row is not None:
            _apply(row, event, now)
    for row in rows.values():
        settle(row, now=now)


def _apply(row: Capture, event: CaptureEvent, now: datetime) -> None:
    state, at = event["state"], _moment(event["t"], now)
    reached = _reached(row)
    tool = event.get("meta", {}).get("tool")
    if not row.tool and tool in TOOLS:  # requested at launch, and selected once the workers were there
        row.tool = tool
        row.save(update_fields=["tool"])
    if not _may(row, event_of(state)):
        return
    row.meta = {**row.meta, **{k: v for k, v in event.get("meta", {}).items() if k != CUT_OFF}}
    if event["step"] > 0 and state == "recording" and not row.first_step:
        row.first_step = event["step"]
    if state == "withdrawn" or (state == "failed" and reached == "armed" and row.withdraw_asked_at):
        row.meta.pop(CUT_OFF, None)
        withdraw(row, at=at)  # it was to record nothing, and has
        return
    if state == "failed":
        row.meta.pop(CUT_OFF, None)
        _fail(row, event.get("text") or "The trainer gave no reason.", at)
        return
    row.state_times = {**row.state_times, state: at.isoformat()}
    if CUT_OFF not in row.meta:
        row.state = state
    else:
        row.meta[CUT_OFF] = state
        if row.state == "withdrawn":  # the clean-up job brings what the trainer said before it died: it had begun
            row.state_times.pop("withdrawn", None)
            _fail(row, _why_cut_off(row, reached=state), at)
    row.save(update_fields=["state", "state_times", "meta", "first_step"])
    trace_of(row)  # its phases can be looked at before any file has arrived
    if state == "recording" and row.withdraw_asked_at and row.state == state:
        tell(row, f"{called(row)} goes on: recording had begun when it was withdrawn", at)


def _reached(row: Capture) -> str:
    """Return where the capture is: of one that an end cut off, how far it has come."""
    return str(row.meta.get(CUT_OFF) or row.state)


def _may(row: Capture, event: Event | None) -> bool:
    return event is not None and next_state(_reached(row), event) is not None


def settle(row: Capture, *, now: datetime) -> bool:
    """Make a capture ready if it is being imported and all its files are here; True if this call did it.

    One that announced no file is failed. The caller holds the row's lock.
    """
    if not _may(row, "complete"):
        return False
    files = list(row.files.values_list("is_ready", flat=True))
    if not files and row.state == "importing":
        _fail(row, "The trainer announced no file of it. Its log says why.", now)
    if not files or not all(files):
        return False
    row.meta.pop(CUT_OFF, None)
    row.state, row.problem, row.ended_at = "ready", "", now
    row.state_times = {k: v for k, v in row.state_times.items() if k != "failed"} | {"ready": now.isoformat()}
    row.save(update_fields=["state", "problem", "state_times", "meta", "ended_at"])
    tell(row, f"{called(row)} is ready", now)
    return True


def file_arrived(artifact: Artifact, *, now: datetime) -> None:
    """Look whether the ready file was the last one that its capture waited for. Call it inside a transaction."""
    if artifact.capture_id is None:
        return
    add_file(artifact)
    row = held(run_id=artifact.run_id).filter(pk=artifact.capture_id).first()
    if row is not None:
        settle(row, now=now)


def capture_of(*, run_id: str, attempt: int, meta: Mapping[str, Any]) -> str | None:
    """Return the id of the capture that a file's `meta` names, None if it names none of this attempt."""
    named = meta.get("capture")
    if not isinstance(named, str) or not named:
        return None
    return Capture.objects.filter(pk=named, run_id=run_id, attempt=attempt).values_list("pk", flat=True).first()


def attempt_ended(*, run_id: str, attempt: int, now: datetime) -> None:
    """Fail the attempt's open captures: nobody is left to go on with them. Call it inside a transaction.

    One that was to be withdrawn, and had not begun as far as is known, is withdrawn.
    """
    for row in held(run_id=run_id).filter(attempt=attempt, state__in=OPEN):
        row.meta = {**row.meta, CUT_OFF: row.state}
        if row.state == "armed" and row.withdraw_asked_at:
            withdraw(row, at=now)
        else:
            _fail(row, _why_cut_off(row, reached=row.state), now)


def withdraw(row: Capture, *, at: datetime) -> None:
    """End a capture that recorded nothing because somebody took it back. The caller holds the row's lock."""
    is_known = row.state == "withdrawn"
    row.state, row.problem, row.ended_at = "withdrawn", "", at
    row.state_times = {k: v for k, v in row.state_times.items() if k != "failed"} | {"withdrawn": at.isoformat()}
    row.save(update_fields=["state", "problem", "state_times", "meta", "ended_at"])
    if not is_known:
        tell(row, f"{called(row)} is withdrawn; nothing was recorded", at)


def _why_cut_off(row: Capture, *, reached: str) -> str:
    if reached == "armed":
        return "The run ended before it came to these steps."
    if reached == "importing":
        here, planned = row.files.filter(is_ready=True).count(), row.files.count()
        folder = f"{settings.RUN_ROOT}/{row.run_id}/a{row.attempt}/traces/{row.pk}"
        return f"The run ended when {here} of {planned} files were here. The others are on the cluster, in {folder}."
    return f"The run ended while the capture was in the state {reached}."


def answered(command: Command, answer: Mapping[str, Any], *, now: datetime) -> None:
    """Act on a refusal: a `profile` command that is not taken fails its capture; a `withdraw` that the runner does not
    know leaves it armed, and says so. Call it inside a transaction.
    """
    problem = answer.get("error")
    if command.verb not in ("profile", "withdraw") or not problem:
        return
    mine = held(run_id=command.attempt.run_id).filter(attempt=command.attempt.number, state="armed")
    row = mine.filter(pk=command.payload.get("capture")).first()
    if row is None:
        return
    if command.verb == "withdraw":
        if problem == "unknown verb":  # of an older release; any other comes with the terminal event
            row.withdraw_asked_at = row.withdraw_asked_by = None
            row.save(update_fields=["withdraw_asked_at", "withdraw_asked_by"])
            tell(row, f"{called(row)} stays armed: the run's release cannot withdraw it", now)
    elif row.withdraw_asked_at:
        withdraw(row, at=now)
    else:
        _fail(row, f"The trainer does not take it: {str(problem).rstrip('.')}.", now)


def recorded_steps(capture: Capture) -> tuple[int, int] | None:
    """Return the first and last step as the trainer told them, or else as asked for; None while neither is known."""
    first, count = capture.meta.get("first_step"), capture.meta.get("num_steps")
    if isinstance(first, int) and isinstance(count, int) and first > 0 and count > 0:
        return first, first + count - 1
    return (capture.first_step, capture.first_step + capture.num_steps - 1) if capture.first_step else None


def called(row: Capture) -> str:
    """Return how the run's history calls a capture."""
    how = f"with {row.tool}" if row.tool else f"for {row.what}"
    if row.seconds and row.state in OPEN:
        return f"Capture of up to {row.seconds:g} s {how}"
    steps = recorded_steps(row)
    if steps is None:
        which = "step" if row.num_steps == 1 else f"{row.num_steps} steps"
        return f"Capture of the next {which} {how}"
    first, last = steps
    return f"Capture of {f'step {first}' if first == last else f'steps {first} to {last}'} {how}"


def _fail(row: Capture, why: str, at: datetime) -> None:
    row.state, row.problem, row.ended_at = "failed", why[:500], at
    row.state_times = {**row.state_times, "failed": at.isoformat()}
    row.save(update_fields=["state", "problem", "state_times", "meta", "ended_at"])
    tell(row, f"{called(row)} failed: {why}", at)


def tell(row: Capture, text: str, at: datetime, *, user: AbstractBaseUser | None = None) -> None:
    """Write a line of the run's history on a capture; open pages read its captures again once it is committed."""
    data = {"capture": row.pk, "state": row.state}
    RunEvent.objects.create(
        run_id=row.run_id,
        attempt=row.attempt,
        at=at,
        verb="capture",
        text=text[:500],
        actor_id=user.pk if user else None,
        data=data,
    )
    Run.objects.filter(pk=row.run_id).update(capture_changes=F("capture_changes") + 1)
    transaction.on_commit(partial(run_changed, row.run_id))


def _moment(t: int, now: datetime) -> datetime:
    """Return Unix ns as a datetime; `now` for a clock that is off by more than a datetime holds."""
    try:
        return datetime.fromtimestamp(t / 1e9, UTC)
    except (ValueError, OverflowError, OSError):
        return now
