"""Completions of several runs to the same prompt, side by side."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from django.db.models import Q, QuerySet

from jobs.models import Sample
from jobs.telemetry.history import is_visible, visible_through
from jobs.telemetry.trashed import in_trash

PROMPTS_PER_PAGE = 10
MAX_STEPS = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptRow:
    """One prompt, and what each run answered: in the order of the runs, () where the run did not have it."""

    prompt: str
    expected: str
    answers: tuple[tuple[Sample, ...], ...]

    @property
    def num_runs(self) -> int:
        """How many runs have the prompt."""
        return sum(1 for own in self.answers if own)


@dataclass(frozen=True, slots=True, kw_only=True)
class SideBySide:
    """One page of prompts at `step`; those that most runs share come first.

    `steps` are the steps of which any run kept samples of the chosen kind, newest first; `shared_steps` those of two or
    more runs. `step` is None if there are no samples.
    """

    rows: tuple[PromptRow, ...]
    step: int | None
    steps: tuple[int, ...]
    shared_steps: frozenset[int]
    page: int
    num_pages: int
    num_prompts: int
    num_shared: int


def side_by_side(*, run_ids: Sequence[str], is_eval: bool, step: int | None = None, page: int = 1) -> SideBySide:
    """Return the prompts that the runs answered at a step (None: the newest of those that most runs share).

    Prompts are the same if their text is. Samples of a dead branch are left out. A page past the last is the last.
    """
    limits = {run_id: visible_through(run_id) for run_id in run_ids}
    of_step: dict[int, set[str]] = {}
    positions = _samples(run_ids, is_eval).values_list("run_id", "attempt", "step").distinct()
    for run_id, attempt, own_step in positions:
        if is_visible(own_step, limits[run_id].get(attempt)):
            of_step.setdefault(own_step, set()).add(run_id)
    steps = tuple(sorted(of_step, reverse=True)[:MAX_STEPS])
    shared = frozenset(own_step for own_step, owners in of_step.items() if len(owners) > 1)
    if step is None:
        step = max(steps, key=lambda own_step: (len(of_step[own_step]), own_step), default=None)
    rows = _rows(run_ids, is_eval, step, limits) if step is not None else []
    num_pages = max(1, -(-len(rows) // PROMPTS_PER_PAGE))
    page = min(max(page, 1), num_pages)
    return SideBySide(
        rows=tuple(rows[(page - 1) * PROMPTS_PER_PAGE : page * PROMPTS_PER_PAGE]),
        step=step,
        steps=steps,
        shared_steps=shared,
        page=page,
        num_pages=num_pages,
        num_prompts=len(rows),
        num_shared=sum(1 for row in rows if row.num_runs > 1),
    )


def _samples(run_ids: Sequence[str], is_eval: bool) -> QuerySet[Sample]:
    return Sample.objects.filter(Q(run_id__in=run_ids), is_eval=is_eval).exclude(in_trash(run_ids, "samples"))


def _rows(
    run_ids: Sequence[str], is_eval: bool, step: int, limits: Mapping[str, Mapping[int, int | None]]
) -> list[PromptRow]:
    by_prompt: dict[str, dict[str, list[Sample]]] = {}
    newest: dict[str, int] = {}  # run -> its newest attempt that has the step: its word counts
    samples = []
    for sample in _samples(run_ids, is_eval).filter(step=step).order_by("group", "index"):
        if is_visible(step, limits[sample.run_id].get(sample.attempt)):
            newest[sample.run_id] = max(newest.get(sample.run_id, 0), sample.attempt)
            samples.append(sample)
    for sample in samples:
        if sample.attempt == newest[sample.run_id]:
            by_prompt.setdefault(sample.prompt, {}).setdefault(sample.run_id, []).append(sample)
    rows = [
        PromptRow(
            prompt=prompt,
            expected=next(sample.expected for own in answers.values() for sample in own),
            answers=tuple(tuple(answers.get(run_id, ())) for run_id in run_ids),
        )
        for prompt, answers in by_prompt.items()
    ]
    return sorted(rows, key=lambda row: -row.num_runs)
