"""What waits in the trash of a project, as pages and API show it."""

from dataclasses import dataclass
from datetime import datetime

from jobs.accounts.access import User, role
from jobs.models import Project, Run, TrashItem
from jobs.retention.deletion import may_delete


class RunInTrash(Exception):
    """Somebody asks for a run that is in the trash. `item` is its entry there, None while it is not written yet."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.item = TrashItem.objects.select_related("project", "created_by").filter(kind="run", run_id=run.pk).first()
        super().__init__(run.pk)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrashEntry:
    """One thing in the trash. Bytes: `bytes_here` of the console, `bytes_cluster` on the cluster's nodes.

    `state`: waiting for the run to stop, kept until `purge_at`, purging (gone, but for what `problem` may say).
    `author` is who deleted it, "" for the project's retention (`is_by_rule`) or an account that is gone.
    """

    id: int
    kind: str
    run_id: str
    run_name: str
    capture_id: str
    num_things: int
    bytes_here: int
    bytes_cluster: int
    state: str
    is_by_rule: bool
    author: str
    created_at: datetime
    purge_at: datetime
    problem: str
    may_change: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TrashPage:
    """A page of the trash, the newest first; `total` entries and bytes are those of all pages."""

    entries: tuple[TrashEntry, ...]
    total: int
    page: int
    num_pages: int
    bytes_here: int
    bytes_cluster: int


PAGE_SIZE = 100


def trash_of(project: Project, user: User, *, page: int = 1) -> TrashPage:
    """Return a page of what is in the project's trash, with what this person may do with each."""
    rows = TrashItem.objects.filter(project=project)
    sizes = list(rows.values_list("bytes_here", "bytes_cluster"))
    num_pages = max(1, -(-len(sizes) // PAGE_SIZE))
    page = min(max(page, 1), num_pages)
    start = (page - 1) * PAGE_SIZE
    items = rows.select_related("created_by").order_by("-created_at", "-pk")[start : start + PAGE_SIZE]
    return TrashPage(
        entries=entries_of(list(items), project, user),
        total=len(sizes),
        page=page,
        num_pages=num_pages,
        bytes_here=sum(here for here, _ in sizes),
        bytes_cluster=sum(cluster for _, cluster in sizes),
    )


def entries_of(items: list[TrashItem], project: Project, user: User) -> tuple[TrashEntry, ...]:
    """Return items of one project as they are shown."""
    authors = dict(Run.objects.filter(pk__in=[item.run_id for item in items]).values_list("pk", "created_by_id"))
    is_admin = role(user, project) == "admin"
    return tuple(
        TrashEntry(
            id=item.pk,
            kind=item.kind,
            run_id=item.run_id,
            run_name=item.run_name,
            capture_id=item.capture_id,
            num_things=item.num_things,
            bytes_here=item.bytes_here,
            bytes_cluster=item.bytes_cluster,
            state=item.state,
            is_by_rule=item.is_by_rule,
            author=item.created_by.get_username() if item.created_by else "",
            created_at=item.created_at,
            purge_at=item.purge_at,
            problem=item.problem,
            may_change=is_admin or (not item.is_by_rule and may_delete(user, project, authors.get(item.run_id))),
        )
        for item in items
    )
