"""Whose turn it is to import: one file of a project at a time while others wait, then each project in turn.

A project alone may use every place. Once somebody else waits, the younger of its imports gives way: it goes back into
the queue and begins anew later, so that nobody waits for somebody else's hour.
"""

from collections import Counter
from datetime import datetime, timedelta

from django.db.models import F
from django.utils import timezone

from jobs.models import Layer, Quota

AT_ONCE = 2  # imports; the worker has other things to do
LOST_AFTER = timedelta(seconds=30)  # without a word, whoever imported a layer is gone
PATIENCE = timedelta(seconds=5)
"""So long a file of another project waits before an import gives way to it: a place may become free by itself."""


def next_layers(*, queued_before: datetime) -> list[int]:
    """Return the queued files that may be imported now, in the order of their turns: no more than there are places."""
    running = _running()
    waiting = Layer.objects.filter(state="queued", created_at__lt=queued_before).order_by("created_at", "pk")
    rows = list(waiting.values_list("pk", "trace__project_id", "trace__created_by_id"))
    chosen = []
    for _place in range(AT_ONCE - running.total()):
        allowed = [row for row in rows if _is_within_quota(row[1], row[2])]
        if not allowed:
            break
        pk, project, _person = min(allowed, key=lambda row: running[row[1]])  # the first to come of those with fewest
        chosen.append(pk)
        running[project] += 1
        rows = [row for row in rows if row[0] != pk]
    return chosen


def is_its_turn(layer: Layer) -> bool:
    """Return True if this queued file may be imported now."""
    running, project = _running(), layer.trace.project_id
    if running.total() >= AT_ONCE or not _is_within_quota(project, layer.trace.created_by_id):
        return False
    return not running[project] or not _others_wait(running, than=project)


def gives_way(layer: Layer, *, now: datetime) -> bool:
    """Return True if this import is the younger of two of its project, and a project that has none waits for a place.

    Its claim is given back then: it is queued again where it stood, and the try does not count.
    """
    running, project = _running(), layer.trace.project_id
    if running.total() < AT_ONCE or running[project] < 2:
        return False
    if not _others_wait(running, than=project, queued_before=now - PATIENCE):
        return False
    own = Layer.objects.filter(state="importing", trace__project_id=project).order_by("created_at", "pk")
    if own.values_list("pk", flat=True).last() != layer.pk:
        return False
    held = Layer.objects.filter(pk=layer.pk, state="importing", claim=layer.claim)
    return bool(held.update(state="queued", claim="", progress=0, tries=F("tries") - 1))


def _running() -> Counter[int]:
    """Return how many files of each project are being imported."""
    alive = Layer.objects.filter(state="importing", seen_at__gte=timezone.now() - LOST_AFTER)
    return Counter(alive.values_list("trace__project_id", flat=True))


def _others_wait(running: Counter[int], *, than: int, queued_before: datetime | None = None) -> bool:
    """Return True if a file waits whose project has no import, and may have one."""
    waiting = Layer.objects.filter(state="queued").exclude(trace__project_id=than)
    if queued_before is not None:
        waiting = waiting.filter(created_at__lt=queued_before)
    owners = waiting.values_list("trace__project_id", "trace__created_by_id").distinct()
    return any(not running[project] and _is_within_quota(project, person) for project, person in owners)


def _is_within_quota(project: int, person: int | None) -> bool:
    """Return True if neither the project nor the person has as many imports as they may."""
    limits = Quota.objects.filter(imports__isnull=False)
    for row in limits.filter(project_id=project) | limits.filter(user_id=person or 0):
        whose = {"trace__project_id": project} if row.project_id else {"trace__created_by_id": person}
        if Layer.objects.filter(state="importing", **whose).count() >= (row.imports or 0):
            return False
    return True
