"""Captures that people ask for, at launch or on the running run; jobs.custody follows what becomes of them."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.db.models import F
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from jobs.audit import record
from jobs.catalog.runspec import RunSpec
from jobs.catalog.trainer import trainers
from jobs.custody import OPEN, called
from jobs.files import delete_file
from jobs.models import Attempt, Capture, Run, RunEvent
from jobs.notify import run_changed
from jobs.profilers import Worker, workers
from profiling.config import MAX_FIRST_STEP, MAX_STEPS, TOOLS, names_of, ranks_of


class CaptureRefused(ValueError):
    """The capture cannot be had; `field` says which part of the request is wrong, `is_conflict` that the state is."""

    def __init__(self, field: str, message: str, *, is_conflict: bool = False) -> None:
        self.field, self.is_conflict = field, is_conflict
        super().__init__(message)


def request_capture(
    *,
    run_id: str,
    tool: str,
    first_step: int,
    num_steps: int,
    roles: Sequence[str],
    ranks: Sequence[int],
    user: AbstractBaseUser | None,
    now: datetime,
) -> Capture:
    """Ask the trainer of a running run to record steps `first_step` (0: the next one) and on, `num_steps` of them.

    `roles` and `ranks` choose the workers, empty for all. The same request while the first one still waits for its
    steps is the first one. Raises: CaptureRefused with a sentence.
    """
    _check_shape(tool, first_step, num_steps)
    with transaction.atomic():
        latest = Attempt.objects.filter(run_id=run_id, run__latest_attempt=F("number"))
        attempt = latest.select_for_update(of=("self",)).select_related("run").first()
        if attempt is None or attempt.state != "running":
            raise CaptureRefused("state", _not_running(run_id), is_conflict=True)
        _check_trainer(attempt.run)
        asked: dict[str, Any] = {
            "tool": tool,
            "first_step": first_step,
            "num_steps": num_steps,
            "roles": sorted(set(roles)),
            "ranks": sorted(set(ranks)),
        }
        waiting = Capture.objects.filter(run_id=run_id, attempt=attempt.number, state__in=OPEN)
        for row in waiting:
            if row.state == "armed" and asked == {name: getattr(row, name) for name in asked}:
                return row
        found = _chosen(workers(run=attempt.run, attempt=attempt.number), asked["roles"], asked["ranks"])
        _check_tool(tool, found, asked["roles"])
        _check_steps(attempt.run, first_step, num_steps)
        _check_overlap(waiting, attempt.run, first_step, num_steps)
        row = _arm(attempt, asked, user=user, now=now)
        record(actor=user, verb="capture.request", object_type="capture", object_id=row.pk, after={**asked})
    return row


def arm_at_launch(*, attempt: Attempt, spec: RunSpec, now: datetime) -> Capture | None:
    """Arm the capture that the spec asks for, if it does; call it in the transaction that makes the attempt.

    An attempt that resumes records what is left of the asked steps after its checkpoint, or nothing.
    """
    wanted = spec.profile
    after = attempt.resume_step if attempt.resume_attempt else 0
    last = min(wanted.first_step + wanted.num_steps - 1, spec.num_steps)
    first = max(wanted.first_step, after + 1)
    if wanted.tool == "none" or first > last:
        return None
    asked = {
        "tool": wanted.tool,
        "first_step": first,
        "num_steps": last - first + 1,
        "roles": names_of(wanted.roles),
        "ranks": ranks_of(wanted.ranks),
    }
    return _arm(attempt, asked, user=None, now=now)


def delete_capture(*, run_id: str, capture_id: str, user: AbstractBaseUser | None, now: datetime) -> None:
    """Delete a capture that is ready or failed, with its files. There is no way back.

    Raises: CaptureRefused while it is under way; Capture.DoesNotExist.
    """
    with transaction.atomic():
        row = Capture.objects.select_for_update().get(pk=capture_id, run_id=run_id)
        if row.state in OPEN:
            text = _("%(id)s is %(state)s. Wait until it is ready or failed, then delete it.")
            raise CaptureRefused("state", text % {"id": row.pk, "state": row.state}, is_conflict=True)
        files = list(row.files.all())
        before = {"tool": row.tool, "first_step": row.first_step, "state": row.state, "files": [f.name for f in files]}
        text = f"{called(row)} deleted"
        actor_id = user.pk if user else None
        data = {"capture": row.pk}
        RunEvent.objects.create(
            run_id=run_id, attempt=row.attempt, at=now, verb="capture", text=text, actor_id=actor_id, data=data
        )
        row.delete()
        record(actor=user, verb="capture.delete", object_type="capture", object_id=capture_id, before=before)
        for file in files:
            transaction.on_commit(partial(delete_file, file))
        transaction.on_commit(partial(run_changed, run_id))


def opens_in_perfetto(name: str) -> bool:
    """Return True if a file of this name is a trace in a format that Perfetto reads: torch's JSON, gzipped or not."""
    return name.lower().endswith((".json", ".json.gz"))


def _arm(attempt: Attempt, asked: Mapping[str, Any], *, user: AbstractBaseUser | None, now: datetime) -> Capture:
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
    attempt.commands.create(
        verb="profile", payload={"capture": row.pk, **asked}, created_by_id=actor_id, created_at=now
    )
    text = f"{called(row)} asked for"
    data = {"capture": row.pk, "state": "armed"}
    RunEvent.objects.create(
        run_id=attempt.run_id, attempt=attempt.number, at=now, verb="capture", text=text, actor_id=actor_id, data=data
    )
    transaction.on_commit(partial(run_changed, attempt.run_id))
    return row


def _check_shape(tool: str, first_step: int, num_steps: int) -> None:
    if tool not in TOOLS:
        text = _("%(given)r is no profiler that can be asked for. Use %(allowed)s.")
        raise CaptureRefused("tool", text % {"given": tool[:40], "allowed": _(" or ").join(TOOLS)})
    if not 1 <= num_steps <= MAX_STEPS:
        text = _("%(given)s steps cannot be recorded in one capture. Use 1 to %(most)s.")
        raise CaptureRefused("num_steps", text % {"given": num_steps, "most": MAX_STEPS})
    if not 0 <= first_step <= MAX_FIRST_STEP:
        text = _("%(given)s is no step to begin with. Use the number of a step to come, or 0 for the next one.")
        raise CaptureRefused("first_step", text % {"given": first_step})


def _not_running(run_id: str) -> str:
    run = Run.objects.only("name", "state").get(pk=run_id)
    text = _("%(name)s is %(state)s. Only a running run can be profiled.")
    if run.state in ("queued", "starting"):
        text += " " + _("Ask again once it trains.")
    return text % {"name": run.name, "state": run.state}


def _chosen(known: list[Worker], roles: Sequence[str], ranks: Sequence[int]) -> list[Worker]:
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


def _check_tool(tool: str, chosen: list[Worker], roles: Sequence[str]) -> None:
    """Refuse a tool that no chosen worker has, or that a role asked for by name lacks."""
    silent = [worker for worker in chosen if tool not in worker.problems]
    if silent and tool == "nsys":
        text = _("%(worker)s has not told yet whether nsys can record it. Ask again in a moment.")
        raise CaptureRefused("tool", text % {"worker": silent[0].name}, is_conflict=True)
    lacking = [worker for worker in chosen if worker.problems.get(tool)]
    able = {worker.role for worker in chosen if worker not in lacking}
    lost = [worker for worker in lacking if worker.role not in able and (roles or not able)]
    if not lost:
        return  # where all are asked for, those that can are recorded, and the trainer says who could not
    worst = lost[0]
    text = _("%(tool)s cannot record %(worker)s: %(why)s")
    said = text % {"tool": tool, "worker": worst.name, "why": worst.problems[tool]}
    if able:
        said += " " + _("Choose other roles: %(roles)s.") % {"roles": ", ".join(sorted(able))}
    raise CaptureRefused("tool", said, is_conflict=True)


def _check_trainer(run: Run) -> None:
    """Refuse for other trainers, which look for no commands."""
    trainer = trainers()[run.spec.get("trainer", {}).get("name") or "native"]
    if trainer.package:
        text = _(
            "%(label)s takes no commands while it trains. What it can record itself is chosen before the launch, by "
            "the knobs of the group profiling."
        )
        raise CaptureRefused("tool", text % {"label": trainer.label}, is_conflict=True)


def _check_steps(run: Run, first_step: int, num_steps: int) -> None:
    """Refuse steps that are over or will never come. Step `run.step` + 1 is under way, or about to be."""
    under_way = run.step + 1
    if first_step and first_step <= run.step:
        text = _("Step %(first)s is over: %(done)s are done. Begin with step %(next)s or a later one.")
        about = {"first": first_step, "done": run.step, "next": under_way + 1}
        raise CaptureRefused("first_step", text % about, is_conflict=True)
    first = first_step or under_way + (1 if run.step else 0)
    left = run.num_steps - first + 1
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


def _check_overlap(waiting: Iterable[Capture], run: Run, first_step: int, num_steps: int) -> None:
    """Refuse steps that another capture records: a process takes one profiler at a time. The next step can wait."""
    for row in waiting:
        if not first_step or row.state not in ("armed", "recording", "stopping"):
            continue
        start = row.first_step or run.step + 1
        if first_step < start + row.num_steps and start < first_step + num_steps:
            text = _("%(id)s records steps %(first)s to %(last)s. Ask for other steps, or wait until it is written.")
            about = {"id": row.pk, "first": start, "last": start + row.num_steps - 1}
            raise CaptureRefused("first_step", text % about, is_conflict=True)
