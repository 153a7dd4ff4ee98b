"""What of a run's logs and samples is in the trash: those of its attempts up to one."""

from collections.abc import Collection
from typing import Literal

from django.db.models import Max, Q

from jobs.models import TrashItem


def hidden_through(run_id: str, kind: Literal["logs", "samples"]) -> int:
    """Return the attempt up to which they are in the trash, 0 for none."""
    items = TrashItem.objects.filter(run_id=run_id, kind=kind)
    hidden: int | None = items.aggregate(most=Max("through_attempt"))["most"]
    return hidden or 0


def in_trash(run_ids: Collection[str], kind: Literal["logs", "samples"]) -> Q:
    """Return the condition of rows of these runs that are in the trash."""
    condition = Q(pk__in=())
    for run_id, through in TrashItem.objects.filter(run_id__in=run_ids, kind=kind).values_list(
        "run_id", "through_attempt"
    ):
        condition |= Q(run_id=run_id, attempt__lte=through)
    return condition
