"""The header of a run: what pages, API and websocket say of it, as one frozen, JSON-able dataclass."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

from jobs import eta
from jobs.models import LIVE, Attempt, Run

LOST_AFTER = timedelta(seconds=15)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunHeader:
    """One run at a glance. Times are ISO 8601 in UTC; `eta_seconds` is (low, high).

    `queue_position` counts from 1 and is None outside the queue; `step` of `num_steps` counts completed steps; `seq` is
    the number of the newest frame; `is_lost_contact` says that a live run's runner has been silent for 15 s.
    """

    id: str
    name: str
    project: str
    state: str
    phase: str
    activity: str
    wait_reason: str
    queue_position: int | None
    step: int
    num_steps: int
    eta_seconds: tuple[float, float] | None
    elapsed_seconds: float | None
    created_at: str
    started_at: str | None
    ended_at: str | None
    last_contact_at: str | None
    is_lost_contact: bool
    is_stop_requested: bool
    cause: Mapping[str, Any]
    cleanup: Mapping[str, Any]
    latest_values: Mapping[str, Any]
    attempt: int
    seq: int
    algorithm: str
    trainer: str
    model: str
    data: str
    num_cpus: float
    num_gpus: float
    tags: tuple[str, ...]
    note: str
    color: int
    author: str
    archived_at: str | None


def run_header(run: Run, *, now: datetime | None = None) -> RunHeader:
    """Return the header of one run."""
    attempt = Attempt.objects.filter(run=run, number=run.latest_attempt).first()
    times = eta.recent_times(run) if run.state == "running" else []
    return _header(run, attempt, queue_positions() if run.state == "queued" else {}, times, now or timezone.now())


def run_headers(runs: Sequence[Run], *, now: datetime | None = None) -> list[RunHeader]:
    """Return the headers of many runs with three queries in all; fetch them with project and created_by."""
    attempts = {(a.run_id, a.number): a for a in Attempt.objects.filter(run__in=[run.pk for run in runs])}
    places = queue_positions() if any(run.state == "queued" for run in runs) else {}
    at = now or timezone.now()
    return [_header(run, attempts.get((run.pk, run.latest_attempt)), places, eta.latest_time(run), at) for run in runs]


def queue_positions() -> dict[str, int]:
    """Return run id -> place in the queue of the whole cluster, counted from 1."""
    queued = Attempt.objects.filter(state="queued").order_by("pk").values_list("run_id", flat=True)
    return {run_id: place for place, run_id in enumerate(queued, start=1)}


def _header(
    run: Run, attempt: Attempt | None, places: Mapping[str, int], times: list[float], now: datetime
) -> RunHeader:
    contact = attempt.last_contact_at if attempt else None
    is_live = run.state in LIVE
    return RunHeader(
        id=run.pk,
        name=run.name,
        project=run.project.slug,
        state=run.state,
        phase=run.phase,
        activity=run.activity,
        wait_reason=run.wait_reason,
        queue_position=places.get(run.pk) if run.state == "queued" else None,
        step=run.step,
        num_steps=run.num_steps,
        eta_seconds=eta.interval(run, times=times),
        elapsed_seconds=((run.ended_at or now) - run.started_at).total_seconds() if run.started_at else None,
        created_at=run.created_at.isoformat(),
        started_at=_iso(run.started_at),
        ended_at=_iso(run.ended_at),
        last_contact_at=_iso(contact),
        is_lost_contact=is_live and contact is not None and now - contact > LOST_AFTER,
        is_stop_requested=run.is_stop_requested,
        cause=run.cause,
        cleanup=attempt.cleanup if attempt else {},
        latest_values=run.latest_values,
        attempt=run.latest_attempt,
        seq=run.seq,
        algorithm=run.spec.get("algorithm", ""),
        trainer=run.spec.get("trainer", {}).get("name", ""),
        model=run.spec.get("model", {}).get("id", ""),
        data=run.spec.get("data", {}).get("id", ""),
        num_cpus=attempt.num_cpus if attempt else 0.0,
        num_gpus=attempt.num_gpus if attempt else 0.0,
        tags=tuple(run.tags),
        note=run.note,
        color=run.color,
        author=run.created_by.get_username() if run.created_by else "",
        archived_at=_iso(run.archived_at),
    )


def _iso(at: datetime | None) -> str | None:
    return at.isoformat() if at else None
