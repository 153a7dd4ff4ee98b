"""Captures that people ask for, at launch or on the running run; jobs.captures.state follows what becomes of them."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.db.models import F
from django.utils.translation import gettext as _

from jobs.accounts.audit import record
from jobs.captures import state as captures
from jobs.captures.artifacts import delete_file
from jobs.captures.checks import (
    CaptureRefused,
    check_by_time,
    check_overlap,
    check_room,
    check_shape,
    check_shown,
    check_steps,
    check_tool,
    chosen,
    not_running,
)
from jobs.captures.choices import as_what, choice, device_for
from jobs.captures.cost import expected_bytes, free_bytes
from jobs.captures.free_space import cluster_free_bytes
from jobs.captures.profilers import Worker, workers
from jobs.captures.state import called, held
from jobs.catalog.spec.own_profile import launch_tool, own_profile
from jobs.catalog.spec.runspec import RunSpec
from jobs.models import Attempt, Capture, Run, Trace
from jobs.traces.imports import delete_folder
from profiling.captures.state import OPEN
from profiling.captures.tool_selection import INSTEAD, shown_by
from profiling.config import MAX_FIRST_STEP, Device, What, names_of, ranks_of

USUAL: What = "kernels"
"""What is recorded where nobody says what: on CPU these are operators."""


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

    `what` is to be seen (profiling.config.What), and the tool is picked for it, unless one is named. Neither: kernels.
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
        known = workers(run=attempt.run, attempt=attempt.number)
        found = chosen(known=known, roles=sorted(set(roles)), ranks=sorted(set(ranks)))
        device = device_for(attempt.run, attempt=attempt.number, workers=known)
        what, tool = _resolved(as_what(what), tool, run=attempt.run, device=device, workers=found, seconds=seconds)
        asked: dict[str, Any] = {
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
            if row.state == "armed" and asked == {name: getattr(row, name) for name in asked}:
                return row
        check_tool(tool=tool, workers=found, roles=asked["roles"])
        if seconds:
            check_by_time(waiting=waiting)
        else:
            check_steps(run=attempt.run, first_step=first_step, num_steps=num_steps)
            check_overlap(waiting=waiting, run=attempt.run, first_step=first_step, num_steps=num_steps)
        able = sum(not worker.problems.get(tool) for worker in found)
        expected = expected_bytes(run=attempt.run, tool=tool, workers=able, num_steps=num_steps, seconds=seconds)
        check_room(expected=expected, free=free_bytes(), on_cluster=cluster_free_bytes(attempt.run, now=now))
        row = _arm(attempt, asked, user=user, now=now)
        record(actor=user, verb="capture.request", object_type="capture", object_id=row.pk, after={**asked})
    return row


def arm_at_launch(*, attempt: Attempt, spec: RunSpec, now: datetime) -> Capture | None:
    """Arm the capture that the spec asks for, if it does; call it in the transaction that makes the attempt.

    Unless the spec names a tool the built-in trainer picks it, once it knows its workers; other trainers are configured
    before they have any. What another trainer's own profiler records is a capture, too, whoever asked for it.
    An attempt that resumes records what is left of the asked steps after its checkpoint, or nothing; a retry by policy
    nothing that a person withdrew.
    """
    wanted, own = spec.profile, own_profile(spec)
    first_wanted, count = (own.first_step, own.num_steps) if own else (wanted.first_step, wanted.num_steps)
    after = attempt.resume_step if attempt.resume_attempt else 0
    last = min(first_wanted + count - 1, spec.num_steps or MAX_FIRST_STEP)
    first = max(first_wanted, after + 1)
    if (wanted.what == "none" and own is None) or first > last or _was_withdrawn(attempt):
        return None
    tool = own.tool if own else wanted.tool if spec.is_native else launch_tool(spec)
    asked = {
        "what": wanted.what if wanted.what != "none" else shown_by(tool)[0],
        "tool": "" if tool == "none" else tool,
        "first_step": first,
        "num_steps": last - first + 1,
        "roles": sorted(own.roles) if own else names_of(wanted.roles),
        "ranks": sorted(own.ranks) if own else ranks_of(wanted.ranks),
    }
    return _arm(attempt, asked, user=None, now=now, by="trainer" if own else "")


def withdraw_capture(*, run_id: str, capture_id: str, user: AbstractBaseUser | None, now: datetime) -> Capture:
    """Take back a capture that waits for its steps, and return it. Asking again changes nothing more.

    Where the run still waits in the queue it is withdrawn at once, and its command is never sent. Else the trainer is
    asked, and says which of the two came first: it is withdrawn, or it was recording already and goes on.
    Raises: CaptureRefused if it is not armed any more; Capture.DoesNotExist.
    """
    with transaction.atomic():
        number = Capture.objects.values_list("attempt", flat=True).get(pk=capture_id, run_id=run_id)
        attempt = Attempt.objects.select_for_update().get(run_id=run_id, number=number)  # it leaves no queue meanwhile
        row = held(run_id=run_id).select_related("withdraw_asked_by").get(pk=capture_id)
        if row.state == "withdrawn" or (row.state == "armed" and row.withdraw_asked_at):
            return row
        if row.state != "armed":
            raise CaptureRefused("state", _not_armed(row), is_conflict=True)
        row.withdraw_asked_at, row.withdraw_asked_by_id = now, user.pk if user else None
        row.save(update_fields=["withdraw_asked_at", "withdraw_asked_by"])
        if attempt.state == "queued":
            attempt.commands.filter(verb="profile", payload__capture=row.pk).delete()
            captures.withdraw(row, at=now)
        else:
            payload = {"capture": row.pk}
            by = row.withdraw_asked_by_id
            attempt.commands.create(verb="withdraw", payload=payload, created_by_id=by, created_at=now)
            captures.tell(row, f"{called(row)}: withdrawal asked for", now, user=user)
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
        row = held(run_id=run_id).get(pk=capture_id)
        if not row.seconds:
            text = _("%(id)s records whole steps and ends with the last of them.")
            raise CaptureRefused("state", text % {"id": row.pk}, is_conflict=True)
        if row.state not in ("armed", "recording"):
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
        row = held(run_id=run_id).get(pk=capture_id)
        if row.state in OPEN:
            text = _("%(id)s is %(state)s. Wait until it is ready or failed, then delete it.")
            raise CaptureRefused("state", text % {"id": row.pk, "state": row.state}, is_conflict=True)
        files = list(row.files.all())
        before = {"tool": row.tool, "first_step": row.first_step, "state": row.state, "files": [f.name for f in files]}
        captures.tell(row, f"{called(row)} deleted", now, user=user)
        trace = Trace.objects.filter(capture=row).first()
        row.delete()
        if trace is not None:
            transaction.on_commit(partial(delete_folder, trace))
        record(actor=user, verb="capture.delete", object_type="capture", object_id=capture_id, before=before)
        for file in files:
            transaction.on_commit(partial(delete_file, file))


def opens_in_perfetto(name: str) -> bool:
    """Return True if a file of this name is a trace in a format that Perfetto reads: torch's JSON, gzipped or not."""
    return name.lower().endswith((".json", ".json.gz"))


def _resolved(
    what: What | None, tool: str, *, run: Run, device: Device, workers: Sequence[Worker], seconds: float
) -> tuple[What, str]:
    """Return what is to be seen and with which tool, where one of the two or none was said. Raises: CaptureRefused."""
    trainer = run.spec.get("trainer", {}).get("name") or "native"
    about: Any = {"device": device, "seconds": seconds, "is_beside": trainer != "native"}
    if tool:
        if what is None:
            return (shown_by(tool, device) or shown_by(tool))[0], tool
        check_shown(what=INSTEAD.get((what, device), what), tool=tool, **about)
        return what, tool
    what = what or USUAL
    picked = choice(what, device=device, workers=workers)
    if not picked.tool:
        raise CaptureRefused("what", picked.problem, is_conflict=True)
    check_shown(what=picked.recorded, tool=picked.tool, **about)
    return what, picked.tool


def _arm(
    attempt: Attempt, asked: Mapping[str, Any], *, user: AbstractBaseUser | None, now: datetime, by: str = ""
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
        **asked,
    )
    told = {
        name: value for name, value in asked.items() if name != "seconds" or value
    }  # older trainers know no seconds
    told |= {"by": by} if by else {}
    attempt.commands.create(verb="profile", payload={"capture": row.pk, **told}, created_by_id=actor_id, created_at=now)
    captures.tell(row, f"{called(row)} asked for", now, user=user)
    return row


def _was_withdrawn(attempt: Attempt) -> bool:
    """Return True if a person took back what the spec asks for and the policy, not a person, starts the run again."""
    if not attempt.is_automatic:
        return False
    from_specs = Capture.objects.filter(run_id=attempt.run_id, created_by=None).order_by("-attempt")
    return from_specs.values_list("state", flat=True).first() == "withdrawn"


def _not_armed(row: Capture) -> str:
    if row.state in ("recording", "stopping"):
        text = _("The workers record %(id)s already; it goes on. Only an armed capture can be withdrawn.")
    else:
        text = _("%(id)s is %(state)s. Only an armed capture can be withdrawn.")
    return text % {"id": row.pk, "state": row.state}
