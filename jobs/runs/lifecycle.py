"""The state machine of attempts; the only code that sets a state.

Every change is a compare-and-set on the attempt (its states and version), the mirror on the run, and a RunEvent, in one
transaction. What comes twice, late, or from an attempt that is not the latest changes nothing and returns False.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Literal, cast

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.db.models import F, QuerySet

from jobs.accounts.audit import record
from jobs.captures import captures
from jobs.models import ENDED, Attempt, Command, Run, RunEvent
from jobs.runs.retry_policy import decide
from jobs.telemetry.notify import run_changed
from profiling.counted import counted
from profiling.redaction import hide_in

State = Literal["queued", "starting", "running", "stopping", "finished", "failed", "stopped"]

TRANSITIONS: Mapping[str, frozenset[str]] = {
    "queued": frozenset({"starting", "stopped", "failed"}),
    "starting": frozenset({"running", "stopping", "finished", "failed", "stopped"}),
    "running": frozenset({"stopping", "finished", "failed", "stopped"}),
    "stopping": frozenset({"starting", "running", "finished", "failed", "stopped"}),  # back: `withdraw_stop`
    "finished": frozenset(),
    "failed": frozenset(),
    "stopped": frozenset(),
}
"""From each state, where an attempt may go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewAttempt:
    """How an ended run starts again. `resume` is attempt and step of a checkpoint, None for the start.

    `after` is the attempt that it must still be the latest of. `overrides` is what it changes of the run's spec;
    `num_steps` and `latest_values` are what the run's header goes on from; `text` goes into the history.
    """

    after: int
    resume: tuple[int, int] | None
    overrides: Mapping[str, object]
    num_steps: int
    latest_values: Mapping[str, object]
    submission_id: str
    num_cpus: float
    num_gpus: float
    text: str
    is_automatic: bool = False
    not_before: datetime | None = None


STOP_GRACE = timedelta(seconds=10)
"""How long a stop that people ask for in a page can be taken back."""
_ON_ITS_WAY = timedelta(seconds=1)  # two processes read the clock a moment apart: by then it cannot have been sent
_TRIES = 8  # a lost compare-and-set is read and decided again; each loss means that somebody else made progress


class _LostRaceError(Exception):
    """Somebody else changed the row between reading and writing; rolls the transaction back."""


def admit(*, run_id: str, attempt: int, now: datetime) -> bool:
    """Take a queued attempt out of the queue: its resources are its own from here on."""
    return _change(run_id, attempt, "starting", now, text="Starting on the cluster", only_from={"queued"})


def mark_running(*, run_id: str, attempt: int, now: datetime) -> bool:
    """Note that the attempt's runner has made contact. Idempotent and cheap, so that ingest may call it at will."""
    fields = {"started_at": now}
    return _change(run_id, attempt, "running", now, text="Running", fields=fields, only_from={"starting"})


def finish(
    *,
    run_id: str,
    attempt: int,
    state: str,
    cause: Mapping[str, object],
    cleanup: Mapping[str, object],
    now: datetime,
) -> bool:
    """End the attempt as `finished`, `failed` or `stopped`; the first word that comes holds.

    `cause` says who and what: side (trainer, cluster, pitwall, user), text, and where known role, rank, step, log_line.
    `cleanup` is the clean-up report, {} where there is none yet.
    Raises: ValueError if `state` does not end a run.
    """
    if state not in ENDED:
        raise ValueError(f"{state!r} does not end a run. Use one of {', '.join(ENDED)}.")
    text = {"finished": "Finished", "failed": "Failed", "stopped": "Stopped"}[state]
    plain = hide_in(cause)  # it quotes log lines and words of Ray's
    if plain.get("text"):
        text = f"{text}: {plain['text']}"
    fields = {"ended_at": now, "cause": plain, "cleanup": dict(cleanup)}
    return _change(run_id, attempt, cast(State, state), now, text=text, fields=fields)


def request_stop(*, run_id: str, user: AbstractBaseUser | None, now: datetime, grace: timedelta = timedelta()) -> bool:
    """Stop the run: at once if it is still queued, else by a command to its runner, which saves a checkpoint first.

    The runner is told when `grace` is over; until then `withdraw_stop` takes it back. A failed run that is about to
    start again by itself will not. Returns False if it is already stopping, where without a grace nothing can be taken
    back any more, or has ended for good.
    """
    number = _latest_attempt(run_id)
    while not _stop_attempt(run_id, number, user=user, now=now, grace=grace):
        if cancel_retry(run_id=run_id, user=user, now=now):
            return True
        before, number = number, _latest_attempt(run_id)
        if number == before:  # else it was retried or resumed meanwhile, and the new attempt is what has to stop
            if not grace:
                _waiting_stop(run_id, number).update(not_before=None)
            return False
    return True


def withdraw_stop(*, run_id: str, user: AbstractBaseUser | None, now: datetime) -> bool:
    """Let a run that is stopping go on, as if nobody had asked; False once its runner may have been told."""
    number = _latest_attempt(run_id)
    with transaction.atomic():
        stop = _waiting_stop(run_id, number).filter(not_before__gt=now + _ON_ITS_WAY).select_for_update().first()
        if stop is None:
            return False
        was_running = Attempt.objects.filter(pk=stop.attempt_id).exclude(started_at=None).exists()
        back: State = "running" if was_running else "starting"
        fields = {"missing_at": None}  # one whose job was not there yet is looked for anew
        text = "Stop taken back"
        if not _change(run_id, number, back, now, text=text, user=user, fields=fields, only_from={"stopping"}):
            return False
        stop.delete()
        Run.objects.filter(pk=run_id, latest_attempt=number).update(is_stop_requested=False)
        record(actor=user, verb="run.withdraw_stop", object_type="run", object_id=run_id)
    return True


def _waiting_stop(run_id: str, number: int) -> QuerySet[Command]:
    own = Command.objects.filter(attempt__run_id=run_id, attempt__number=number, verb="stop")
    return own.filter(delivered_at=None).exclude(not_before=None)


def _latest_attempt(run_id: str) -> int:
    return Run.objects.values_list("latest_attempt", flat=True).get(pk=run_id)


def _stop_attempt(run_id: str, number: int, *, user: AbstractBaseUser | None, now: datetime, grace: timedelta) -> bool:
    text = f"canceled by {user} before it started" if user else "canceled before it started"
    cause = {"side": "user", "text": text if number == 1 else f"attempt {number} {text}"}
    fields = {"ended_at": now, "cause": cause}
    canceled = _change(
        run_id, number, "stopped", now, text="Canceled in the queue", user=user, fields=fields, only_from={"queued"}
    )
    if not canceled and not _change(
        run_id,
        number,
        "stopping",
        now,
        text="Stop requested",
        user=user,
        only_from={"starting", "running"},
        stop_not_before=now + grace if grace else None,
    ):
        return False
    record(actor=user, verb="run.cancel" if canceled else "run.stop", object_type="run", object_id=run_id)
    return True


def request_checkpoint(*, run_id: str, user: AbstractBaseUser | None, now: datetime) -> bool:
    """Ask a running run to save a checkpoint after its step; False if it is not running.

    Asking again before the runner has taken the first request is the same request.
    """
    with transaction.atomic():
        latest = Attempt.objects.filter(run_id=run_id, run__latest_attempt=F("number"), state="running")
        attempt = latest.select_for_update(of=("self",)).first()
        if attempt is None:
            return False
        if not attempt.commands.filter(verb="checkpoint", delivered_at=None).exists():
            actor_id = user.pk if user else None
            attempt.commands.create(verb="checkpoint", created_by_id=actor_id, created_at=now)
            RunEvent.objects.create(
                run_id=run_id,
                attempt=attempt.number,
                at=now,
                verb="checkpoint",
                text="Checkpoint asked for",
                actor_id=actor_id,
            )
            record(actor=user, verb="run.checkpoint", object_type="run", object_id=run_id)
            transaction.on_commit(partial(run_changed, run_id))
    return True


def begin_attempt(*, run_id: str, new: NewAttempt, user: AbstractBaseUser | None, now: datetime) -> Attempt | None:
    """Put an ended run into the queue again with a new attempt; None if it has not ended, or another one came first.

    This is the only way out of an ended state, and only one of many who try at once finds it. Nothing of the earlier
    attempts changes; what the run says of itself starts anew from the restored step.
    """
    step = new.resume[1] if new.resume else 0
    with transaction.atomic():
        ended_runs = Run.objects.filter(pk=run_id, state__in=ENDED, latest_attempt=new.after, trashed_at=None)
        if new.is_automatic:
            ended_runs = ended_runs.filter(state="failed", is_stop_requested=False)
        moved = ended_runs.update(
            state="queued",
            latest_attempt=new.after + 1,
            cause={},
            is_stop_requested=False,
            wait_reason=(new.text if new.not_before else "")[:300],
            step=step,
            num_steps=new.num_steps,
            latest_values=dict(new.latest_values),
            phase="",
            activity="",
            ended_at=None,
        )
        if moved != 1:
            return None
        attempt = Attempt.objects.create(
            run_id=run_id,
            number=new.after + 1,
            submission_id=new.submission_id,
            resume_attempt=new.resume[0] if new.resume else None,
            resume_step=step,
            overrides=dict(new.overrides),
            is_automatic=new.is_automatic,
            not_before=new.not_before,
            step=step,
            num_cpus=new.num_cpus,
            num_gpus=new.num_gpus,
            created_by_id=user.pk if user else None,
            created_at=now,
        )
        RunEvent.objects.create(
            run_id=run_id,
            attempt=attempt.number,
            at=now,
            verb="queued",
            text=new.text[:500],
            step=step if new.resume else None,
            actor_id=attempt.created_by_id,
            data={"to": "queued", "resume_attempt": attempt.resume_attempt, "resume_step": step},
        )
        verb = "run.retry" if new.is_automatic else "run.resume"
        after = {"attempt": attempt.number, "checkpoint": new.resume, "overrides": dict(new.overrides)}
        record(actor=user, verb=verb, object_type="run", object_id=run_id, after=after)
        transaction.on_commit(partial(run_changed, run_id))
    return attempt


def cancel_retry(
    *, run_id: str, user: AbstractBaseUser | None, now: datetime, text: str = "Its retry was canceled"
) -> bool:
    """Keep a run that failed from starting again by itself; False if it was not about to."""
    with transaction.atomic():
        run = Run.objects.select_for_update().get(pk=run_id)
        decision = decide(run, list(Attempt.objects.filter(run=run).order_by("number")), now=now)
        if decision is None or decision.why_not:
            return False
        Run.objects.filter(pk=run_id).update(is_stop_requested=True)
        actor_id = user.pk if user else None
        about = {"verb": "retry_canceled", "text": text[:500]}
        RunEvent.objects.create(run_id=run_id, attempt=run.latest_attempt, at=now, actor_id=actor_id, **about)
        record(actor=user, verb="run.cancel_retry", object_type="run", object_id=run_id)
        transaction.on_commit(partial(run_changed, run_id))
    return True


def record_cleanup(*, run_id: str, attempt: int, cleanup: Mapping[str, object], now: datetime) -> bool:
    """Keep the clean-up report that came after the attempt ended; the first one holds."""
    with transaction.atomic():
        ended = Attempt.objects.filter(run_id=run_id, number=attempt, state__in=ENDED, cleanup={})
        if not ended.update(cleanup=dict(cleanup)):
            return False
        text = counted(f"Clean-up checked: {cleanup.get('processes_left', '?')} processes left")
        RunEvent.objects.create(run_id=run_id, attempt=attempt, at=now, verb="cleanup", text=text, data=dict(cleanup))
        transaction.on_commit(partial(run_changed, run_id))
    return True


def _change(
    run_id: str,
    number: int,
    to: State,
    now: datetime,
    *,
    text: str,
    user: AbstractBaseUser | None = None,
    fields: Mapping[str, object] | None = None,
    only_from: set[str] | None = None,
    stop_not_before: datetime | None = None,
) -> bool:
    """Move the latest attempt to `to` if the machine allows it from where it is; True if this call did it."""
    for _ in range(_TRIES):
        latest = Attempt.objects.filter(run_id=run_id, number=number, run__latest_attempt=number)
        seen = latest.values_list("pk", "state", "version").first()
        if seen is None:
            return False  # unknown, or an old attempt: those can finish nothing
        pk, state, version = seen
        if to not in TRANSITIONS[state] or (only_from is not None and state not in only_from):
            return False
        try:
            with transaction.atomic():
                _apply(pk, state, version, run_id, number, to, now, text, user, dict(fields or {}), stop_not_before)
            return True
        except _LostRaceError:
            continue
    return False


def _apply(
    pk: int,
    state: str,
    version: int,
    run_id: str,
    number: int,
    to: State,
    now: datetime,
    text: str,
    user: AbstractBaseUser | None,
    fields: dict[str, object],
    stop_not_before: datetime | None,
) -> None:
    unchanged = Attempt.objects.filter(pk=pk, state=state, version=version)
    if unchanged.update(state=to, version=F("version") + 1, **fields) != 1:
        raise _LostRaceError
    mirror: dict[str, object] = {"state": to, "wait_reason": ""}
    if to == "stopping" or (to == "stopped" and state == "queued"):
        mirror["is_stop_requested"] = True
    if to in ENDED:
        mirror |= {"ended_at": now, "cause": fields.get("cause", {}), "phase": "", "activity": ""}
    current = Run.objects.filter(pk=run_id, latest_attempt=number)
    if current.update(**mirror) != 1:
        raise _LostRaceError
    if to == "running":
        current.filter(started_at=None).update(started_at=now)
    if to == "stopping":
        about = {"created_by_id": user.pk if user else None, "created_at": now, "not_before": stop_not_before}
        Command.objects.create(attempt_id=pk, verb="stop", **about)
    actor_id = user.pk if user else None
    data = {"from": state, "to": to, "cause": fields.get("cause", {})}
    RunEvent.objects.create(
        run_id=run_id, attempt=number, at=now, verb=to, text=text[:500], actor_id=actor_id, data=data
    )
    if to in ENDED:
        captures.attempt_ended(run_id=run_id, attempt=number, now=now)
    transaction.on_commit(partial(run_changed, run_id))
