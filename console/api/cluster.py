"""The cluster: what there is, who holds it, who waits and why."""

from django.http import HttpRequest
from ninja import Router

from console.api.problem import REFUSALS
from jobs.runs.cluster_use import ClusterPage, cluster_page

router = Router(tags=["cluster"])


@router.get("", response={200: ClusterPage, **REFUSALS}, summary="The cluster and its queue")
def read_cluster(request: HttpRequest) -> ClusterPage:
    """Return nodes, holders and queue; runs of others' projects show what they hold, not what they are."""
    return cluster_page(request.user)
