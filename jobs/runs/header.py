"""The header of a run: what pages, API and websocket say of it, as one frozen, JSON-able dataclass."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

from jobs.catalog.metric import with_former_names
from jobs.cluster import nodes as ran_on
from jobs.models import LIVE, Attempt, Run, Study
from jobs.runs import retry_policy as retry_rule
from jobs.runs.stored_sentences import say_cause, say_stored
from jobs.telemetry import eta, history

LOST_AFTER = timedelta(seconds=15)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptLine:
    """One start of the run: from which checkpoint, and up to which step it belongs to the run's one history.

    `resume_attempt` is None where it began from the start. Of its steps those up to `visible_through` count (None: all,
    -1: none); later ones are a dead branch. `is_automatic`: the retry policy started it, else the
    person `by`. `devices`: how many of which kind it took ("8 × H200"), "" where that is not known. `step` counts the
    run's completed steps at its end, `overrides` is what it changes of the run's spec.
    """

    number: int
    state: str
    resume_attempt: int | None
    resume_step: int
    visible_through: int | None
    is_automatic: bool
    by: str
    devices: str
    step: int
    overrides: Mapping[str, Any]
    cause: Mapping[str, Any]
    created_at: str
    started_at: str | None
    ended_at: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """What the policy does about a failure: attempt `number` of at most `most`, not before `at`; or `why_not`."""

    number: int
    most: int
    at: str | None
    why_not: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyName:
    """The sweep that a run belongs to."""

    id: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunHeader:
    """One run at a glance. Times are ISO 8601 in UTC; `eta_seconds` is (low, high).

    `queue_position` counts from 1 and is None outside the queue; `step` of `num_steps` counts completed steps; `seq` is
    the number of the newest frame; `is_lost_contact` says that a live run's runner has been silent for 15 s. `attempt`
    is the number of the latest of `attempts`; `retry` says whether a failed run starts again by itself, and when.
    `parent` is the id of the run that it is a clone of. `elapsed_seconds` is the time that its attempts ran.
    `capture_changes` grows whenever the list of its captures is to be read again.
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
    attempts: tuple[AttemptLine, ...]
    retry: Retry | None
    study: StudyName | None
    parent: str | None
    capture_changes: int
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
    attempts = list(_attempts([run]))
    times = eta.recent_times(run) if run.state == "running" else []
    places = queue_positions() if run.state == "queued" else {}
    return _header(run, attempts, _studies([run]), places, times, now or timezone.now())


def run_headers(runs: Sequence[Run], *, now: datetime | None = None) -> list[RunHeader]:
    """Return the headers of many runs with at most three queries; fetch them with project and created_by."""
    attempts: dict[str, list[Attempt]] = {run.pk: [] for run in runs}
    for attempt in _attempts(runs):
        attempts[attempt.run_id].append(attempt)
    places = queue_positions() if any(run.state == "queued" for run in runs) else {}
    studies = _studies(runs)
    at = now or timezone.now()
    return [_header(run, attempts[run.pk], studies, places, eta.latest_time(run), at) for run in runs]


def queue_positions() -> dict[str, int]:
    """Return run id -> place in the queue of the whole cluster, counted from 1."""
    queued = Attempt.objects.filter(state="queued").order_by("pk").values_list("run_id", flat=True)
    return {run_id: place for place, run_id in enumerate(queued, start=1)}


def _attempts(runs: Sequence[Run]) -> Iterable[Attempt]:
    rows = Attempt.objects.filter(run__in=[run.pk for run in runs])
    return rows.select_related("created_by").order_by("number")


def _retry(run: Run, attempts: Sequence[Attempt], now: datetime) -> Retry | None:
    latest = attempts[-1] if attempts else None
    if latest is not None and run.state == "queued" and latest.not_before is not None:
        most = retry_rule.most_attempts(run, attempts)
        return Retry(number=latest.number, most=most, at=latest.not_before.isoformat(), why_not="")
    decision = retry_rule.decide(run, attempts, now=now)
    return (
        Retry(number=decision.number, most=decision.most, at=_iso(decision.at), why_not=decision.why_not)
        if decision
        else None
    )


def _elapsed(attempts: Sequence[Attempt], now: datetime) -> float | None:
    ran = [((a.ended_at or now) - a.started_at).total_seconds() for a in attempts if a.started_at is not None]
    return sum(ran) if ran else None


def _studies(runs: Sequence[Run]) -> dict[str, StudyName]:
    ids = {run.study_id for run in runs if run.study_id}
    rows = Study.objects.filter(pk__in=ids).values_list("pk", "name") if ids else ()
    return {pk: StudyName(id=pk, name=name) for pk, name in rows}


def attempt_lines(attempts: Sequence[Attempt]) -> tuple[AttemptLine, ...]:
    """Return all attempts of a run, by number, with the part of each that its history shows."""
    through = history.limits(history.origins(attempts))
    return tuple(
        AttemptLine(
            number=a.number,
            state=a.state,
            resume_attempt=a.resume_attempt,
            resume_step=a.resume_step,
            visible_through=through[a.number],
            is_automatic=a.is_automatic,
            by=a.created_by.get_username() if a.created_by else "",
            devices=ran_on.devices_text(a),
            step=a.step,
            overrides=a.overrides,
            cause=say_cause(a.cause),
            created_at=a.created_at.isoformat(),
            started_at=_iso(a.started_at),
            ended_at=_iso(a.ended_at),
        )
        for a in attempts
    )


def _header(
    run: Run,
    attempts: Sequence[Attempt],
    studies: Mapping[str, StudyName],
    places: Mapping[str, int],
    times: list[float],
    now: datetime,
) -> RunHeader:
    attempt = next((a for a in attempts if a.number == run.latest_attempt), None)
    contact = attempt.last_contact_at if attempt else None
    is_lost = run.state in LIVE and contact is not None and now - contact > LOST_AFTER
    silence = (now - contact).total_seconds() if is_lost and contact is not None else 0.0
    return RunHeader(
        id=run.pk,
        name=run.name,
        project=run.project.slug,
        state=run.state,
        phase=run.phase,
        activity=say_stored(run.activity),
        wait_reason=say_stored(run.wait_reason),
        queue_position=places.get(run.pk) if run.state == "queued" else None,
        step=run.step,
        num_steps=run.num_steps,
        eta_seconds=eta.interval(run, times=times, silence=silence),
        elapsed_seconds=_elapsed(attempts, now),
        created_at=run.created_at.isoformat(),
        started_at=_iso(run.started_at),
        ended_at=_iso(run.ended_at),
        last_contact_at=_iso(contact),
        is_lost_contact=is_lost,
        is_stop_requested=run.is_stop_requested,
        cause=say_cause(run.cause),
        cleanup=attempt.cleanup if attempt else {},
        latest_values=with_former_names(run.latest_values),
        attempt=run.latest_attempt,
        attempts=attempt_lines(attempts),
        retry=_retry(run, attempts, now),
        study=studies.get(run.study_id or ""),
        parent=run.parent_id,
        capture_changes=run.capture_changes,
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
