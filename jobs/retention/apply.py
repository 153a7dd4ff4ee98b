"""Let go what a project's rules no longer keep: listed by a dry run, and put into the trash once a day.

Both ask `going_of`, run by run. The reconciler works through the runs of a project some at a time and notes how far it
is, so that a restart goes on there. Nothing of a live or queued run goes, and what others start from stays.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Literal

from django.db import transaction
from django.db.models import Count, Q, QuerySet, Sum

from jobs.accounts.audit import record
from jobs.models import ENDED, Artifact, Capture, LogChunk, Project, Retention, Run, RunEvent, Sample, TrashItem
from jobs.retention.deletion import mark_checkpoints, trash_days
from jobs.retention.dependents import dependents_of
from jobs.retention.policy import RetentionRule, Rules, expendable, parse_rules
from jobs.retention.sizes import capture_bytes
from jobs.runs.checkpoints import list_checkpoints
from jobs.storage.usage import LOG_BYTES, SAMPLE_BYTES
from jobs.telemetry.notify import run_changed
from jobs.telemetry.trashed import hidden_through
from profiling.captures.capture import OPEN

EVERY = timedelta(days=1)
RUNS_AT_ONCE = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Going:
    """What of a run goes: `num_things` log lines, samples, files of a capture, or checkpoints; bytes here and there."""

    kind: Literal["logs", "samples", "capture", "checkpoints"]
    run_id: str
    run_name: str
    num_things: int
    bytes_here: int = 0
    bytes_cluster: int = 0
    through_attempt: int = 0
    capture_id: str = ""
    artifact_ids: tuple[int, ...] = ()


def preview(project: Project, rules: Rules, *, now: datetime) -> Iterator[Going]:
    """Yield what these rules would let go now, run by run, the oldest first; nothing changes."""
    spared = _newest(project, rules)
    for run in _candidates(project).order_by("ended_at", "pk"):
        yield from going_of(run, rules, spared=spared, now=now)


def apply_step(*, now: datetime) -> None:
    """Go on with one project whose daily round is due or under way, for some of its runs."""
    due = Q(applied_at=None) | Q(applied_at__lte=now - EVERY)
    row = Retention.objects.select_related("project").exclude(rules={}).filter(due | ~Q(cursor="")).first()
    if row is None:
        return
    rules = parse_rules(row.rules)
    if not row.cursor:
        Retention.objects.filter(pk=row.pk).update(applied_at=now)
    spared = _newest(row.project, rules)
    runs = list(_candidates(row.project).filter(pk__gt=row.cursor).order_by("pk")[:RUNS_AT_ONCE])
    for run in runs:
        _let_go(run.pk, rules, spared=spared, now=now)
    cursor = runs[-1].pk if len(runs) == RUNS_AT_ONCE else ""
    Retention.objects.filter(pk=row.pk).update(cursor=cursor)


def going_of(run: Run, rules: Rules, *, spared: dict[str, set[str]], now: datetime) -> Iterator[Going]:
    """Yield what of an ended run the rules let go. `spared`: kind -> the newest runs, whose logs or samples stay."""
    about: dict[str, Any] = {"run_id": run.pk, "run_name": run.name}
    kinds: tuple[tuple[Literal["logs", "samples"], QuerySet[Any], Any, Any], ...] = (
        ("logs", LogChunk.objects.filter(run=run), Sum("num_lines"), LOG_BYTES),
        ("samples", Sample.objects.filter(run=run), Count("pk"), SAMPLE_BYTES),
    )
    for kind, rows, count, length in kinds:
        rule = rules.get(kind)
        if rule is None or run.pk in spared[kind] or not _is_old(run.ended_at, rule, now):
            continue
        shown = rows.filter(attempt__gt=hidden_through(run.pk, kind))
        if num := shown.aggregate(n=count)["n"]:
            taken = shown.aggregate(n=Sum(length))["n"] or 0
            yield Going(**about, kind=kind, num_things=num, bytes_here=taken, through_attempt=run.latest_attempt)
    if (rule := rules.get("captures")) is not None:
        yield from _captures(run, rule, now)
    if (rule := rules.get("checkpoints")) is not None:
        yield from _checkpoints(run, rule, now)


def _captures(run: Run, rule: RetentionRule, now: datetime) -> Iterator[Going]:
    rows = run.captures.exclude(state__in=OPEN).order_by("-created_at", "-pk")
    for capture in rows[rule.keep_last :]:
        if _is_old(capture.ended_at or capture.created_at, rule, now):
            yield Going(
                kind="capture",
                run_id=run.pk,
                run_name=run.name,
                num_things=capture.files.count(),
                bytes_here=capture_bytes(capture),
                capture_id=capture.pk,
            )


def _checkpoints(run: Run, rule: RetentionRule, now: datetime) -> Iterator[Going]:
    there = list_checkpoints(run)
    gone = {(c.attempt, c.step) for c in expendable(there, rule, now=now)}
    if not gone or dependents_of([run.pk])[run.pk]:
        return
    rows = Artifact.objects.filter(run=run, type="checkpoint", attempt__in={attempt for attempt, _ in gone})
    going = [row for row in rows.order_by("pk") if (row.attempt, row.step) in gone and not row.meta.get("removed")]
    yield Going(
        kind="checkpoints",
        run_id=run.pk,
        run_name=run.name,
        num_things=len(going),
        bytes_cluster=sum(row.size for row in going),
        artifact_ids=tuple(row.pk for row in going),
    )


def _let_go(run_id: str, rules: Rules, *, spared: dict[str, set[str]], now: datetime) -> None:
    """Put what goes of one run into the trash, in one transaction, as the run is now."""
    with transaction.atomic():
        run = Run.objects.select_for_update(of=("self",)).select_related("project").filter(pk=run_id).first()
        if run is None or run.state not in ENDED or run.trashed_at is not None:
            return
        going = list(going_of(run, rules, spared=spared, now=now))
        if not going:
            return
        purge_at = now + timedelta(days=trash_days(run.project))
        for each in going:
            _put(run, each, now, purge_at)
        words = ", ".join(f"{each.num_things} of {each.kind}" for each in going)
        text = f"The project's retention put into the trash: {words}"
        about = {"attempt": run.latest_attempt, "at": now, "verb": "retention", "text": text[:500]}
        RunEvent.objects.create(run=run, **about)
        after = [{"kind": each.kind, "bytes": each.bytes_here + each.bytes_cluster} for each in going]
        record(actor=None, verb="retention.apply", object_type="run", object_id=run.pk, after=after)
        transaction.on_commit(partial(run_changed, run.pk))


def _put(run: Run, going: Going, now: datetime, purge_at: datetime) -> None:
    """Make the entry in the trash and hide what it stands for; an entry of logs or samples hides them by itself."""
    TrashItem.objects.create(
        project=run.project,
        kind=going.kind,
        run_id=run.pk,
        run_name=run.name,
        through_attempt=going.through_attempt,
        capture_id=going.capture_id,
        artifact_ids=list(going.artifact_ids),
        num_things=going.num_things,
        bytes_here=going.bytes_here,
        bytes_cluster=going.bytes_cluster,
        is_by_rule=True,
        created_at=now,
        purge_at=purge_at,
    )
    if going.capture_id:
        Capture.objects.filter(pk=going.capture_id).update(trashed_at=now)
    if going.artifact_ids:
        mark_checkpoints(going.artifact_ids, is_trashed=True)


def _candidates(project: Project) -> QuerySet[Run]:
    return Run.objects.filter(project=project, state__in=ENDED, trashed_at=None)


def _newest(project: Project, rules: Rules) -> dict[str, set[str]]:
    """Return, for logs and samples, the ids of the newest runs that keep theirs."""
    newest = Run.objects.filter(project=project, trashed_at=None).order_by("-created_at", "-pk")
    spared = {}
    for kind, rule in (("logs", rules.get("logs")), ("samples", rules.get("samples"))):
        spared[kind] = set(newest.values_list("pk", flat=True)[: rule.keep_last]) if rule and rule.keep_last else set()
    return spared


def _is_old(at: datetime | None, rule: RetentionRule, now: datetime) -> bool:
    return at is not None and (rule.days is None or at < now - timedelta(days=rule.days))
