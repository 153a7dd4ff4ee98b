"""The run list: find runs and act on them."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from django.http import Http404, HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.shortcuts import render
from django.urls import path, reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_POST

from console.budget import expensive
from console.downloads.csv_response import csv_answer
from console.downloads.kept import keep_download
from console.views.frame import current_project, person
from console.views.run.labels import hint
from console.views.runs.columns import DEFAULT, RunCell, RunColumn, cells, choices, chosen
from jobs.accounts.access import require, role
from jobs.catalog.knob import knobs
from jobs.models import ENDED, Project, Run, SavedView, TrashItem
from jobs.runs.annotate import ChangeRefused, annotate_run
from jobs.runs.filter import VIEWS, FilterInvalid, RunFilter, view_filter
from jobs.runs.find.language import MAX_CHARS
from jobs.runs.find.saved import may_change, views_of
from jobs.runs.queries import RunRow, RunsPage, rows_by_id, runs_csv, runs_list, view_counts
from jobs.runs.sparklines import sparklines

DEFAULT_SORT = "-started"
MAX_IDS = 500
_SPARK_WIDTH, _SPARK_HEIGHT = 84, 20


@dataclass(frozen=True, slots=True, kw_only=True)
class RunListRow:
    """A row as the template draws it. `spark` holds SVG points in a box of 84 by 20, "" without a series."""

    row: RunRow
    cells: list[RunCell]
    hint: str
    is_bad: bool
    spark: str
    is_ended: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnHead:
    """A column's head: how it sorts now (`aria`, `arrow`), and the address that sorts by it, "" where none does."""

    column: RunColumn
    aria: str
    arrow: str
    query: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsQuery:
    """What the address asks for."""

    view: str
    text: str
    sort: str
    page: int
    columns: list[RunColumn]
    saved: SavedView | None = None  # the view that this came from

    @property
    def column_keys(self) -> str:
        """The columns as the address names them."""
        return ",".join(column.key for column in self.columns)

    def query(self, **changes: Any) -> str:
        """Return the address's query with changes, without what is the default anyway."""
        values = {
            "view": self.view,
            "q": self.text,
            "sort": self.sort,
            "page": self.page,
            "c": self.column_keys,
        } | changes
        defaults = {"view": "all", "q": "", "sort": DEFAULT_SORT, "page": 1, "c": ",".join(DEFAULT)}
        return urlencode({k: v for k, v in values.items() if v != defaults[k]})


def read_request(request: HttpRequest, project: Project) -> RunsQuery:
    """Return what the address asks for; what it gets wrong but nobody typed falls back to the default.

    `saved` names a view of the project; what else the address says goes before what that view says.
    """
    get = request.GET
    keys = [key for part in get.getlist("c") for key in part.split(",") if key]
    page, number = get.get("page", "1"), get.get("saved", "")
    saved = None
    if number.isdecimal() and len(number) < 18:
        saved = SavedView.objects.filter(project=project, pk=int(number)).first()
    view = get.get("view", saved.view if saved else "all")
    return RunsQuery(
        view=view if view in VIEWS else "all",
        text=get.get("q", saved.query if saved else "").strip()[: MAX_CHARS + 1],
        sort=get.get("sort", saved.sort if saved else DEFAULT_SORT),
        page=int(page) if page.isdecimal() and len(page) < 8 else 1,
        columns=chosen(keys or (saved.columns if saved else [])),
        saved=saved,
    )


@require_GET
def runs(request: HttpRequest) -> HttpResponse:
    """Show the list, or only its results where htmx asks for them."""
    project = project_of(request)
    runs_query = read_request(request, project)
    is_editor = role(request.user, project) in ("editor", "admin")
    context: dict[str, object] = {
        "asked": runs_query,
        "can_edit": is_editor,
        "problem": None,
        "num_trashed": TrashItem.objects.filter(project=project).count(),
    }
    try:
        page = _page(project, request.user, runs_query)
        context |= {"page": page, "lines": lines(page.rows, runs_query.columns, now=timezone.now())}
        context |= _paging(page, runs_query)
    except FilterInvalid as error:
        context["problem"] = _problem(error, runs_query.text)
    context |= _views(project, request.user, runs_query, is_editor=is_editor)
    context |= {"heads": _heads(runs_query), "choices": choices(), "chosen": {c.key for c in runs_query.columns}}
    if request.headers.get("HX-Request") and not request.headers.get("HX-History-Restore-Request"):
        answer = render(request, "runs/results.html", context | {"is_partial": True})
        query = runs_query.query()
        answer["HX-Push-Url"] = reverse("runs") + (f"?{query}" if query else "")
        return answer
    return render(request, "runs/runs.html", context)


@require_GET
def run_rows(request: HttpRequest) -> HttpResponse:
    """Give single rows again, for what changes while one looks."""
    project = project_of(request)
    query = read_request(request, project)
    ids = request.GET.get("ids", "").split(",")[:MAX_IDS]
    rows = rows_by_id(project, ids, columns=_knob_keys(query.columns))
    context = {"lines": lines(rows, query.columns, now=timezone.now()), "asked": query}
    context["can_edit"] = role(request.user, project) in ("editor", "admin")
    return render(request, "runs/rows.html", context)


@require_GET
@expensive
def runs_as_csv(request: HttpRequest) -> HttpResponse | StreamingHttpResponse:
    """Give every run that the filter leaves, or those named, as CSV."""
    project = project_of(request)
    query = read_request(request, project)
    ids = [run_id for run_id in request.GET.get("ids", "").split(",") if run_id][:MAX_IDS]
    try:
        filters = RunFilter(ids=tuple(ids)) if ids else filter_of(request.user, query)
        answer = csv_answer(runs_csv(project, filters, query.sort), name=f"runs-{project.slug}.csv")
    except FilterInvalid as error:
        return HttpResponse(str(error), status=422, content_type="text/plain; charset=utf-8")
    keep_download(request, "project", project.slug, f"runs-{project.slug}.csv")
    return answer


@require_POST
def edit_run(request: HttpRequest, run_id: str) -> JsonResponse:
    """Rename a run, set its tags and note; answers the fields as they were, for Undo, or what is wrong with them."""
    project = project_of(request)
    require(request.user, project, "editor")
    run = Run.objects.filter(project=project, pk=run_id, trashed_at=None).first()
    if run is None:
        raise Http404
    before = {"name": run.name, "tags": " ".join(run.tags), "note": run.note}
    changes = {
        "name": request.POST.get("name", run.name),
        "tags": request.POST.get("tags", before["tags"]).replace(",", " ").split(),
        "note": request.POST.get("note", run.note),
    }
    try:
        annotate_run(run_id=run_id, changes=changes, user=person(request), now=timezone.now())
    except ChangeRefused as error:
        return JsonResponse({"field": error.field, "message": str(error)}, status=422)
    return JsonResponse({"before": before})


def lines(rows: Iterable[RunRow], columns: list[RunColumn], *, now: datetime) -> list[RunListRow]:
    """Return the rows as the template draws them."""
    listed = list(rows)
    headers = [row.header for row in listed] if any(column.kind == "metric" for column in columns) else []
    drawn = sparklines(headers, width=_SPARK_WIDTH, height=_SPARK_HEIGHT)
    return [
        RunListRow(
            row=row,
            cells=cells(row, columns),
            hint=hint(row.header, now=now),
            is_bad=row.header.state == "failed",
            spark=drawn.get(row.header.id, ""),
            is_ended=row.header.state in ENDED,
        )
        for row in listed
    ]


def project_of(request: HttpRequest) -> Project:
    """Return the project that is chosen, if the person may look. Raises: Http404."""
    project = current_project(request)
    if project is None:
        raise Http404
    require(request.user, project, "viewer")
    return project


def filter_of(user: Any, query: RunsQuery) -> RunFilter:
    """Return the filter that the address asks for. Raises: FilterInvalid."""
    return view_filter(query.text, view=query.view, username=user.get_username())


def _page(project: Project, user: Any, query: RunsQuery) -> RunsPage:
    return runs_list(project, filter_of(user, query), query.sort, query.page, columns=_knob_keys(query.columns))


def _knob_keys(columns: list[RunColumn]) -> list[str]:
    return [column.key for column in columns if column.key in knobs()]


def _problem(error: FilterInvalid, text: str) -> dict[str, object]:
    """Return what is wrong, and the filter around the piece that is."""
    is_placed = error.end > error.start
    parts = (text[: error.start], text[error.start : error.end], text[error.end :]) if is_placed else ()
    return {"message": str(error), "parts": parts, "start": error.start, "end": error.end}


def _views(project: Project, user: Any, query: RunsQuery, *, is_editor: bool) -> dict[str, object]:
    labels = {
        "all": _("All"),
        "running": _("Running now"),
        "failed": _("Failed"),
        "mine": _("Mine"),
        "archived": _("Archived"),
    }
    counts = view_counts(project, user)
    saved = [(one, may_change(user, one, is_editor=is_editor)) for one in views_of(project, user)]
    return {
        "view_counts": [
            {"key": key, "label": labels[key], "count": counts[key], "query": query.query(view=key, page=1)}
            for key in VIEWS
        ],
        "shared_views": [(one, may) for one, may in saved if one.owner_id is None],
        "own_views": [(one, may) for one, may in saved if one.owner_id is not None],
    }


def _paging(page: RunsPage, query: RunsQuery) -> dict[str, object]:
    first = (page.page - 1) * page.page_size + 1
    return {
        "first": first,
        "last": first + len(page.rows) - 1,
        "newer_query": query.query(page=page.page - 1) if page.page > 1 else None,
        "older_query": query.query(page=page.page + 1) if page.page < page.num_pages or not page.is_counted else None,
        "name_query": query.query(sort="-name" if query.sort == "name" else "name", page=1),
        "plain_query": query.query(c=",".join(DEFAULT)),
    }


def _heads(query: RunsQuery) -> list[ColumnHead]:
    """Return each column with its sort state and the address that sorts by it."""
    key, is_down = query.sort.removeprefix("-"), query.sort.startswith("-")
    heads = []
    for column in query.columns:
        is_sorted = bool(column.sort) and column.sort == key
        next_sort = column.sort if is_sorted and is_down else f"-{column.sort}"
        heads.append(
            ColumnHead(
                column=column,
                aria=("descending" if is_down else "ascending") if is_sorted else "none",
                arrow=("arrow-down" if is_down else "arrow-up") if is_sorted else "",
                query=query.query(sort=next_sort, page=1) if column.sort else "",
            )
        )
    return heads


urlpatterns = [
    path("runs", runs, name="runs"),
    path("runs.csv", runs_as_csv, name="runs-csv"),
    path("runs/rows", run_rows, name="run-rows"),
    path("runs/<str:run_id>/edit", edit_run, name="edit-run"),
]
