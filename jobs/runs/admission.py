"""The queue: which waiting run may start, and what each of the others waits for.

First come, first served: a run that fits never overtakes one that must wait for resources. Only a run that the cluster
could never hold, that its sweep or a quota holds back, or that is a retry whose time has not come, lets others pass.
What a live run holds is what it asked for, until it has ended.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache, partial
from typing import Any, Literal

from django.db import connection, transaction
from django.db.models import Q, Value
from django.db.models.functions import Coalesce
from django.utils import timezone
from django.utils.translation import gettext as _

from jobs.catalog.spec.parse import SpecInvalid, parse_spec
from jobs.catalog.spec.runspec import RunSpec
from jobs.cluster.ray_api import ClusterState
from jobs.models import ENDED, LIVE, Answer, Attempt, Merge, Run, RunEvent
from jobs.runs import lifecycle
from jobs.runs.holds import AtOnce, QuotaHolds, lacking_data
from jobs.telemetry.attempt_spec import merged
from jobs.telemetry.notify import run_changed
from profiling.counted import counted

SHORT_JOB_CPUS = 1.0
CLEANUP_TIME = timedelta(seconds=60)
_LOCK = 0x7069_7477  # of PostgreSQL's advisory locks; any number, the same in every process


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What a run asks of the cluster: CPUs and GPUs in all, and CPUs of one worker, which must lie on one node.

    A run of a sweep names it in `study`; at most `at_once` runs of that may be live, and `quotas` limit those of its
    project and person. A retry waits for its time, and a run for a quota that is used up (`held` says so), whatever is
    free.
    """

    run_id: str
    attempt: int
    cpus: float
    gpus: float
    cpus_per_worker: float = 1.0
    study: str = ""
    at_once: int = 0
    held: str = ""
    quotas: tuple[AtOnce, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Unstartable:
    """Why a queued run can never start, and whose side that is."""

    side: Literal["user", "pitwall"]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceHolder:
    """Who sits on what; `study` names the sweep of a live run."""

    label: str
    cpus: float
    gpus: float
    study: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionDecision:
    """May it start; if not, `reason` says what it waits for. `fits` is False if this cluster can never hold it."""

    ask: Ask
    is_admitted: bool
    reason: str = ""
    fits: bool = True


def demand(spec: RunSpec, *, device: str) -> tuple[float, float]:
    """Return the logical CPUs and the GPUs that the run asks of the cluster on `device` (cpu or cuda)."""
    workers = spec.num_workers
    return float(workers * spec.hardware.cpus_per_worker), float(workers if device == "cuda" else 0)


def decide(waiting: Sequence[Ask], holders: Sequence[ResourceHolder], state: ClusterState) -> list[AdmissionDecision]:
    """Return a verdict for each waiting run, in the order of the queue."""
    free_cpus = state.cpus_total - sum(h.cpus for h in holders)
    free_gpus = state.gpus_total - sum(h.gpus for h in holders)
    live = Counter(h.study for h in holders if h.study)
    started: Counter[tuple[str, int]] = Counter()
    verdicts: list[AdmissionDecision] = []
    blocked_by = ""
    for ask in waiting:
        never = _never(ask, state)
        if never:
            verdicts.append(AdmissionDecision(ask=ask, is_admitted=False, reason=never, fits=False))
        elif ask.held:
            verdicts.append(AdmissionDecision(ask=ask, is_admitted=False, reason=ask.held))
        elif ask.study and live[ask.study] >= ask.at_once:
            text = _("Waits for its sweep: %(live)s of %(at_once)s at once are running")
            reason = text % {"live": live[ask.study], "at_once": ask.at_once}
            verdicts.append(AdmissionDecision(ask=ask, is_admitted=False, reason=reason))
        elif reason := _over_quota(ask, started):
            verdicts.append(AdmissionDecision(ask=ask, is_admitted=False, reason=reason))
        elif blocked_by:
            text = _("Waits behind %(run)s, which came first") % {"run": blocked_by}
            verdicts.append(AdmissionDecision(ask=ask, is_admitted=False, reason=text))
        elif ask.cpus <= free_cpus and ask.gpus <= free_gpus:
            free_cpus -= ask.cpus
            free_gpus -= ask.gpus
            live[ask.study] += 1
            started.update(quota.key for quota in ask.quotas)
            holders = [*holders, ResourceHolder(label=ask.run_id, cpus=ask.cpus, gpus=ask.gpus, study=ask.study)]
            verdicts.append(AdmissionDecision(ask=ask, is_admitted=True))
        else:
            blocked_by = ask.run_id
            is_gpu = ask.gpus > free_gpus
            reason = _shortage(
                ask.gpus if is_gpu else ask.cpus, free_gpus if is_gpu else free_cpus, holders, state, is_gpu
            )
            verdicts.append(AdmissionDecision(ask=ask, is_admitted=False, reason=reason))
    return verdicts


def holders(*, device: str, now: datetime | None = None) -> list[ResourceHolder]:
    """Return what live attempts and short jobs hold now: one CPU, an answer on `device` cuda one GPU as well.

    An attempt that just ended without a clean-up report holds its share for one more minute: its
    clean-up job is at work.
    """
    since = (now or timezone.now()) - CLEANUP_TIME
    unchecked = Q(state__in=ENDED, ended_at__gt=since, cleanup={}) & ~Q(submitted_at=None)
    live = Attempt.objects.filter(Q(state__in=LIVE) | unchecked).order_by("pk")
    rows = live.values_list("run_id", "state", "num_cpus", "num_gpus", "run__study_id")
    running = [
        ResourceHolder(label=run_id, cpus=cpus, gpus=gpus, study=study or "")
        if state in LIVE
        else ResourceHolder(label=f"{run_id} (cleaning up)", cpus=cpus, gpus=gpus)
        for run_id, state, cpus, gpus, study in rows
    ]
    answers, merges = (
        model.objects.filter(state="starting").values_list("run_id", Value(what), Value(gpus))
        for model, what, gpus in (
            (Answer, "Try it", 1.0 if device == "cuda" else 0.0),
            (Merge, "Make a model", 0.0),
        )
    )
    short_jobs = [
        ResourceHolder(label=f"{run_id} ({what})", cpus=SHORT_JOB_CPUS, gpus=gpus)
        for run_id, what, gpus in answers.union(merges, all=True)
    ]
    return running + short_jobs


def why_job_waits(state: ClusterState, *, gpus: float, now: datetime, is_after_runs: bool = False) -> str:
    """Return why a short job cannot start right now; "" if it can.

    With `is_after_runs` it takes no CPU that a waiting run would take, if not for GPUs that are not free.
    """
    held = holders(device=state.device, now=now)
    free_gpus = state.gpus_total - sum(h.gpus for h in held)
    runs = waiting(device=state.device, now=now) if is_after_runs else []
    ask = Ask(run_id="", attempt=0, cpus=SHORT_JOB_CPUS, gpus=gpus)
    verdict = decide([*(run for run in runs if run.gpus <= free_gpus), ask], held, state)[-1]
    return "" if verdict.is_admitted else verdict.reason


def waiting(*, device: str, now: datetime | None = None) -> list[Ask]:
    """Return the queue in order, its demands estimated for `device` where a spec leaves the device open.

    A stored spec that this version no longer accepts is left out; `admit_waiting` ends its run.
    """
    return [ask for _key, ask in _queue(device, now or timezone.now()) if isinstance(ask, Ask)]


def admit_waiting(*, state: ClusterState, now: datetime) -> list[tuple[str, int]]:
    """Admit what fits, in order, and note for the others why they wait; return each (run, attempt) admitted.

    One process at a time decides, so that two never give away the same resources.
    """
    if not Attempt.objects.filter(state="queued").exists():
        return []
    admitted = []
    with transaction.atomic():
        _take_lock()
        queue = _queue(state.device, now)
        for (run_id, number), problem in queue:
            if isinstance(problem, Unstartable):
                cause = {"side": problem.side, "text": problem.text}
                lifecycle.finish(run_id=run_id, attempt=number, state="failed", cause=cause, cleanup={}, now=now)
        asks = [ask for _key, ask in queue if isinstance(ask, Ask)]
        reasons = dict(
            Run.objects.filter(state="queued").values_list("pk", "wait_reason")
        )  # a long queue mostly stays so
        for verdict in decide(asks, holders(device=state.device, now=now), state):
            ask = verdict.ask
            if not verdict.is_admitted:
                if reasons.get(ask.run_id) != verdict.reason[:300]:
                    say_why(ask.run_id, verdict.reason)
                continue
            Attempt.objects.filter(run_id=ask.run_id, number=ask.attempt, state="queued").update(
                num_cpus=ask.cpus, num_gpus=ask.gpus
            )
            if lifecycle.admit(run_id=ask.run_id, attempt=ask.attempt, now=now):
                admitted.append((ask.run_id, ask.attempt))
    return admitted


def say_why(run_id: str, reason: str) -> None:
    """Keep why a queued run waits, and tell browsers when that changed."""
    if Run.objects.filter(pk=run_id, state="queued").exclude(wait_reason=reason[:300]).update(wait_reason=reason[:300]):
        transaction.on_commit(partial(run_changed, run_id))


def _queue(device: str, now: datetime) -> list[tuple[tuple[str, int], Ask | Unstartable]]:
    """Return the queue in order: (run, attempt), and what it asks or why it can never start."""
    began = Coalesce("created_by_id", "run__created_by_id")
    columns = ("number", "run__spec", "overrides", "not_before", "run__study_id", "run__study__max_concurrent")
    attempts = Attempt.objects.filter(state="queued").order_by("pk").annotate(person=began)
    rows = list(attempts.values_list("run_id", *columns, "run__project_id", "person"))
    lacking = lacking_data((row[7], _data_of(row[2])) for row in rows)
    holds = QuotaHolds(now)
    queue: list[tuple[tuple[str, int], Ask | Unstartable]] = []
    for run_id, number, raw, overrides, not_before, study, at_once, project, person in rows:
        try:
            cpus, gpus, per_worker = _demand(json.dumps(merged(raw, overrides)), device)
        except SpecInvalid as error:
            queue.append(((run_id, number), _unreadable(error)))
            continue
        if (project, _data_of(raw)) in lacking:
            text = _("its data file was deleted from the console. Upload it again, then clone the run or resume it.")
            queue.append(((run_id, number), Unstartable(side="user", text=text)))
            continue
        hold = holds.of(project_id=project, person_id=person, gpus=gpus)
        ask = Ask(
            run_id=run_id,
            attempt=number,
            cpus=cpus,
            gpus=gpus,
            cpus_per_worker=per_worker,
            study=study or "",
            at_once=at_once or 0,
            held=_why_held(run_id, number) if not_before is not None and not_before > now else hold.reason,
            quotas=hold.at_once,
        )
        queue.append(((run_id, number), ask))
    return queue


def _data_of(spec: Mapping[str, Any]) -> str:
    return str(spec.get("data", {}).get("id", ""))


def _over_quota(ask: Ask, started: Counter[tuple[str, int]]) -> str:
    """Say which quota has as many live runs as it may, with those started just now; "" if none has."""
    for quota in ask.quotas:
        live = quota.live + started[quota.key]
        if live >= quota.most:
            return quota.reason(live)
    return ""


def _why_held(run_id: str, number: int) -> str:
    """Return the words with which the retry was queued: when it starts, and after what."""
    events = RunEvent.objects.filter(run_id=run_id, attempt=number, verb="queued")
    return events.order_by("pk").values_list("text", flat=True).first() or ""


@lru_cache(maxsize=2048)
def _demand(spec_text: str, device: str) -> tuple[float, float, float]:
    """Return CPUs, GPUs and CPUs of one worker; cached: a queue is evaluated each second, specs never change."""
    spec = parse_spec(json.loads(spec_text))
    cpus, gpus = demand(spec, device=device if spec.hardware.device == "auto" else spec.hardware.device)
    return cpus, gpus, float(spec.hardware.cpus_per_worker)


def _unreadable(error: SpecInvalid) -> Unstartable:
    """Say that an upgraded console no longer accepts a stored spec; the run ends, so that it blocks nobody."""
    text = _("this console no longer accepts its spec: %(why)s Clone it and launch again.") % {"why": error}
    return Unstartable(side="pitwall", text=text)


def _take_lock() -> None:
    """Let one process decide at a time, until its transaction ends; on SQLite an immediate transaction is that lock."""
    with connection.cursor() if connection.vendor == "postgresql" else nullcontext() as cursor:
        if cursor is not None:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])


def _never(ask: Ask, state: ClusterState) -> str:
    largest = max((n.cpus for n in state.nodes), default=0.0)
    if ask.gpus and not state.gpus_total:
        return counted(_("Needs %(asked)s GPUs; the cluster has none.") % {"asked": f"{ask.gpus:g}"})
    if ask.gpus > state.gpus_total:
        text = _("Needs %(asked)s GPUs, the cluster has %(total)s: lower policy ranks or rollout engines.")
        return counted(text % {"asked": f"{ask.gpus:g}", "total": f"{state.gpus_total:g}"})
    if ask.cpus > state.cpus_total:
        text = _("Needs %(asked)s CPUs, the cluster has %(total)s: lower policy ranks, engines or CPUs per worker.")
        return counted(text % {"asked": f"{ask.cpus:g}", "total": f"{state.cpus_total:g}"})
    if ask.cpus_per_worker > largest:
        text = _("One worker needs %(asked)s CPUs, the largest node has %(total)s: lower CPUs per worker.")
        return counted(text % {"asked": f"{ask.cpus_per_worker:g}", "total": f"{largest:g}"})
    return ""


def _shortage(wanted: float, free: float, holders: Sequence[ResourceHolder], state: ClusterState, is_gpu: bool) -> str:
    """Say what is asked, what is free, and who holds the rest, the largest first."""
    total = state.gpus_total if is_gpu else state.cpus_total
    held = sorted(((h.gpus if is_gpu else h.cpus, h.label) for h in holders), reverse=True)
    names = ", ".join(f"{label} holds {amount:g}" for amount, label in held[:3] if amount)
    values = {"asked": f"{wanted:g}", "free": f"{max(free, 0):g}", "total": f"{total:g}", "held": names}
    if is_gpu:
        return counted(_("Needs %(asked)s GPUs, %(free)s of %(total)s are free; %(held)s") % values)
    return counted(_("Needs %(asked)s CPUs, %(free)s of %(total)s are free; %(held)s") % values)
