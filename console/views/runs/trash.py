"""The trash: what was deleted, how much it takes, and taking it back or deleting it for good."""

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.urls import path, reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.http import require_GET, require_POST

from console.labels.numbers import size
from console.views.frame import current_project, person
from jobs.accounts.access import projects_of, require
from jobs.models import ENDED, Project, Run, TrashItem
from jobs.retention.deletion import MOST_RUNS, delete_runs, purge_now, restore, trash_days
from jobs.retention.trash import trash_of
from jobs.runs.annotate import ChangeRefused


@require_GET
def trash(request: HttpRequest) -> HttpResponse:
    """Show what is in the project's trash."""
    if current_project(request) is None:
        return render(request, "home/no_project.html")
    project = _project(request)
    page = request.GET.get("page", "1")
    number = int(page) if page.isdecimal() and len(page) < 8 else 1
    context = {
        "trash": trash_of(project, request.user, page=number),
        "days": trash_days(project),
    }
    return render(request, "runs/trash.html", context)


@require_POST
def change_trash(request: HttpRequest, item_id: int) -> HttpResponse:
    """Take something back (`verb` restore), or delete it for good (purge); then show the run, or the trash."""
    item = TrashItem.objects.filter(project__in=projects_of(request.user), pk=item_id).first()
    if item is None:
        raise Http404(_("It is no longer in the trash."))
    project, verb = item.project, request.POST.get("verb", "")
    try:
        if verb == "restore":
            restore(item_id=item.pk, user=person(request), now=timezone.now())
            if item.kind == TrashItem.Kind.RUN:
                return redirect("run", item.run_id)
            messages.success(request, _("It is back with %(name)s.") % {"name": item.run_name})
        elif verb == "purge":
            purge_now(item_id=item.pk, confirmed_name=item.run_name, user=person(request), now=timezone.now())
            text = _("%(name)s is being deleted for good.") % {"name": item.run_name}
            messages.success(request, text)
        else:
            text = _("There is no action “%(verb)s”. Use one of %(verbs)s.")
            messages.error(request, text % {"verb": verb[:40], "verbs": "restore, purge"})
    except ChangeRefused as error:
        messages.error(request, str(error))
    return redirect(f"{reverse('trash')}?project={project.slug}")


@require_GET
def deletion(request: HttpRequest) -> JsonResponse:
    """Say what would go with these runs, for the question before they are deleted."""
    project = _project(request)
    require(request.user, project, "editor")
    ids = request.GET.get("ids", "").replace("\0", "").split(",")[:MOST_RUNS]
    runs = list(Run.objects.filter(project=project, pk__in=ids, trashed_at=None).select_related("project"))
    judged = delete_runs(runs=runs, user=person(request), stop=True, now=timezone.now(), is_dry_run=True)
    going = [one for one in judged if one.outcome != "refused"]
    here, cluster = sum(one.size.here for one in going), sum(one.size.cluster for one in going)
    states = {run.pk: run.state for run in runs}
    days = trash_days(project)
    live = sum(states[one.id] not in ENDED for one in going)
    texts = [
        ngettext(
            "%(n)s run with %(here)s here and %(cluster)s of checkpoints on the cluster goes to the trash.",
            "%(n)s runs with %(here)s here and %(cluster)s of checkpoints on the cluster go to the trash.",
            len(going),
        )
        % {"n": len(going), "here": size(here), "cluster": size(cluster)},
        ngettext(
            "That can be undone for %(days)s day; then it is deleted for good, on the cluster too.",
            "That can be undone for %(days)s days; then it is deleted for good, on the cluster too.",
            days,
        )
        % {"days": days},
    ]
    if live:
        texts.append(
            ngettext("%(n)s is live and is stopped first.", "%(n)s are live and are stopped first.", live) % {"n": live}
        )
    return JsonResponse(
        {
            "ids": [one.id for one in going],
            "names": [f"{one.name} ({one.id})" for one in going],
            "has_live": bool(live),
            "text": " ".join(texts) if going else "",
            "refused": [one.message for one in judged if one.outcome == "refused"],
        }
    )


def _project(request: HttpRequest) -> Project:
    project = current_project(request)
    if project is None:
        raise Http404
    require(request.user, project, "viewer")
    return project


urlpatterns = [
    path("trash", trash, name="trash"),
    path("trash/<int:item_id>", change_trash, name="change-trash"),
    path("runs/deletion", deletion, name="runs-deletion"),
]
