"""The card of a run that died of memory: held against its plan, with a clone that would have fitted."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import URLPattern, path
from django.views.decorators.http import require_GET

from console.budget import expensive
from console.labels.post_mortem import change_sentence, post_mortem_sentences
from console.views.run.files import visible_run
from console.views.run.symptoms import clone_url
from jobs.accounts.access import allows
from jobs.cluster.ray_api import cluster_state
from jobs.planning.policy_model import PlanRefused
from jobs.planning.post_mortem import post_mortem


@require_GET
@expensive
def post_mortem_card(request: HttpRequest, run_id: str) -> HttpResponse:
    """Show what the run died of; nothing for one that did not die of memory, or has no plan."""
    run, role = visible_run(request, run_id)
    try:
        report = post_mortem(run, user=request.user, state=cluster_state())
    except PlanRefused:
        report = None
    if report is None:
        return HttpResponse("")
    context = {
        "sentences": post_mortem_sentences(report),
        "change": change_sentence(report),
        "clone": clone_url(run, report.remedy.changes) if report.remedy and allows(role, "editor") else "",
    }
    return render(request, "run/post_mortem.html", context)


urlpatterns: list[URLPattern] = [
    path("runs/<run_id:run_id>/post-mortem", post_mortem_card, name="run-post-mortem"),
]
