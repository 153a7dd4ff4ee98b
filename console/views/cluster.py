"""The cluster: does Ray answer, which nodes there are, who holds what, what waits and why, what was left behind."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import path
from django.utils import timezone
from django.views.decorators.http import require_GET

from console.labels.ingest import ingest_problem
from jobs.accounts.access import projects_seen
from jobs.runs.cluster_use import cluster_page
from jobs.storage.floor import low_disk
from jobs.storage.forecast import storage_state


@require_GET
def cluster(request: HttpRequest) -> HttpResponse:
    """Show the page; runs of other people's projects show what they hold, not what they are."""
    page = cluster_page(request.user)
    away = page.state.away_since
    context = {
        "page": page,
        "state": page.state,
        "ingest_problem": ingest_problem(),
        "storage": storage_state(seen=projects_seen(request.user), now=timezone.now()),
        "low_disk": low_disk(),
        "away_seconds": (timezone.now() - away).total_seconds() if away else None,
    }
    return render(request, "cluster/cluster.html", context)


urlpatterns = [path("cluster", cluster, name="cluster")]
