"""Compare what should be with what Ray says, every second, by calling the same functions as the tasks do.

Whatever Celery, a web process or Ray loses is healed here. `reconcile` is one step: it reads the clock it is given and
keeps nothing but `Memory` between steps, so that a restart loses no more than a few seconds of patience.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import InterfaceError, OperationalError
from django.db.models.functions import Coalesce
from django.utils.translation import gettext as _

from jobs.cluster import nodes as ran_on
from jobs.cluster import ray_api as cluster
from jobs.cluster.ray_api import ClusterUnreachable, JobInfo
from jobs.diagnosis import health
from jobs.models import ENDED, LIVE, Attempt, Run, RunEvent
from jobs.planning import joining
from jobs.processes import housekeeping, tasks
from jobs.retention import deletion, purge
from jobs.retention.apply import apply_step as apply_retention
from jobs.runs import admission, holds, launch, lifecycle, retry
from jobs.runs.exit_cause import exit_cause_of
from jobs.runs.find.index import catch_up
from jobs.runs.merges import MERGES
from jobs.runs.prompt_model import ANSWERS
from jobs.storage import forecast, usage
from jobs.telemetry.eta import STEP_TIME
from jobs.telemetry.notify import run_changed
from jobs.traces import imports as layers
from profiling.events import Cause

log = logging.getLogger(__name__)

PATIENCE = timedelta(
    seconds=10
)  # between Ray's word that a job is gone and ours, so that the runner's own word comes first
TASK_HEAD_START = timedelta(seconds=5)  # for Celery to hand over what it admitted
HAND_OVER_LIMIT = timedelta(minutes=5)  # a reachable Ray that will not take a job for so long has refused it
FORCE_AGAIN = timedelta(seconds=30)
CLEANUP_WINDOW = timedelta(minutes=30)  # how long after its end an attempt's clean-up job is still worth starting
STARTING_UP = timedelta(seconds=60)
SLOW_START = timedelta(seconds=20)
STORAGE_EVERY = timedelta(seconds=10)
SHORT_JOBS = (ANSWERS, MERGES)
JOIN_AGAIN = timedelta(seconds=60)  # between two messages that ask for the same run to join a calibration


@dataclass(slots=True)
class ReconcilerState:
    """What one reconciler remembers between steps."""

    started_at: datetime | None = None
    has_reached: bool = False
    away_since: datetime | None = None
    swept_at: datetime | None = None
    forced_at: dict[str, datetime] = field(default_factory=dict)
    refused_since: dict[str, datetime] = field(default_factory=dict)  # since when a reachable Ray does not take a job
    looked_at_storage: datetime | None = None
    asked_to_join: dict[str, datetime] = field(default_factory=dict)  # finished runs whose message was sent


def reconcile(*, now: datetime, memory: ReconcilerState) -> None:
    """Do one step: end what has died, enforce stops, move the queue, hand over what was lost, clean up."""
    memory.started_at = memory.started_at or now
    _sweep_daily(now, memory)
    layers.queue_lost(now=now)
    deletion.settle_waiting(now=now)
    purge.purge_step(now=now)
    apply_retention(now=now)
    _look_at_storage(now, memory)
    health.judge_next(now=now)
    catch_up(now=now)
    state = cluster.read_state()
    if not state.is_reachable:
        _say_away(state.problem, now, memory)
        memory.refused_since.clear()
        retry.queue_retries(now=now)
        for kind in SHORT_JOBS:
            kind.give_up_late(now=now)
        purge.say_away(state.problem)
        return
    memory.has_reached, memory.away_since = True, None
    live = list(Attempt.objects.filter(state__in=LIVE).select_related("run").order_by("pk"))  # before Ray is asked
    unchecked = _unchecked(now)
    has_short_jobs = any(kind.has_jobs(now=now) for kind in SHORT_JOBS)
    try:
        jobs = cluster.list_jobs() if live or unchecked or has_short_jobs or purge.has_jobs() else {}
        for attempt in live:
            _reconcile(attempt, jobs.get(attempt.submission_id), now, memory)
        retry.queue_retries(now=now)
        admitted = admission.admit_waiting(state=state, now=now)
        _hand_over_lost(admitted, state, now, memory)
        for attempt in unchecked:
            if launch.cleanup_id(attempt.submission_id) not in jobs:
                _clean_up(attempt)
        for kind in SHORT_JOBS:
            kind.reconcile(jobs=jobs, state=state, now=now)
        purge.remove_folders(jobs=jobs, state=state, now=now)
        _join_finished(now, memory)
    except ClusterUnreachable as error:
        _say_away(str(error), now, memory)


def _join_finished(now: datetime, memory: ReconcilerState) -> None:
    """Ask a worker to let runs that have finished join the calibration of what they were on."""
    runs = joining.waiting(now=now)
    memory.asked_to_join = {run_id: at for run_id, at in memory.asked_to_join.items() if run_id in runs}
    for run_id in runs:
        if now - memory.asked_to_join.get(run_id, now - JOIN_AGAIN) >= JOIN_AGAIN:
            memory.asked_to_join[run_id] = now
            tasks.enqueue(tasks.join_calibration, run_id=run_id)


def _look_at_storage(now: datetime, memory: ReconcilerState) -> None:
    """Count what runs take and keep an hourly sample; stop runs whose quota of GPU hours is used up and says so."""
    if memory.looked_at_storage is not None and now - memory.looked_at_storage < STORAGE_EVERY:
        return
    memory.looked_at_storage = now
    usage.count_rows(now=now)
    try:
        forecast.keep_sample(now=now)
    except OSError as error:  # a disk that cannot be read is no reason to let runs be
        log.warning("how full the disk is cannot be told: %s", error)
    for run_id in holds.stop_used_up(now=now):
        log.info("%s is asked to stop: the GPU hours of its quota are used up", run_id)


def _sweep_daily(now: datetime, memory: ReconcilerState) -> None:
    """Let go what expired, at the start and once a day; a sweep that fails holds up no run."""
    if memory.swept_at is not None and now - memory.swept_at < housekeeping.EVERY:
        return
    memory.swept_at = now
    try:
        housekeeping.sweep_expired(now=now)
    except (OperationalError, InterfaceError):
        raise
    except Exception:
        log.exception("the daily sweep failed; it is tried again tomorrow")


def _reconcile(attempt: Attempt, job: JobInfo | None, now: datetime, memory: ReconcilerState) -> None:
    """Hold one live attempt against Ray's word on its job (None: unknown to it)."""
    if attempt.submitted_at is None and attempt.state != "stopping":
        return  # not handed over yet
    if job is not None:
        ran_on.keep_node(attempt, job.node)
    if job is not None and job.status not in cluster.JOB_ENDED:
        if attempt.missing_at is not None:
            Attempt.objects.filter(pk=attempt.pk).update(missing_at=None)
        if attempt.state == "stopping":
            _enforce_stop(attempt, now, memory)
        elif attempt.state == "starting":
            _say_slow(attempt, job, now)
        return
    if attempt.missing_at is None:
        Attempt.objects.filter(pk=attempt.pk, missing_at=None).update(missing_at=now)
    elif now - attempt.missing_at >= PATIENCE:
        _bury(attempt, job, now)


def _say_slow(attempt: Attempt, job: JobInfo, now: datetime) -> None:
    """Say what a start that takes long is waiting for, where people look for the run's activity."""
    if attempt.last_contact_at is not None:
        return  # its runner says itself what it does
    if attempt.submitted_at is None or now - attempt.submitted_at < SLOW_START:
        return
    if job.status == "PENDING":
        text = _("Ray prepares its environment")
    else:
        text = _("Its runner has not reached the console at %(url)s yet") % {"url": settings.RUNNER_URL}
    if Run.objects.filter(pk=attempt.run_id, state="starting").exclude(activity=text).update(activity=text[:200]):
        run_changed(attempt.run_id)


def _bury(attempt: Attempt, job: JobInfo | None, now: datetime) -> None:
    """End an attempt whose job is over, or lost, without its runner's terminal event."""
    is_stop = attempt.state == "stopping" and (job is None or job.status in ("STOPPED", "SUCCEEDED"))
    if is_stop:
        text = (
            _("stopped before it started") if attempt.submitted_at is None else _("ended by Ray, no checkpoint saved")
        )
        cause: Cause = {"side": "user", "text": text}
    elif job is None:
        text = _("cluster lost: Ray no longer knows its job %(job)s. The head was restarted; resume the run.")
        cause = {"side": "cluster", "text": text % {"job": attempt.submission_id}}
    else:
        cause = exit_cause_of(job)
    lifecycle.finish(
        run_id=attempt.run_id,
        attempt=attempt.number,
        state="stopped" if is_stop else "failed",
        cause=cause,
        cleanup={},
        now=now,
    )


def _enforce_stop(attempt: Attempt, now: datetime, memory: ReconcilerState) -> None:
    """After the grace, ask Ray to end the job; again every 30 s."""
    stops = attempt.commands.filter(verb="stop").order_by("created_at")
    asked_at = stops.values_list(Coalesce("not_before", "created_at"), flat=True).first()
    if asked_at is None or now - asked_at < _grace(attempt.run.latest_values):
        return
    forced = memory.forced_at.get(attempt.submission_id)
    if forced is not None and now - forced < FORCE_AGAIN:
        return
    if not RunEvent.objects.filter(run_id=attempt.run_id, attempt=attempt.number, verb="stop_forced").exists():
        text = _("It did not stop on its own; Ray ends its processes")
        RunEvent.objects.create(run_id=attempt.run_id, attempt=attempt.number, at=now, verb="stop_forced", text=text)
    memory.forced_at[attempt.submission_id] = now
    cluster.stop_job(attempt.submission_id)


def _grace(latest_values: Mapping[str, Any]) -> timedelta:
    """Return how long a run may take to stop by itself: 90 s, or two of its steps if those are longer."""
    step_seconds = latest_values.get(STEP_TIME)
    two_steps = 2 * step_seconds if isinstance(step_seconds, (int, float)) else 0.0
    return timedelta(seconds=max(settings.STOP_GRACE_SECONDS, min(two_steps, 3600.0)))


def _hand_over_lost(
    admitted: list[tuple[str, int]], state: cluster.ClusterState, now: datetime, memory: ReconcilerState
) -> None:
    """Submit what was just admitted here, and what a task admitted but has not handed over.

    Only our own tries against a reachable Ray count as refusals: a console that was down meanwhile has tried nothing.
    """
    for attempt in Attempt.objects.filter(state="starting", submitted_at=None).select_related("run"):
        is_ours = (attempt.run_id, attempt.number) in admitted
        if not is_ours and now - _admitted_at(attempt) < TASK_HEAD_START:
            continue
        if launch.hand_over(attempt, state=state, now=now):
            memory.refused_since.pop(attempt.submission_id, None)
        elif now - memory.refused_since.setdefault(attempt.submission_id, now) >= HAND_OVER_LIMIT:
            cause = {"side": "cluster", "text": _("Ray did not take its job for five minutes")}
            lifecycle.finish(
                run_id=attempt.run_id, attempt=attempt.number, state="failed", cause=cause, cleanup={}, now=now
            )


def _admitted_at(attempt: Attempt) -> datetime:
    events = RunEvent.objects.filter(run_id=attempt.run_id, attempt=attempt.number, verb="starting")
    return events.values_list("at", flat=True).order_by("pk").last() or attempt.created_at


def _clean_up(attempt: Attempt) -> None:
    try:
        launch.clean_up(attempt)
    except cluster.JobRefused:
        log.exception("the clean-up of %s was refused", attempt.submission_id)


def _unchecked(now: datetime) -> list[Attempt]:
    """Return attempts that ended lately, had a job, and whose runner left no clean-up report."""
    recent = Attempt.objects.filter(state__in=ENDED, ended_at__gte=now - CLEANUP_WINDOW, cleanup={})
    return list(recent.exclude(submitted_at=None))


def _say_away(problem: str, now: datetime, memory: ReconcilerState) -> None:
    """Tell queued runs that Ray is away; nothing else changes, because silence says nothing about jobs."""
    memory.away_since = memory.away_since or now
    is_early = memory.started_at is not None and now - memory.started_at < STARTING_UP
    if not memory.has_reached and is_early:
        reason = _("Ray is starting")
    else:
        values = {"since": memory.away_since.strftime("%H:%M:%S UTC"), "problem": problem}
        reason = _("Ray has not responded since %(since)s: %(problem)s") % values
    for run_id in Attempt.objects.filter(state="queued").values_list("run_id", flat=True):
        admission.say_why(run_id, reason)
