"""What pages and API read: frozen dataclasses, made with a fixed number of queries however many runs there are."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db.models import Count
from django.utils import timezone

from jobs.catalog.knob import knobs
from jobs.models import ARCHIVED, ENDED, LISTED, LIVE, Attempt, Project, Run, RunFact, RunLine
from jobs.runs.filter import RunFilter
from jobs.runs.find.index import catch_up
from jobs.runs.find.search import run_ids, search
from jobs.runs.find.terms import ANY_RUN
from jobs.runs.header import RunHeader, run_header, run_headers
from jobs.telemetry.csv_text import csv_cell, csv_line

__all__ = [
    "QueueSummary",
    "RunHeader",
    "RunsPage",
    "home",
    "matching_ids",
    "project_counts",
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
COUNTED = 2_000  # that a filter lets through; further ones are not counted, so that no filter takes long
MOST_CHOSEN = 10_000  # runs that "all that match" may mean


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """A line of the runs table: the header, and the values of the knobs query for."""

    header: RunHeader
    knobs: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsPage:
    """One page of runs. `total` counts all that pass the filter; where not `is_counted`, there are more of them.

    `num_pages` goes with it: there is at least one page more where the runs are not all counted.
    """

    rows: tuple[RunRow, ...]
    total: int
    is_counted: bool
    page: int
    num_pages: int
    page_size: int


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
    """Return one page of the project's runs. `columns` names knobs to show; `sort` may be any knob, metric or `tag:`
    with a tag, "-" first for descending; runs without the value come last either way.

    Raises: FilterInvalid if `sort` names nothing.
    """
    filters = filters or RunFilter()
    catch_up(project=project)
    query = search(project, filters, sort)
    size = min(max(page_size, 1), MAX_PAGE_SIZE)
    total = None if filters.ids or filters.term != ANY_RUN else _number(project, filters)
    if total is not None:
        page = min(max(page, 1), max(1, -(-total // size)))
        lines = query.lines(most=page * size)
    else:
        counted = max(COUNTED, page * size)
        lines = query.lines(most=counted + 1)
        total = len(lines) if len(lines) <= counted else None
    num_known = counted if total is None else total
    num_pages = max(1, -(-num_known // size))
    page = min(max(page, 1), num_pages)
    return RunsPage(
        rows=tuple(_rows(run_ids(lines[(page - 1) * size : page * size]), columns)),
        total=num_known,
        is_counted=total is not None,
        page=page,
        num_pages=num_pages,
        page_size=size,
    )


def matching_ids(project: Project, filters: RunFilter, sort: str = "-created", *, most: int = MOST_CHOSEN) -> list[str]:
    """Return the ids of all runs that pass, in order, or of the first so many. Raises: FilterInvalid."""
    catch_up(project=project)
    return run_ids(search(project, filters, sort).lines(most=most))


def project_counts(project: Project, *, is_archived: bool = False) -> tuple[dict[str, int], dict[str, int]]:
    """Return how many of the project's runs are in each state, and how many have each tag."""
    lines = RunLine.objects.filter(project=project, shelf=ARCHIVED if is_archived else LISTED)
    states = dict(lines.order_by().values_list("state").annotate(Count("pk")))
    tagged = RunFact.objects.filter(key__project=project, key__kind="tag", line__in=lines)
    tags = tagged.order_by("key__name").values_list("key__name").annotate(Count("line_id"))
    return states, dict(tags)


def rows_by_id(project: Project, ids: Sequence[str], *, columns: Sequence[str] = ()) -> list[RunRow]:
    """Return the lines of these runs, without those that are not the project's."""
    own_ids = set(Run.objects.filter(project=project, pk__in=ids, trashed_at=None).values_list("pk", flat=True))
    return _rows([pk for pk in ids if pk in own_ids], columns)


def view_counts(project: Project, user: AbstractBaseUser | AnonymousUser) -> dict[str, int]:
    """Return how many runs each list that every project has holds: all, running, failed, mine, archived."""
    lines = RunLine.objects.filter(project=project)
    by_state = dict(lines.filter(shelf=LISTED).order_by().values_list("state").annotate(Count("pk")))
    return {
        "all": sum(by_state.values()),
        "running": sum(by_state.get(state, 0) for state in LIVE),
        "failed": by_state.get("failed", 0),
        "mine": lines.filter(shelf=LISTED, author_id=user.pk).count() if user.pk else 0,
        "archived": lines.filter(shelf=ARCHIVED).count(),
    }


def runs_csv(project: Project, filters: RunFilter | None = None, sort: str = "-created") -> Iterator[str]:
    """Yield CSV lines of all runs that pass: what the header says, every knob, and every last metric.

    Text that a spreadsheet would run as a formula is defused with a leading apostrophe.
    """
    catch_up(project=project)
    lines = search(project, filters or RunFilter(), sort).lines(most=None)
    used: dict[str, set[str]] = {"knob": set(), "metric": set()}
    for start in range(0, len(lines), _AT_ONCE):
        keys = RunFact.objects.filter(line__in=lines[start : start + _AT_ONCE], key__kind__in=used)
        for kind, name in keys.order_by().values_list("key__kind", "key__name").distinct():
            used[kind].add(name)
    metrics = sorted(used["metric"])
    columns = [name for name in knobs() if name in used["knob"]]
    yield csv_line([*_CSV_FIELDS, *columns, *map(csv_cell, metrics)])  # a trainer may name a metric anything
    for start in range(0, len(lines), _AT_ONCE):
        for row in _rows(run_ids(lines[start : start + _AT_ONCE]), columns):
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


def _number(project: Project, filters: RunFilter) -> int:
    return RunLine.objects.filter(project=project, shelf=ARCHIVED if filters.is_archived else LISTED).count()


def _rows(ids: Sequence[str], columns: Sequence[str]) -> list[RunRow]:
    by_id = Run.objects.select_related("project", "created_by").in_bulk(list(ids))
    runs = [by_id[pk] for pk in ids if pk in by_id]
    return [
        RunRow(header=header, knobs={name: _knob_value(run, name) for name in columns})
        for run, header in zip(runs, run_headers(runs), strict=True)
    ]


def _knob_value(run: Run, name: str) -> Any:
    return run.spec.get("knobs", {}).get(name, {}).get("value")


_AT_ONCE = 200
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
