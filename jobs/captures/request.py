"""Captures that people ask for, at launch or on the running run, and what stands against one, in a sentence.

jobs.captures.state follows what becomes of them.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.db.models import F
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from jobs.accounts.audit import record
from jobs.captures import state as captures
from jobs.captures.artifacts import delete_file
from jobs.captures.choices import (
    RecordableProcess,
    as_what,
    cannot,
    choice,
    cluster_free_bytes,
    device_for,
    expected_bytes,
    free_bytes,
    workers,
)
from jobs.captures.state import called, held
from jobs.catalog.spec.own_profile import launch_tool, own_profile
from jobs.catalog.spec.runspec import RunSpec
from jobs.models import Attempt, Capture, Run, Trace
from jobs.traces.imports import delete_folder
from profiling.captures.capture import BUSY, OPEN, next_state
from profiling.config import MAX_FIRST_STEP, MAX_SECONDS, MAX_STEPS, TOOLS, WHATS, Device, What, names_of, ranks_of
from profiling.recorders.recorder import INSTEAD, load_tool, shown_by

USUAL: What = "kernels"
"""What is recorded where nobody says what: on CPU these are operators."""


class CaptureRefused(ValueError):
    """The capture cannot be had; `field` says which part of the request is wrong, `is_conflict` that the state is."""

    def __init__(self, field: str, message: str, *, is_conflict: bool = False) -> None:
        self.field, self.is_conflict = field, is_conflict
        super().__init__(message)


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
        known = workers(run=attempt.run, attempt=attempt.number)
        found = chosen(known=known, roles=sorted(set(roles)), ranks=sorted(set(ranks)))
        device = device_for(attempt.run, attempt=attempt.number, workers=known)
        what, tool = _resolved(as_what(what), tool, run=attempt.run, device=device, workers=found, seconds=seconds)
        asked: dict[str, object] = {
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
        check_tool(tool=tool, workers=found, roles=sorted(set(roles)))
        if seconds:
            check_by_time(waiting=waiting)
        else:
            check_steps(run=attempt.run, first_step=first_step, num_steps=num_steps)
            check_overlap(waiting=waiting, run=attempt.run, first_step=first_step, num_steps=num_steps)
        able = sum(not worker.problems.get(tool) for worker in found)
        expected = expected_bytes(run=attempt.run, tool=tool, workers=able, num_steps=num_steps, seconds=seconds)
        check_free_space(expected=expected, free=free_bytes(), on_cluster=cluster_free_bytes(attempt.run, now=now))
        row = _arm(attempt, asked, user=user, now=now)
        record(actor=user, verb="capture.request", object_type="capture", object_id=row.pk, after={**asked})
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
        if next_state(row.state, "withdraw") is None:
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
    what: What | None, tool: str, *, run: Run, device: Device, workers: Sequence[RecordableProcess], seconds: float
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
    selected = choice(what, device=device, workers=workers)
    if not selected.tool:
        raise CaptureRefused("what", selected.problem, is_conflict=True)
    check_shown(what=selected.recorded, tool=selected.tool, **about)
    return what, selected.tool


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
    if row.state in BUSY:
        text = _("The workers record %(id)s already; it goes on. Only an armed capture can be withdrawn.")
    else:
        text = _("%(id)s is %(state)s. Only an armed capture can be withdrawn.")
    return text % {"id": row.pk, "state": row.state}


def check_shape(*, what: str, tool: str, first_step: int, num_steps: int, seconds: float = 0) -> None:
    """Refuse what no run could record; "" leaves `what` or `tool` open. Raises: CaptureRefused."""
    if tool and tool not in TOOLS:
        text = _("%(given)r is no profiler that can be asked for. Use %(allowed)s.")
        raise CaptureRefused("tool", text % {"given": tool[:40], "allowed": _one_of(TOOLS)})
    if what and what not in WHATS:
        text = _("%(given)r is nothing that can be asked for. Use %(allowed)s.")
        raise CaptureRefused("what", text % {"given": what[:40], "allowed": _one_of(WHATS)})
    if not 0 <= seconds <= MAX_SECONDS:  # and no NaN
        text = _("%(given)s s cannot be recorded in one capture. Use up to %(most)s s, or 0 for whole steps.")
        raise CaptureRefused("seconds", text % {"given": seconds, "most": f"{MAX_SECONDS:.0f}"})
    if seconds and first_step:
        text = _("A capture by time begins at once; it takes no first step (%(given)s). Leave one of the two out.")
        raise CaptureRefused("first_step", text % {"given": first_step})
    if not 1 <= num_steps <= MAX_STEPS:
        text = _("%(given)s steps cannot be recorded in one capture. Use 1 to %(most)s.")
        raise CaptureRefused("num_steps", text % {"given": num_steps, "most": MAX_STEPS})
    if not 0 <= first_step <= MAX_FIRST_STEP:
        text = _("%(given)s is no step to begin with. Use the number of a step to come, or 0 for the next one.")
        raise CaptureRefused("first_step", text % {"given": first_step})


def check_shown(*, what: What, tool: str, device: Device, seconds: float, is_beside: bool) -> None:
    """Refuse a tool in whose files `what` cannot be seen on this device, or not in such a recording.

    `is_beside` says that the trainer is recorded from beside, as others than the built-in one are. Raises:
    CaptureRefused.
    """
    shown = shown_by(tool, device)
    if not shown:
        text = _("%(tool)s shows nothing on %(device)s. Name no tool, and the console selects one.")
        raise CaptureRefused("tool", text % {"tool": tool, "device": device}, is_conflict=True)
    if what not in shown:
        text = _("%(tool)s does not show %(what)s on %(device)s. Ask for %(allowed)s, or name no tool.")
        raise CaptureRefused(
            "tool", text % {"tool": tool, "what": what, "device": device, "allowed": _one_of(shown)}, is_conflict=True
        )
    if is_beside and load_tool(tool).shows[what].is_extra:
        text = _("%(tool)s records %(what)s only of the built-in trainer. Ask for something else.")
        raise CaptureRefused("what", text % {"tool": tool, "what": what}, is_conflict=True)
    if seconds and load_tool(tool).shows[what].is_extra:
        text = _("%(tool)s records %(what)s by whole steps alone. Leave the seconds out.")
        raise CaptureRefused("seconds", text % {"tool": tool, "what": what})


def _one_of(words: Sequence[str]) -> str:
    return _(" or ").join((", ".join(words[:-1]), words[-1])) if len(words) > 1 else words[0]


def not_running(*, run_id: str) -> str:
    """Return why a run that is not running cannot be profiled, and what to do."""
    run = Run.objects.only("name", "state").get(pk=run_id)
    text = _("%(name)s is %(state)s. Only a running run can be profiled.")
    if run.state in ("queued", "starting"):
        text += " " + _("Try again once it trains.")
    return text % {"name": run.name, "state": run.state}


def chosen(
    *, known: Sequence[RecordableProcess], roles: Sequence[str], ranks: Sequence[int]
) -> list[RecordableProcess]:
    """Return the workers that are asked for. Raises: CaptureRefused naming what there is."""
    there = sorted({worker.role for worker in known})
    for role in roles:
        if role not in there:
            text = _("This run has no role %(given)r. Use %(allowed)s, or none for all.")
            raise CaptureRefused("roles", text % {"given": role[:20], "allowed": ", ".join(there)})
    mine = [worker for worker in known if not roles or worker.role in roles]
    for rank in ranks:
        if all(worker.rank != rank for worker in mine):
            highest = max((worker.rank for worker in mine), default=0)
            text = _("No chosen role has a rank %(given)s. Use 0 to %(most)s, or none for all.")
            raise CaptureRefused("ranks", text % {"given": rank, "most": highest})
    return [worker for worker in mine if not ranks or worker.rank in ranks]


def check_tool(*, tool: str, workers: Sequence[RecordableProcess], roles: Sequence[str]) -> None:
    """Refuse a tool that no chosen worker has, or that a role asked for by name lacks. Raises: CaptureRefused."""
    silent = [worker for worker in workers if tool not in worker.problems]
    if silent and load_tool(tool).must_tell:
        text = _("%(worker)s has not reported yet whether %(tool)s is available. Try again in a few seconds.")
        raise CaptureRefused("tool", text % {"worker": silent[0].name, "tool": tool}, is_conflict=True)
    lacking = [worker for worker in workers if worker.problems.get(tool)]
    able = {worker.role for worker in workers if worker not in lacking}
    lost = [worker for worker in lacking if worker.role not in able and (roles or not able)]
    if not lost:
        return  # where all are asked for, those that can are recorded, and the trainer says who could not
    said = cannot(tool, lost)
    if able:
        said += " " + _("Choose other roles: %(roles)s.") % {"roles": ", ".join(sorted(able))}
    raise CaptureRefused("tool", said, is_conflict=True)


def check_steps(*, run: Run, first_step: int, num_steps: int) -> None:
    """Refuse steps that are over or will never come. Step `run.step` + 1 is under way, or about to be.

    Raises: CaptureRefused.
    """
    under_way = run.step + 1
    if first_step and first_step <= run.step:
        text = _("Step %(first)s is over: %(done)s are done. Begin with step %(next)s or a later one.")
        about = {"first": first_step, "done": run.step, "next": under_way + 1}
        raise CaptureRefused("first_step", text % about, is_conflict=True)
    first = first_step or under_way + (1 if run.step else 0)
    left = run.num_steps - first + 1
    if not run.num_steps:
        return  # of another trainer, where the data decide
    if left <= 0:
        text = _("The run has %(total)s steps; none is left to record from step %(first)s on.")
        raise CaptureRefused("first_step", text % {"total": run.num_steps, "first": first}, is_conflict=True)
    if num_steps > left:
        text = ngettext(
            "The run has %(total)s steps; from step %(first)s on only %(left)s can be recorded.",
            "The run has %(total)s steps; from step %(first)s on only %(left)s can be recorded.",
            left,
        )
        raise CaptureRefused("num_steps", text % {"total": run.num_steps, "first": first, "left": left})


def check_overlap(*, waiting: Iterable[Capture], run: Run, first_step: int, num_steps: int) -> None:
    """Refuse steps that another capture records: a process takes one profiler at a time. The next step can wait.

    Raises: CaptureRefused.
    """
    for row in waiting:
        if not first_step or row.state not in ("armed", *BUSY):
            continue
        start = row.first_step or run.step + 1
        if first_step < start + row.num_steps and start < first_step + num_steps:
            text = _("%(id)s records steps %(first)s to %(last)s. Ask for other steps, or wait until it is written.")
            about = {"id": row.pk, "first": start, "last": start + row.num_steps - 1}
            raise CaptureRefused("first_step", text % about, is_conflict=True)


def check_by_time(*, waiting: Iterable[Capture]) -> None:
    """Refuse a capture by time while another records or is about to. Raises: CaptureRefused."""
    for row in waiting:
        if row.state in BUSY or (row.state == "armed" and row.seconds):
            text = _("%(id)s is %(state)s, and a process takes one profiler at a time. Record once it has ended.")
            raise CaptureRefused("state", text % {"id": row.pk, "state": row.state}, is_conflict=True)


def check_free_space(*, expected: int | None, free: int, on_cluster: int | None) -> None:
    """Refuse what the console's disk, or the fullest of the cluster's, cannot take. Raises: CaptureRefused."""
    if expected is None:
        return
    about = {"size": -(-expected // 2**20)}
    if expected > free:
        text = _(
            "Files of about %(size)s MiB are expected, and the console's disk has %(free)s MiB free. Record fewer "
            "steps or workers, or delete captures."
        )
        raise CaptureRefused("disk", text % {**about, "free": free // 2**20}, is_conflict=True)
    if on_cluster is not None and expected > on_cluster:
        text = _(
            "Files of about %(size)s MiB are expected, and a disk of run directories on the cluster has "
            "%(free)s MiB free. Record fewer steps or workers, or free some space there."
        )
        raise CaptureRefused("disk", text % {**about, "free": on_cluster // 2**20}, is_conflict=True)
