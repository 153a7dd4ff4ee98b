"""The cluster as the Cluster page shows it: what Ray says there is, who holds what, and the queue with its reasons."""

import dataclasses
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Q
from django.utils import timezone

from jobs.accounts.access import User, projects_of
from jobs.cluster.ray_api import ClusterState, cluster_state
from jobs.models import ENDED, LIVE, Attempt, Run
from jobs.runs.admission import holders
from jobs.runs.header import RunHeader, run_headers
from jobs.runs.node_disks import NodeDisk, node_disks

OTHER_PROJECT = ""
_ORPHANS_FROM = timedelta(days=7)
_CLEANUP_TIME = timedelta(minutes=1)  # what a runner or the clean-up job takes to send its clean-up report
_MOST_ORPHANS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One run that holds or waits; `header` is None where the run is in a project that is not the viewer's."""

    header: RunHeader | None
    num_cpus: float
    num_gpus: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPage:
    """Ray's word, with what our runs hold of it; holders, the queue in its order, and disks of run directories."""

    state: ClusterState
    holders: tuple[Place, ...]
    queue: tuple[Place, ...]
    orphans: tuple["OrphanedRun", ...]
    disks: tuple[NodeDisk, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanedRun:
    """An ended run of which something is still there, or of which there is no clean-up report yet."""

    header: RunHeader
    num_processes: int
    device_bytes: int
    is_checked: bool
    unchecked: tuple[str, ...]  # nodes that gave no report: Ray, or they, were gone


def cluster_in_use() -> ClusterState:
    """Return what Ray says there is (at most two seconds old) and what our runs hold of it by our own accounting."""
    state = cluster_state()
    held = holders(device=state.device)
    return dataclasses.replace(state, cpus_used=sum(h.cpus for h in held), gpus_used=sum(h.gpus for h in held))


def cluster_page(user: User) -> ClusterPage:
    """Return the Cluster page for this person: others' projects show what they hold, not what it is."""
    own_projects = set(projects_of(user).values_list("pk", flat=True))
    runs = Run.objects.select_related("project", "created_by")
    live = list(runs.filter(state__in=LIVE).order_by("created_at"))
    queued = list(runs.filter(state="queued", attempts__state="queued").order_by("attempts__pk"))
    return ClusterPage(
        state=cluster_in_use(),
        holders=_places(live, own_projects),
        queue=_places(queued, own_projects),
        orphans=_orphans(own_projects, now=timezone.now()),
        disks=node_disks(own_projects, now=timezone.now()),
    )


def _orphans(own_projects: set[int], *, now: datetime) -> tuple[OrphanedRun, ...]:
    """Return what ended runs left: counted by their runner or by the clean-up job, or not counted for over a minute."""
    ended = Attempt.objects.filter(
        state__in=ENDED, submitted_at__isnull=False, ended_at__gt=now - _ORPHANS_FROM, run__project__in=own_projects
    )
    unchecked = Q(cleanup={}, ended_at__lt=now - _CLEANUP_TIME)
    left = Q(cleanup__processes_left__gt=0) | Q(cleanup__device_bytes_left__gt=0)
    rows = ended.filter(unchecked | left | Q(cleanup__has_key="nodes_unchecked"))
    attempts = list(rows.select_related("run__project", "run__created_by").order_by("-ended_at")[:_MOST_ORPHANS])
    headers = run_headers([attempt.run for attempt in attempts])
    return tuple(
        OrphanedRun(
            header=header,
            num_processes=int(attempt.cleanup.get("processes_left") or 0),
            device_bytes=int(attempt.cleanup.get("device_bytes_left") or 0),
            is_checked=bool(attempt.cleanup),
            unchecked=tuple(str(name) for name in attempt.cleanup.get("nodes_unchecked") or ()),
        )
        for attempt, header in zip(attempts, headers, strict=True)
    )


def _places(runs: list[Run], own_projects: set[int]) -> tuple[Place, ...]:
    return tuple(
        Place(
            header=header if run.project_id in own_projects else None,
            num_cpus=header.num_cpus,
            num_gpus=header.num_gpus,
            reason=header.wait_reason if run.project_id in own_projects else OTHER_PROJECT,
        )
        for run, header in zip(runs, run_headers(runs), strict=True)
    )
