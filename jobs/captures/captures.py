"""The rows of captures: made by a request, at launch or on the running run; moved by what the trainer reports, by what
arrives, and by the end of an attempt; withdrawn, ended and deleted by people.

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
from django.utils.translation import gettext as _

from jobs.accounts.audit import record
from jobs.captures.choices import as_what, device_for, workers
from jobs.captures.costs import cluster_free_bytes, expected_bytes, free_bytes
from jobs.captures.refusals import (
    CaptureRefused,
    check_by_time,
    check_free_space,
    check_overlap,
    check_shape,
    check_steps,
    check_tool,
    chosen,
    not_running,
    resolved,
)
from jobs.catalog.spec.own_profile import launch_tool, own_profile
from jobs.catalog.spec.runspec import RunSpec
from jobs.models import Artifact, Attempt, Capture, Command, Run, RunEvent, Trace
from jobs.telemetry.notify import run_changed
from jobs.traces.imports import add_file, delete_folder, trace_of
from profiling.captures.capture import BUSY, OPEN, Event, event_of, next_state
from profiling.config import MAX_FIRST_STEP, TOOLS, names_of, ranks_of
from profiling.events import CaptureEvent
from profiling.recorders.recorder import shown_by

CUT_OFF = "cut_off"  # in Capture.meta: the state when the attempt ended, or what it has come to since by clean-up


def request_capture(
    *,
    run_id: str,
    first_step: int,
    num_steps: int,
    roles: Sequence[str],
    ranks: Sequence[int],
    user: AbstractBaseUser | None,
    now: datetime,
    what: str = "",
    tool: str = "",
    seconds: float = 0,
) -> Capture:
    """Ask the trainer of a running run to record steps `first_step` (0: the next one) and on, `num_steps` of them.

    `what` is to be seen (profiling.config.What), and selects the tool, unless one is named. Neither: kernels.
    With `seconds` it records by time instead: at once, in the middle of a step, for so long or until `end_capture`.
    `roles` and `ranks` choose the workers, empty for all. The same request while the first one still waits for its
    steps is the first one. Raises: CaptureRefused with a sentence.
    """
    check_shape(what=what, tool=tool, first_step=first_step, num_steps=num_steps, seconds=seconds)
    with transaction.atomic():
        latest = Attempt.objects.filter(run_id=run_id, run__latest_attempt=F("number"))
        attempt = latest.select_for_update(of=("self",)).select_related("run").first()
        if attempt is None or attempt.state != "running":
            raise CaptureRefused("state", not_running(run_id=run_id), is_conflict=True)
        all_workers = workers(run=attempt.run, attempt=attempt.number)
        recorded = chosen(among=all_workers, roles=sorted(set(roles)), ranks=sorted(set(ranks)))
        device = device_for(attempt.run, attempt=attempt.number, workers=all_workers)
        what, tool = resolved(as_what(what), tool, run=attempt.run, device=device, workers=recorded, seconds=seconds)
        request: dict[str, object] = {
            "what": what,
            "tool": tool,
            "first_step": first_step,
            "num_steps": num_steps,
            "roles": sorted(set(roles)),
            "ranks": sorted(set(ranks)),
            "seconds": seconds,
        }
        waiting = Capture.objects.filter(run_id=run_id, attempt=attempt.number, state__in=OPEN, withdraw_asked_at=None)
        for row in waiting:
            if row.state == "armed" and request == {name: getattr(row, name) for name in request}:
                return row
        check_tool(tool=tool, workers=recorded, roles=sorted(set(roles)))
        if seconds:
            check_by_time(waiting=waiting)
        else:
            check_steps(run=attempt.run, first_step=first_step, num_steps=num_steps)
            check_overlap(waiting=waiting, run=attempt.run, first_step=first_step, num_steps=num_steps)
        able = sum(not worker.problems.get(tool) for worker in recorded)
        expected = expected_bytes(run=attempt.run, tool=tool, workers=able, num_steps=num_steps, seconds=seconds)
        check_free_space(expected=expected, free=free_bytes(), on_cluster=cluster_free_bytes(attempt.run, now=now))
        row = _arm(attempt, request, user=user, now=now)
        record(actor=user, verb="capture.request", object_type="capture", object_id=row.pk, after={**request})
    return row


def arm_at_launch(*, attempt: Attempt, spec: RunSpec, now: datetime) -> Capture | None:
    """Arm the capture that the spec asks for, if it does; call it in the transaction that makes the attempt.

    Unless the spec names a tool the built-in trainer selects it, once it knows its workers; other trainers are
    configured before they have any. What another trainer's own profiler records is a capture, too, whoever asked for
    it. An attempt that resumes records what is left of the requested steps after its checkpoint, or nothing; a retry by
    policy nothing that a person withdrew.
    """
    wanted, own = spec.profile, own_profile(spec)
    first_wanted, count = (own.first_step, own.num_steps) if own else (wanted.first_step, wanted.num_steps)
    after = attempt.resume_step if attempt.resume_attempt else 0
    last = min(first_wanted + count - 1, spec.num_steps or MAX_FIRST_STEP)
    first = max(first_wanted, after + 1)
    if (wanted.what == "none" and own is None) or first > last or _was_withdrawn(attempt):
        return None
    tool = own.tool if own else wanted.tool if spec.is_native else launch_tool(spec)
    request = {
        "what": wanted.what if wanted.what != "none" else shown_by(tool)[0],
        "tool": "" if tool == "none" else tool,
        "first_step": first,
        "num_steps": last - first + 1,
        "roles": sorted(own.roles) if own else names_of(wanted.roles),
        "ranks": sorted(own.ranks) if own else ranks_of(wanted.ranks),
    }
    return _arm(attempt, request, user=None, now=now, by="trainer" if own else "")


def withdraw_capture(*, run_id: str, capture_id: str, user: AbstractBaseUser | None, now: datetime) -> Capture:
    """Take back a capture that waits for its steps, and return it. Asking again changes nothing more.

    Where the run still waits in the queue it is withdrawn at once, and its command is never sent. Else the trainer is
    asked, and says which of the two came first: it is withdrawn, or it was recording already and goes on.
    Raises: CaptureRefused if it is not armed any more; Capture.DoesNotExist.
    """
    with transaction.atomic():
        number = Capture.objects.values_list("attempt", flat=True).get(pk=capture_id, run_id=run_id)
        attempt = Attempt.objects.select_for_update().get(run_id=run_id, number=number)  # it leaves no queue meanwhile
        row = _held(run_id=run_id).select_related("withdraw_asked_by").get(pk=capture_id)
        if row.state == "withdrawn" or (row.state == "armed" and row.withdraw_asked_at):
            return row
        if next_state(row.state, "withdraw") is None:
            raise CaptureRefused("state", _not_armed(row), is_conflict=True)
        row.withdraw_asked_at, row.withdraw_asked_by_id = now, user.pk if user else None
        row.save(update_fields=["withdraw_asked_at", "withdraw_asked_by"])
        if attempt.state == "queued":
            attempt.commands.filter(verb="profile", payload__capture=row.pk).delete()
            _withdraw(row, at=now)
        else:
            payload = {"capture": row.pk}
            by = row.withdraw_asked_by_id
            attempt.commands.create(verb="withdraw", payload=payload, created_by_id=by, created_at=now)
            _tell(row, f"{_called(row)}: withdrawal asked for", now, user=user)
        after = {"tool": row.tool, "first_step": row.first_step, "num_steps": row.num_steps, "state": row.state}
        record(actor=user, verb="capture.withdraw", object_type="capture", object_id=row.pk, after=after)
    return row


def end_capture(*, run_id: str, capture_id: str, user: AbstractBaseUser | None, now: datetime) -> Capture:
    """End a capture by time that records, and return it; its trainer does so at once. Asking again changes nothing.

    Raises: CaptureRefused if it records steps, or does not record; Capture.DoesNotExist.
    """
    with transaction.atomic():
        number = Capture.objects.values_list("attempt", flat=True).get(pk=capture_id, run_id=run_id)
        attempt = Attempt.objects.select_for_update().get(run_id=run_id, number=number)
        row = _held(run_id=run_id).get(pk=capture_id)
        if not row.seconds:
            text = _("%(id)s records whole steps and ends with the last of them.")
            raise CaptureRefused("state", text % {"id": row.pk}, is_conflict=True)
        if next_state(row.state, "stop") is None:
            text = _("%(id)s is %(state)s: it has ended.")
            raise CaptureRefused("state", text % {"id": row.pk, "state": row.state}, is_conflict=True)
        payload = {"capture": row.pk}
        if not attempt.commands.filter(verb="finish", payload__capture=row.pk).exists():
            by = user.pk if user else None
            attempt.commands.create(verb="finish", payload=payload, created_by_id=by, created_at=now)
            record(actor=user, verb="capture.end", object_type="capture", object_id=row.pk, after={"state": row.state})
    return row


def delete_capture(*, run_id: str, capture_id: str, user: AbstractBaseUser | None, now: datetime) -> None:
    """Delete a capture that has ended (ready, failed, withdrawn), with its files. There is no way back.

    Raises: CaptureRefused while it is under way; Capture.DoesNotExist.
    """
    with transaction.atomic():
        if not Run.objects.filter(pk=run_id).exists():
            raise Capture.DoesNotExist
        row = _held(run_id=run_id).get(pk=capture_id)
        if row.state in OPEN:
            text = _("%(id)s is %(state)s. Wait until it is ready or failed, then delete it.")
            raise CaptureRefused("state", text % {"id": row.pk, "state": row.state}, is_conflict=True)
        files = list(row.files.all())
        before = {"tool": row.tool, "first_step": row.first_step, "state": row.state, "files": [f.name for f in files]}
        _tell(row, f"{_called(row)} deleted", now, user=user)
        trace = Trace.objects.filter(capture=row).first()
        row.delete()
        if trace is not None:
            transaction.on_commit(partial(delete_folder, trace))
        record(
            actor=user,
            verb="capture.delete",
            object_type="capture",
            object_id=capture_id,
            before=before,
            project=row.run.project,
            label=f"{run_id} {row.tool}",
        )
        for file in files:
            transaction.on_commit(file.delete_bytes)


def _arm(
    attempt: Attempt, request: Mapping[str, Any], *, user: AbstractBaseUser | None, now: datetime, by: str = ""
) -> Capture:
    """Make the capture and ask the run for it; `by` "trainer" if its own profiler was told at the launch already."""
    actor_id = user.pk if user else None
    row = Capture.objects.create(
        run_id=attempt.run_id,
        attempt=attempt.number,
        state="armed",
        state_times={"armed": now.isoformat()},
        created_by_id=actor_id,
        created_at=now,
        **request,
    )
    payload = {
        name: value for name, value in request.items() if name != "seconds" or value
    }  # older trainers know no seconds
    payload |= {"by": by} if by else {}
    attempt.commands.create(
        verb="profile", payload={"capture": row.pk, **payload}, created_by_id=actor_id, created_at=now
    )
    _tell(row, f"{_called(row)} asked for", now, user=user)
    return row


def _was_withdrawn(attempt: Attempt) -> bool:
    """Return True if a person took back what the spec asks for and the policy, not a person, starts the run again."""
    if not attempt.is_automatic:
        return False
    from_specs = Capture.objects.filter(run_id=attempt.run_id, created_by=None).order_by("-attempt")
    return from_specs.values_list("state", flat=True).first() == "withdrawn"


def _not_armed(row: Capture) -> str:
    if row.state in BUSY:
        text = _("The workers record %(id)s already; it goes on. Only an armed capture can be withdrawn.")
    else:
        text = _("%(id)s is %(state)s. Only an armed capture can be withdrawn.")
    return text % {"id": row.pk, "state": row.state}


# -- what becomes of them --


def apply_events(*, run_id: str, attempt: int, events: Sequence[CaptureEvent], now: datetime) -> None:
    """Take what the trainer said of captures in one attempt, in order. That of an unknown capture changes nothing."""
    if not events:
        return
    in_attempt = _held(run_id=run_id).filter(attempt=attempt)
    rows = {row.pk: row for row in in_attempt.filter(pk__in={event["capture"] for event in events})}
    for event in events:
        row = rows.get(event["capture"])
        if row is not None:
            _apply(row, event, now)
    for row in rows.values():
        _settle(row, now=now)


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
        _withdraw(row, at=at)  # it was to record nothing, and has
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
        _tell(row, f"{_called(row)} goes on: recording had begun when it was withdrawn", at)


def _reached(row: Capture) -> str:
    """Return where the capture is: of one that an end cut off, how far it has come."""
    return str(row.meta.get(CUT_OFF) or row.state)


def _may(row: Capture, event: Event | None) -> bool:
    return event is not None and next_state(_reached(row), event) is not None


def _settle(row: Capture, *, now: datetime) -> bool:
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
    _tell(row, f"{_called(row)} is ready", now)
    return True


def file_arrived(artifact: Artifact, *, now: datetime) -> None:
    """Look whether the ready file was the last one that its capture waited for. Call it inside a transaction."""
    if artifact.capture_id is None:
        return
    add_file(artifact)
    row = _held(run_id=artifact.run_id).filter(pk=artifact.capture_id).first()
    if row is not None:
        _settle(row, now=now)


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
    for row in _held(run_id=run_id).filter(attempt=attempt, state__in=OPEN):
        row.meta = {**row.meta, CUT_OFF: row.state}
        if row.state == "armed" and row.withdraw_asked_at:
            _withdraw(row, at=now)
        else:
            _fail(row, _why_cut_off(row, reached=row.state), now)


def _withdraw(row: Capture, *, at: datetime) -> None:
    """End a capture that recorded nothing because somebody took it back. The caller holds the row's lock."""
    is_known = row.state == "withdrawn"
    row.state, row.problem, row.ended_at = "withdrawn", "", at
    row.state_times = {k: v for k, v in row.state_times.items() if k != "failed"} | {"withdrawn": at.isoformat()}
    row.save(update_fields=["state", "problem", "state_times", "meta", "ended_at"])
    if not is_known:
        _tell(row, f"{_called(row)} is withdrawn; nothing was recorded", at)


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
    armed = _held(run_id=command.attempt.run_id).filter(attempt=command.attempt.number, state="armed")
    row = armed.filter(pk=command.payload.get("capture")).first()
    if row is None:
        return
    if command.verb == "withdraw":
        if problem == "unknown verb":  # of an older release; any other comes with the terminal event
            row.withdraw_asked_at = row.withdraw_asked_by = None
            row.save(update_fields=["withdraw_asked_at", "withdraw_asked_by"])
            _tell(row, f"{_called(row)} stays armed: the run's release cannot withdraw it", now)
    elif row.withdraw_asked_at:
        _withdraw(row, at=now)
    else:
        _fail(row, f"The trainer does not take it: {str(problem).rstrip('.')}.", now)


def _held(*, run_id: str) -> QuerySet[Capture]:
    """Return the run's captures, to be locked as they are read. Call it inside a transaction.

    The run itself is locked first, as ingest and the lifecycle do: who locks the other way round waits for ever.
    """
    Run.objects.select_for_update().only("pk").get(pk=run_id)
    return Capture.objects.select_for_update(of=("self",)).filter(run_id=run_id)


def _called(row: Capture) -> str:
    """Return how the run's history calls a capture."""
    how = f"with {row.tool}" if row.tool else f"for {row.what}"
    if row.seconds and row.state in OPEN:
        return f"Capture of up to {row.seconds:g} s {how}"
    steps = row.recorded_steps
    if steps is None:
        which = "step" if row.num_steps == 1 else f"{row.num_steps} steps"
        return f"Capture of the next {which} {how}"
    first, last = steps
    return f"Capture of {f'step {first}' if first == last else f'steps {first} to {last}'} {how}"


def _fail(row: Capture, why: str, at: datetime) -> None:
    row.state, row.problem, row.ended_at = "failed", why[:500], at
    row.state_times = {**row.state_times, "failed": at.isoformat()}
    row.save(update_fields=["state", "problem", "state_times", "meta", "ended_at"])
    _tell(row, f"{_called(row)} failed: {why}", at)


def _tell(row: Capture, text: str, at: datetime, *, user: AbstractBaseUser | None = None) -> None:
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
