"""Verbs on many runs of the list, all that a filter leaves among them."""

from dataclasses import asdict

from django.http import HttpRequest, JsonResponse
from django.urls import path
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.http import require_GET, require_POST

from console.budget import expensive
from console.views.frame import person
from console.views.runs.page import filter_of, project_of, read_request
from jobs.accounts.access import require
from jobs.models import LIVE, Run
from jobs.retention.bulk import AT_ONCE, VERBS, change_runs
from jobs.runs.filter import FilterInvalid
from jobs.runs.queries import MOST_CHOSEN, matching_ids


@require_GET
@expensive
def run_ids(request: HttpRequest) -> JsonResponse:
    """Give the ids of all runs that the filter leaves, in order, and how many of them are live or wait."""
    project = project_of(request)
    query = read_request(request, project)
    try:
        ids = matching_ids(project, filter_of(request.user, query), query.sort, most=MOST_CHOSEN + 1)
    except FilterInvalid as error:
        return JsonResponse({"problem": str(error)}, status=422)
    live = Run.objects.filter(project=project, state__in=("queued", *LIVE)).values_list("pk", flat=True)
    chosen = ids[:MOST_CHOSEN]
    return JsonResponse({"ids": chosen, "live": sorted(set(live) & set(chosen)), "is_all": len(ids) <= MOST_CHOSEN})


@require_POST
def change(request: HttpRequest) -> JsonResponse:
    """Tag, untag, archive, restore, stop, delete or take back many runs; say which were changed, which refused, why."""
    project = project_of(request)
    require(request.user, project, "editor")
    verb = request.POST.get("verb", "")
    if verb not in VERBS:
        message = _("There is no action “%(verb)s”. Use one of %(verbs)s.")
        return JsonResponse({"problem": message % {"verb": verb[:40], "verbs": ", ".join(VERBS)}}, status=422)
    ids = request.POST.get("ids", "").replace("\0", "").split(",")[:AT_ONCE]
    tags = request.POST.get("tags", "").replace(",", " ").split()
    done = change_runs(project=project, verb=verb, ids=ids, tags=tags, user=person(request), now=timezone.now())
    return JsonResponse(asdict(done) | {"text": done_text(verb, len(done.done))})


def done_text(verb: str, n: int) -> str:
    """Return the line that says what was done to how many."""
    texts = {
        "delete": ngettext("%(n)s run goes to the trash", "%(n)s runs go to the trash", n),
        "undelete": ngettext("%(n)s run taken back", "%(n)s runs taken back", n),
        "tag": ngettext("%(n)s run tagged", "%(n)s runs tagged", n),
        "untag": ngettext("Tag taken from %(n)s run", "Tag taken from %(n)s runs", n),
        "archive": ngettext("%(n)s run archived", "%(n)s runs archived", n),
        "restore": ngettext("%(n)s run restored", "%(n)s runs restored", n),
        "stop": ngettext("Stopping %(n)s run", "Stopping %(n)s runs", n),
        "undo_stop": ngettext("%(n)s run goes on", "%(n)s runs go on", n),
    }
    return texts[verb] % {"n": n}


urlpatterns = [
    path("runs/ids", run_ids, name="run-ids"),
    path("runs/change", change, name="change-runs"),
]
