"""Read the completions that a run kept: by step, kind and text, in pages."""

from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import Q

from jobs.models import Sample
from jobs.telemetry.trashed import hidden_through

PAGE_SIZE = 50
MAX_STEPS = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplesPage:
    """One page of samples, newest step first. `steps` are the steps there are, of the chosen kind."""

    samples: Sequence[Sample]
    total: int
    page: int
    num_pages: int
    page_size: int
    steps: tuple[int, ...]


def read_samples(
    *,
    run_id: str,
    step: int | None = None,
    is_eval: bool | None = None,
    query: str = "",
    page: int = 1,
    page_size: int = PAGE_SIZE,
) -> SamplesPage:
    """Return a page of samples. `query` is looked for in prompt, completion and expected answer.

    A page past the last one is the last one.
    """
    chosen = Sample.objects.filter(run_id=run_id, attempt__gt=hidden_through(run_id, "samples"))
    if is_eval is not None:
        chosen = chosen.filter(is_eval=is_eval)
    steps = tuple(chosen.values_list("step", flat=True).distinct().order_by("-step")[:MAX_STEPS])
    if step is not None:
        chosen = chosen.filter(step=step)
    if query:
        chosen = chosen.filter(
            Q(prompt__icontains=query) | Q(completion__icontains=query) | Q(expected__icontains=query)
        )
    total = chosen.count()
    num_pages = max(1, -(-total // page_size))
    page = min(max(page, 1), num_pages)
    rows = chosen.order_by("-attempt", "-step", "is_eval", "group", "index")[(page - 1) * page_size : page * page_size]
    return SamplesPage(
        samples=list(rows), total=total, page=page, num_pages=num_pages, page_size=page_size, steps=steps
    )
