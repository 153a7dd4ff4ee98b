"""What pages and API read: frozen dataclasses, made with a fixed number of queries however many runs there are."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db.models import Count, F, JSONField, OrderBy, Q, QuerySet
from django.db.models.fields.json import KeyTransform
from django.db.models.functions import Coalesce, Lower
from django.utils import timezone

from jobs.catalog.knob import knobs
from jobs.models import ENDED, LIVE, Attempt, Project, Run
from jobs.runs.filter import BY_ALGORITHM, RunFilter, check_sort, is_metric
from jobs.runs.header import RunHeader, run_header, run_headers
from jobs.telemetry.csv_text import csv_cell, csv_line

__all__ = [
    "QueueSummary",
    "RunHeader",
    "RunsPage",
    "home",
    "queue_summary",
    "rows_by_id",
    "run_header",
    "run_headers",
    "runs_csv",
    "runs_list",
    "view_counts",
]

PAGE_SIZE = 50
MAX_PAGE_SIZE = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """A line of the runs table: the header, and the values of the knobs asked for."""

    header: RunHeader
    knobs: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsPage:
    """One page of runs. `total` counts all that pass the filter; `states` and `tags` count the project's runs."""

    rows: tuple[RunRow, ...]
    total: int
    page: int
    num_pages: int
    page_size: int
    states: Mapping[str, int]
    tags: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSummary:
    """How many runs wait on the cluster, and since when the oldest does (ISO 8601, None if none waits)."""

    num_queued: int
    oldest_at: datetime | None

    @property
    def oldest(self) -> str:
        """How long the oldest has waited, in the largest unit that fits ("12 min"); "" if none waits."""
        if self.oldest_at is None:
            return ""
        seconds = max(0, int((timezone.now() - self.oldest_at).total_seconds()))
        for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
            if seconds >= size:
                return f"{seconds // size} {unit}"
        return f"{seconds} s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """What needs a look now: failed lately, lost contact, waiting; what runs; what ended last."""

    attention: tuple[RunHeader, ...]
    live: tuple[RunHeader, ...]
    queued: tuple[RunHeader, ...]
    recent: tuple[RunHeader, ...]
    num_runs: int


def runs_list(
    project: Project,
    filters: RunFilter | None = None,
    sort: str = "-created",
    page: int = 1,
    *,
    page_size: int = PAGE_SIZE,
    columns: Sequence[str] = (),
) -> RunsPage:
    """Return one page of the project's runs. `columns` names knobs to show; `sort` may be any knob or metric, "-" first
    for descending; runs without the value come last either way.

    Raises: FilterInvalid if `sort` names nothing.
    """
    filters = filters or RunFilter()
    project_runs = Run.objects.filter(project=project, trashed_at=None)
    ids = _matching(project_runs, filters, sort)
    size = min(max(page_size, 1), MAX_PAGE_SIZE)
    num_pages = max(1, math.ceil(len(ids) / size))
    page = min(max(page, 1), num_pages)
    rows = _rows(ids[(page - 1) * size : page * size], columns)
    shown = project_runs.filter(archived_at__isnull=not filters.is_archived)
    states = dict(shown.order_by().values_list("state").annotate(Count("pk")))
    tags: Counter[str] = Counter()
    for own_tags in shown.exclude(tags=[]).values_list("tags", flat=True):
        tags.update(own_tags)
    return RunsPage(
        rows=tuple(rows),
        total=len(ids),
        page=page,
        num_pages=num_pages,
        page_size=size,
        states=states,
        tags=dict(sorted(tags.items())),
    )


def rows_by_id(project: Project, ids: Sequence[str], *, columns: Sequence[str] = ()) -> list[RunRow]:
    """Return the lines of these runs, without those that are not the project's."""
    own_ids = set(Run.objects.filter(project=project, pk__in=ids, trashed_at=None).values_list("pk", flat=True))
    return _rows([pk for pk in ids if pk in own_ids], columns)


def view_counts(project: Project, user: AbstractBaseUser | AnonymousUser) -> dict[str, int]:
    """Return how many runs each saved filter of the list holds: all, running, failed, mine, archived."""
    shown = Q(archived_at=None)
    return Run.objects.filter(project=project, trashed_at=None).aggregate(
        all=Count("pk", filter=shown),
        running=Count("pk", filter=shown & Q(state__in=LIVE)),
        failed=Count("pk", filter=shown & Q(state="failed")),
        mine=Count("pk", filter=shown & Q(created_by_id=user.pk)),
        archived=Count("pk", filter=~shown),
    )


def runs_csv(project: Project, filters: RunFilter | None = None, sort: str = "-created") -> Iterator[str]:
    """Yield CSV lines of all runs that pass: what the header says, every knob, and every last metric.

    Text that a spreadsheet would run as a formula is defused with a leading apostrophe.
    """
    ids = _matching(Run.objects.filter(project=project, trashed_at=None), filters or RunFilter(), sort)
    runs = Run.objects.filter(pk__in=ids)
    metrics = sorted({name for values in runs.values_list("latest_values", flat=True) for name in values})
    used = {name for spec in runs.values_list("spec", flat=True) for name in spec.get("knobs", {})}
    columns = [name for name in knobs() if name in used]
    yield csv_line([*_CSV_FIELDS, *columns, *map(csv_cell, metrics)])  # a trainer may name a metric anything
    for start in range(0, len(ids), 200):
        for row in _rows(ids[start : start + 200], columns):
            fields = [csv_cell(getattr(row.header, name)) for name in _CSV_FIELDS]
            values = [csv_cell(row.knobs.get(name)) for name in columns]
            latest = [csv_cell(row.header.latest_values.get(name)) for name in metrics]
            yield csv_line([*fields, *values, *latest])


def home(project: Project, *, now: datetime | None = None) -> Home:
    """Return what the project's home page shows."""
    at = now or timezone.now()
    shown = Run.objects.filter(project=project, trashed_at=None)
    project_runs = shown.filter(archived_at=None).select_related("project", "created_by")
    live = run_headers(list(project_runs.filter(state__in=LIVE).order_by("-created_at")), now=at)
    queued = run_headers(list(project_runs.filter(state="queued").order_by("created_at")), now=at)
    recent = run_headers(list(project_runs.filter(state__in=ENDED).order_by("-ended_at")[:12]), now=at)
    yesterday = (at - timedelta(days=1)).isoformat()
    failed = [r for r in recent if r.state == "failed" and (r.ended_at or "") >= yesterday]
    lost = [r for r in live if r.is_lost_contact]
    return Home(
        attention=(*lost, *failed),
        live=tuple(live),
        queued=tuple(queued),
        recent=tuple(recent),
        num_runs=shown.count(),
    )


def queue_summary() -> QueueSummary:
    """Return how many runs wait on the whole cluster; names nobody, so that it may stand on every page."""
    waiting = Attempt.objects.filter(state="queued").order_by("pk").values_list("created_at", flat=True)
    oldest = waiting.first()
    return QueueSummary(num_queued=waiting.count(), oldest_at=oldest)


_IN_SQL: Mapping[str, Any] = {
    "created": F("created_at"),
    "started": Coalesce("started_at", "created_at"),
    "ended": F("ended_at"),
    "name": Lower("name"),
    "state": F("state"),
    "step": F("step"),
}
"""What the database sorts by itself: ten thousand rows need not be read to show fifty."""


def _matching(project_runs: QuerySet[Run], filters: RunFilter, sort: str) -> list[str]:
    """Return the ids that pass, in order. Only the columns that the filter and order need are read."""
    key = check_sort(sort)
    names = sorted({c.name for c in filters.comparisons} | _values_behind(key))
    rows = (
        project_runs.filter(pk__in=filters.ids)
        if filters.ids
        else project_runs.filter(archived_at__isnull=not filters.is_archived)
    )
    if filters.states:
        rows = rows.filter(state__in=filters.states)
    if filters.algorithms:
        rows = rows.filter(spec__algorithm__in=filters.algorithms)
    if filters.authors:
        rows = rows.filter(created_by__username__in=filters.authors)
    if filters.studies:
        rows = rows.filter(study__in=filters.studies)
    if key in _IN_SQL and not (filters.words or filters.comparisons or filters.tags or filters.without_tags):
        order = OrderBy(_IN_SQL[key], descending=sort.startswith("-"), nulls_last=True)
        return list(rows.order_by(order, "-created_at", "-pk").values_list("pk", flat=True))
    fields = ("pk", "name", "note", "tags", "state", "step", "created_at", "started_at", "ended_at")
    wanted: dict[str, object] = {f"value_{i}": _json_value(name) for i, name in enumerate(names)}
    wanted |= {"model": KeyTransform("id", KeyTransform("model", "spec")), "author": F("created_by__username")}
    wanted |= {"algorithm": KeyTransform("algorithm", "spec"), "data": KeyTransform("id", KeyTransform("data", "spec"))}
    passing = []
    for row in rows.annotate(**wanted).order_by("-created_at", "-pk").values(*fields, *wanted):
        values = {name: row[f"value_{i}"] for i, name in enumerate(names)}
        if _passes(row, values, filters):
            passing.append((_sort_value(_for_algorithm(key, row["algorithm"]), row, values), row["pk"]))
    if sort == "-created":
        return [pk for _value, pk in passing]
    with_value = [item for item in passing if item[0] is not None]
    with_value.sort(key=lambda item: item[0], reverse=sort.startswith("-"))
    return [pk for _value, pk in with_value] + [pk for value, pk in passing if value is None]


def _values_behind(key: str) -> set[str]:
    """Return the knobs and metrics that must be read to sort by `key`."""
    if key in BY_ALGORITHM:
        return set(BY_ALGORITHM[key].values())
    return {key} if is_metric(key) or key in knobs() else set()


def _for_algorithm(key: str, algorithm: str) -> str:
    return BY_ALGORITHM[key].get(algorithm, "") if key in BY_ALGORITHM else key


def _json_value(name: str) -> KeyTransform:
    if name in knobs():
        return KeyTransform("value", KeyTransform(name, KeyTransform("knobs", "spec")), output_field=JSONField())
    return KeyTransform(name, "latest_values", output_field=JSONField())


def _passes(row: Mapping[str, Any], values: Mapping[str, Any], filters: RunFilter) -> bool:
    if not set(filters.tags) <= set(row["tags"]) or set(filters.without_tags) & set(row["tags"]):
        return False
    if not all(c.holds(values[c.name]) for c in filters.comparisons):
        return False
    parts = [row["pk"], row["name"], row["note"], row["model"], row["author"], *row["tags"]]
    text = "\n".join(str(part) for part in parts if part).lower()
    return all(word in text for word in filters.words)


def _sort_value(key: str, row: Mapping[str, Any], values: Mapping[str, Any]) -> Any:
    if key in values:
        value = values[key]
        if isinstance(value, bool):
            return (0, float(value), "")
        if isinstance(value, (int, float)):
            return None if math.isnan(value) else (0, float(value), "")
        return (1, 0.0, value) if isinstance(value, str) and not is_metric(key) else None
    if key == "duration":
        started, ended = row["started_at"], row["ended_at"] or timezone.now()
        return (ended - started).total_seconds() if started else None
    if key in ("name", "model", "data", "author"):
        return (row[key] or "").lower()
    if not key:
        return None
    if key == "started":
        return row["started_at"] or row["created_at"]  # what waits was asked for last, so it stands with the newest
    return row[{"created": "created_at", "ended": "ended_at"}.get(key, key)]


def _rows(ids: Sequence[str], columns: Sequence[str]) -> list[RunRow]:
    by_id = Run.objects.select_related("project", "created_by").in_bulk(list(ids))
    runs = [by_id[pk] for pk in ids if pk in by_id]
    return [
        RunRow(header=header, knobs={name: _knob_value(run, name) for name in columns})
        for run, header in zip(runs, run_headers(runs), strict=True)
    ]


def _knob_value(run: Run, name: str) -> Any:
    return run.spec.get("knobs", {}).get(name, {}).get("value")


_CSV_FIELDS = (
    "id",
    "name",
    "state",
    "algorithm",
    "model",
    "data",
    "step",
    "num_steps",
    "created_at",
    "started_at",
    "ended_at",
    "elapsed_seconds",
    "author",
    "tags",
    "note",
)
