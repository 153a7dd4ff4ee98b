"""Which other runs need what a run left: its checkpoints and models are named in their specs by path."""

from collections.abc import Collection, Mapping

from django.db.models import Q, TextField
from django.db.models.functions import Cast

from jobs.models import Run


def dependents_of(run_ids: Collection[str]) -> Mapping[str, list[Run]]:
    """Return run id -> the runs whose spec names it (a model, critic, reward model, adapter or data at its path), of
    all projects, ended ones too: a resume of one needs it again. Those in the trash and `run_ids` themselves need
    nothing.
    """
    if not run_ids:
        return {}
    named = Q()
    for run_id in run_ids:
        named |= Q(text__contains=run_id)
    rows = Run.objects.filter(trashed_at=None).exclude(pk__in=run_ids).annotate(text=Cast("spec", TextField()))
    by_run: dict[str, list[Run]] = {run_id: [] for run_id in run_ids}
    for run in rows.filter(named).select_related("project").order_by("created_at"):
        for run_id in run_ids:
            if run_id in run.text:
                by_run[run_id].append(run)
    return by_run


def call(runs: Collection[Run], own_project: int) -> str:
    """Return the runs by name and id; of those of other projects only the id, like the queue does."""
    return ", ".join(f"{run.name} ({run.pk})" if run.project_id == own_project else run.pk for run in runs)
