"""The cluster: what there is, who holds it, who waits and why; what fills the console, and when it is full."""

from django.http import HttpRequest
from django.utils import timezone
from ninja import Router

from console.api.problem import REFUSALS
from jobs.accounts.access import projects_seen
from jobs.runs.cluster_use import ClusterPage, cluster_page
from jobs.storage.forecast import StorageState, storage_state

router = Router(tags=["cluster"])


@router.get("", response={200: ClusterPage, **REFUSALS}, summary="The cluster and its queue")
def read_cluster(request: HttpRequest) -> ClusterPage:
    """Return nodes, holders and queue; runs of others' projects show what they hold, not what they are."""
    return cluster_page(request.user)


@router.get("/storage", response={200: StorageState, **REFUSALS}, summary="What fills, and when it is full")
def read_storage(request: HttpRequest) -> StorageState:
    """Return how full the console's disk, database and Redis are, by kind and by project; others' have no name."""
    return storage_state(seen=projects_seen(request.user), now=timezone.now())
