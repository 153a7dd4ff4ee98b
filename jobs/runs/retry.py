"""Start failed runs again by themselves, as the policies of their specs say (jobs.runs.retry_policy)."""

import logging
from collections.abc import Sequence
from datetime import datetime, timedelta

from django.contrib.auth.models import AbstractBaseUser
from django.utils.translation import gettext as _

from jobs.accounts.access import allows, role
from jobs.catalog.spec.parse import SpecInvalid, parse_spec
from jobs.models import Attempt, Run
from jobs.runs import lifecycle
from jobs.runs.checkpoints import Checkpoint, newest_visible
from jobs.runs.resume import ResumeRefused, begin, cleanup_left
from jobs.runs.retry_policy import TOO_LATE, Decision, decide, last_started
from jobs.telemetry.attempt_spec import merged, overrides_by_now

log = logging.getLogger(__name__)

MAX_REASON_CHARS = 160


def queue_retries(*, now: datetime) -> list[Attempt]:
    """Queue the next attempt of each failed run that its policy starts again, and return those.

    A run waits here until its old attempt is cleaned up after; the new one then waits in the queue for its back-off.
    """
    shown = Run.objects.filter(archived_at=None, trashed_at=None)
    failed = shown.filter(state="failed", is_stop_requested=False, ended_at__gt=now - TOO_LATE)
    with_retries = failed.filter(spec__policy__retries__gt=0).select_related("study", "project", "created_by")
    runs = {run.pk: run for run in with_retries.order_by("pk")}
    attempts: dict[str, list[Attempt]] = {}
    for attempt in Attempt.objects.filter(run__in=list(runs)).order_by("number") if runs else ():
        attempts.setdefault(attempt.run_id, []).append(attempt)
    retried = (_retry(runs[pk], run_attempts, now) for pk, run_attempts in attempts.items())
    return [attempt for attempt in retried if attempt is not None]


def _retry(run: Run, attempts: Sequence[Attempt], now: datetime) -> Attempt | None:
    decision = decide(run, attempts, now=now)
    if decision is None or decision.at is None:
        return None
    latest = attempts[-1]
    if cleanup_left(latest, now=now) > timedelta():
        return None
    try:
        overrides = overrides_by_now(latest)
        spec = parse_spec(merged(run.spec, overrides))
    except SpecInvalid as error:
        log.warning("%s is not retried, this console no longer accepts its spec: %s", run.pk, error)
        lifecycle.cancel_retry(run_id=run.pk, user=None, now=now)
        return None
    origin = newest_visible(run)
    at = max(decision.at, now)
    text = _reason(decision, latest, at, origin)
    starter = last_started(attempts).created_by
    user = starter if starter is None or _may_start(starter, run) else run.created_by  # whom it was handed over to
    if starter is not None and (user is None or not _may_start(user, run)):
        text = _("Its retry was canceled. %(name)s, who started it, may no longer start runs in this project.")
        lifecycle.cancel_retry(run_id=run.pk, user=None, now=now, text=text % {"name": starter.get_username()})
        return None
    try:
        return begin(run, latest, origin, overrides, spec, text=text, user=user, now=now, not_before=at)
    except ResumeRefused as error:  # who started it was an admin then
        lifecycle.cancel_retry(run_id=run.pk, user=None, now=now, text=f"Its retry was canceled. {error}")
        return None


def _may_start(user: AbstractBaseUser, run: Run) -> bool:
    return allows(role(user, run.project), "editor")


def _reason(decision: Decision, latest: Attempt, at: datetime, origin: Checkpoint | None) -> str:
    lost = latest.lost_checkpoint
    if lost is not None:
        text = (
            _("Retries at %(time)s UTC from checkpoint %(step)s instead of %(lost)s, attempt %(number)s: %(why)s")
            if origin
            else _("Retries at %(time)s UTC from the start instead of checkpoint %(lost)s, attempt %(number)s: %(why)s")
        )
    elif origin:
        text = _("Retries at %(time)s UTC from checkpoint %(step)s, attempt %(number)s of %(most)s: %(why)s")
    else:
        text = _("Retries at %(time)s UTC from the start, attempt %(number)s of %(most)s: %(why)s")
    why = str(latest.cause.get("text", "")) or _("no cause was given")
    return text % {
        "time": at.strftime("%H:%M:%S"),
        "step": origin.step if origin else 0,
        "lost": lost[1] if lost else 0,
        "number": decision.number,
        "most": decision.most,
        "why": why[:MAX_REASON_CHARS],
    }
