"""The cluster as the Cluster page shows it: what Ray says there is, who holds what, and the queue with its reasons."""

import dataclasses
from dataclasses import dataclass

from jobs.access import User, projects_of
from jobs.admission import holders
from jobs.cluster import ClusterState, cluster_state
from jobs.header import RunHeader, run_headers
from jobs.models import LIVE, Run

ELSEWHERE = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One run that holds or waits; `header` is None where the run is in a project that is not the viewer's."""

    header: RunHeader | None
    num_cpus: float
    num_gpus: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPage:
    """Ray's word, with what our runs hold of it; holders, and the queue in its order."""

    state: ClusterState
    holders: tuple[Place, ...]
    queue: tuple[Place, ...]


def cluster_in_use() -> ClusterState:
    """Return what Ray says there is (at most two seconds old) and what our runs hold of it by our own accounting."""
    state = cluster_state()
    held = holders(device=state.device)
    return dataclasses.replace(state, cpus_used=sum(h.cpus for h in held), gpus_used=sum(h.gpus for h in held))


def cluster_page(user: User) -> ClusterPage:
    """Return the Cluster page for this person: others' projects show what they hold, not what it is."""
    mine = set(projects_of(user).values_list("pk", flat=True))
    runs = Run.objects.select_related("project", "created_by")
    live = list(runs.filter(state__in=LIVE).order_by("created_at"))
    queued = list(runs.filter(state="queued", attempts__state="queued").order_by("attempts__pk"))
    return ClusterPage(state=cluster_in_use(), holders=_places(live, mine), queue=_places(queued, mine))


def _places(runs: list[Run], mine: set[int]) -> tuple[Place, ...]:
    return tuple(
        Place(
            header=header if run.project_id in mine else None,
            num_cpus=header.num_cpus,
            num_gpus=header.num_gpus,
            reason=header.wait_reason if run.project_id in mine else ELSEWHERE,
        )
        for run, header in zip(runs, run_headers(runs), strict=True)
    )
