"""Runs in numbers: how many in which state, how long the queue waits, and the newest values of those that matter now.

What has an entry of its own here becomes several dozen series in whatever scrapes it, so that only live runs, runs
that have just ended and waiting runs have one, and no more than `MOST_RUNS` of them.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, F, Min, Q, QuerySet
from django.db.models.fields.json import KT

from jobs.catalog.trainer import BUILT_IN
from jobs.models import ENDED, LIVE, Attempt, Run, RunEvent

RECENT = timedelta(minutes=15)  # how long a run that has ended is still shown: several scrapes, and a rule with `for`
MOST_RUNS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """One run as it is now; times are None until they come. `values`: metric name -> newest value of its driver."""

    id: str
    name: str
    project: str
    trainer: str
    algorithm: str
    state: str
    attempt: int
    step: int
    num_steps: int
    started_at: datetime | None
    ended_at: datetime | None
    last_contact_at: datetime | None
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownRuns:
    """The runs with an entry of their own, and how many of those that matter now have none."""

    runs: tuple[RunFacts, ...]
    num_left_out: int


def run_counts(projects: Collection[int] | None = None) -> dict[tuple[str, str], int]:
    """Return how many runs there are by project (its slug) and state; `projects`: only of these, None: of all."""
    rows = _of(projects).values_list("project__slug", "state").annotate(num=Count("pk")).order_by()
    return {(project, state): num for project, state, num in rows}


def oldest_waits(projects: Collection[int] | None = None, *, now: datetime) -> dict[str, float]:
    """Return for each project with a waiting run how many seconds the one that came first has waited.

    A retry whose time has not come does not wait for the cluster, and is left out.
    """
    waiting = Attempt.objects.filter(Q(not_before=None) | Q(not_before__lte=now), state="queued", run__state="queued")
    if projects is not None:
        waiting = waiting.filter(run__project__in=projects)
    rows = waiting.values_list("run__project__slug").annotate(first=Min("created_at")).order_by()
    return {project: max(0.0, (now - first).total_seconds()) for project, first in rows}


def shown_runs(
    projects: Collection[int] | None = None, *, names: Collection[str], now: datetime, most: int = MOST_RUNS
) -> ShownRuns:
    """Return the runs that matter now, live ones first, then those that ended last, then those that wait.

    `names`: the metrics of which the newest value is wanted.
    """
    ended = RunEvent.objects.filter(at__gt=now - RECENT, verb__in=ENDED).values("run_id")
    of_kinds = (
        _of(projects).filter(state__in=LIVE).order_by("-created_at"),
        _of(projects).filter(pk__in=ended, state__in=ENDED, ended_at__gt=now - RECENT).order_by("-ended_at"),
        _of(projects).filter(state="queued").order_by("created_at"),
    )
    ids = [run_id for kind in of_kinds for run_id in kind.values_list("pk", flat=True)]
    by_id = {row["id"]: row for row in Run.objects.filter(pk__in=ids[:most]).annotate(**_OF_SPEC).values(*_FIELDS)}
    contacts = dict(
        Attempt.objects.filter(run__in=ids[:most], number=F("run__latest_attempt")).values_list(
            "run_id", "last_contact_at"
        )
    )
    shown = (_facts(by_id[run_id], contacts.get(run_id), names) for run_id in ids[:most] if run_id in by_id)
    return ShownRuns(runs=tuple(shown), num_left_out=max(0, len(ids) - most))


_OF_SPEC = {"trainer": KT("spec__trainer__name"), "algorithm": KT("spec__algorithm")}
_FIELDS = (
    "id",
    "name",
    "project__slug",
    "trainer",
    "algorithm",
    "state",
    "latest_attempt",
    "step",
    "num_steps",
    "started_at",
    "ended_at",
    "latest_values",
)


def _of(projects: Collection[int] | None) -> QuerySet[Run]:
    runs = Run.objects.filter(archived_at=None)
    return runs if projects is None else runs.filter(project__in=projects)


def _facts(row: Mapping[str, Any], last_contact_at: datetime | None, names: Collection[str]) -> RunFacts:
    values = {name: row["latest_values"].get(name) for name in names}
    return RunFacts(
        id=row["id"],
        name=row["name"],
        project=row["project__slug"],
        trainer=row["trainer"] or BUILT_IN,
        algorithm=row["algorithm"] or "",
        state=row["state"],
        attempt=row["latest_attempt"],
        step=row["step"],
        num_steps=row["num_steps"],
        started_at=row["started_at"],
        ended_at=row["ended_at"],
        last_contact_at=last_contact_at if row["state"] in LIVE else None,
        values={name: float(value) for name, value in values.items() if value is not None},  # "NaN" is one, too
    )
