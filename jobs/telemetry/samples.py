"""Read the completions that a run kept: by step, text, reward, length, group, prompt and review, in pages.

What is asked of many samples (how many, which step, which reward) is answered from the index `sample_facts` alone;
texts are read of one page.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from django.db import connection
from django.db.models import Avg, Count, Exists, Max, Min, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce

from jobs.models import Attempt, Sample, SampleReview
from jobs.telemetry.trashed import hidden_through

PAGE_SIZE = 50
MAX_STEPS = 2000

Variance = Literal["", "zero", "some"]
Reviewed = Literal["", "none", "any", "up", "down", "note"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleFilter:
    """Which samples of a run; a value of None or "" leaves all.

    `query` is looked for in prompt, completion and expected answer. Rewards go from `reward_from` to below
    `reward_below`. `variance` "zero" are groups of several samples with one reward, "some" those whose rewards differ.
    `prompt` is a `prompt_key`, `group_of` the id of a sample whose group it is. `review` is what people said: nothing
    yet, anything, thumbs up, thumbs down, a note.
    """

    step: int | None = None
    is_eval: bool | None = None
    query: str = ""
    reward_from: float | None = None
    reward_below: float | None = None
    variance: Variance = ""
    prompt: str = ""
    group_of: int | None = None
    review: Reviewed = ""


EVERY = SampleFilter()


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplesPage:
    """One page of samples, newest step first. `steps` are the steps there are, of the chosen kind, newest first.

    Each sample has its group besides: `group_size`, `group_full` (rewards of 1 and more), `group_mean`, `group_low` and
    `group_high`, of all samples of the group, whether the filter leaves them or not; and how many people said what of
    it: `num_up`, `num_down`, `num_notes`.
    """

    samples: Sequence[Sample]
    total: int
    page: int
    num_pages: int
    page_size: int
    steps: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeSample:
    """A sample with its reviews and its group (itself too); `before`: the same place of the group when its prompt was
    answered the last time before, in the same attempt; None if it was not.
    """

    sample: Sample
    reviews: Sequence[SampleReview]
    group: Sequence[Sample]
    num_steps_of_prompt: int
    before: Sample | None


def prompt_key(prompt: str) -> str:
    """Return what tells whether two prompts are the same: 16 hexadecimal digits."""
    return hashlib.md5(prompt.encode(), usedforsecurity=False).hexdigest()[:16]


def read_samples(
    *, run_id: str, chosen: SampleFilter = EVERY, page: int = 1, page_size: int = PAGE_SIZE
) -> SamplesPage:
    """Return a page of samples. A page past the last one is the last one."""
    attempts = visible_attempts(run_id)
    rows = filtered(run_id, attempts, chosen)
    sizes = dict(rows.values_list("attempt").annotate(n=Count("pk")))
    total = sum(sizes.values())
    num_pages = max(1, -(-total // page_size))
    page = min(max(page, 1), num_pages)
    keys: list[int] = []
    skip = (page - 1) * page_size
    for attempt in sorted(sizes, reverse=True):  # one after the other, so that each is read in the order of the index
        missing = page_size - len(keys)
        if missing and skip < sizes[attempt]:
            ordered = rows.filter(attempt=attempt).order_by("-step", "is_eval", "group", "index")
            keys += ordered.values_list("pk", flat=True)[skip : skip + missing]
        skip = max(skip - sizes[attempt], 0)
    by_id = _with_groups(Sample.objects.filter(pk__in=keys).defer("token_logprobs")).in_bulk()
    return SamplesPage(
        samples=[by_id[key] for key in keys if key in by_id],
        total=total,
        page=page,
        num_pages=num_pages,
        page_size=page_size,
        steps=_steps(run_id, attempts, chosen.is_eval),
    )


def read_sample(*, run_id: str, pk: int) -> WholeSample | None:
    """Return one sample of the run; None if there is none, or it is in the trash."""
    attempts = visible_attempts(run_id)
    sample = _with_groups(Sample.objects.filter(run_id=run_id, attempt__in=attempts, pk=pk)).first()
    if sample is None:
        return None
    alike = Sample.objects.filter(run_id=run_id, prompt_key=sample.prompt_key, is_eval=sample.is_eval)
    earlier = alike.filter(attempt=sample.attempt, step__lt=sample.step, index=sample.index)
    of_group = Sample.objects.filter(
        run_id=run_id, attempt=sample.attempt, step=sample.step, is_eval=sample.is_eval, group=sample.group
    )
    return WholeSample(
        sample=sample,
        reviews=list(sample.reviews.select_related("author").order_by("at")),
        group=list(of_group.order_by("index").defer("prompt", "token_logprobs")),
        num_steps_of_prompt=alike.filter(attempt__in=attempts).values("step").distinct().count(),
        before=earlier.order_by("-step", "group").first(),
    )


def visible_attempts(run_id: str) -> list[int]:
    """Return the attempts whose samples are not in the trash."""
    hidden = hidden_through(run_id, "samples")
    return list(Attempt.objects.filter(run_id=run_id, number__gt=hidden).values_list("number", flat=True))


def filtered(run_id: str, attempts: Sequence[int], chosen: SampleFilter) -> QuerySet[Sample]:
    """Return the samples of these attempts that the filter leaves, in no order."""
    rows = Sample.objects.filter(run_id=run_id, attempt__in=attempts)
    if chosen.step is not None:
        rows = rows.filter(step=chosen.step)
    if chosen.is_eval is not None:
        rows = rows.filter(is_eval=chosen.is_eval)
    if chosen.group_of is not None:
        rows = rows.filter(_group_condition(run_id, chosen.group_of))
    if chosen.prompt:
        rows = rows.filter(prompt_key=chosen.prompt)
    if chosen.reward_from is not None:
        rows = rows.filter(reward__gte=chosen.reward_from)
    if chosen.reward_below is not None:
        rows = rows.filter(reward__lt=chosen.reward_below)
    if chosen.variance:
        rows = rows.filter(_variance_condition(chosen.variance))
    if chosen.review:
        rows = rows.filter(_review_condition(run_id, chosen.review))
    if chosen.query:
        texts = ("prompt", "completion", "expected")
        condition = Q()
        for text in texts:
            condition |= Q(**{f"{text}__icontains": chosen.query})
        rows = rows.filter(condition)
    return rows


_STEPS = """
    WITH RECURSIVE found(step) AS (
        SELECT MAX(step) FROM jobs_sample WHERE run_id = %s AND attempt = %s{kind}
        UNION ALL
        SELECT (SELECT MAX(step) FROM jobs_sample WHERE run_id = %s AND attempt = %s{kind} AND step < found.step)
        FROM found WHERE found.step IS NOT NULL
    )
    SELECT step FROM found WHERE step IS NOT NULL LIMIT %s"""


def _steps(run_id: str, attempts: Sequence[int], is_eval: bool | None) -> tuple[int, ...]:
    """Return the newest steps that have samples. From one to the next through the index: a step may have thousands."""
    kind = "" if is_eval is None else " AND is_eval" if is_eval else " AND NOT is_eval"
    steps: set[int] = set()
    with connection.cursor() as cursor:
        for attempt in attempts:
            cursor.execute(_STEPS.format(kind=kind), [run_id, attempt, run_id, attempt, MAX_STEPS])
            steps |= {step for (step,) in cursor.fetchall()}
    return tuple(sorted(steps, reverse=True)[:MAX_STEPS])


def _group_condition(run_id: str, pk: int) -> Q:
    place = Sample.objects.filter(run_id=run_id, pk=pk).values("attempt", "step", "is_eval", "group").first()
    return Q(**place) if place else Q(pk__in=())


def _same_group() -> QuerySet[Sample]:
    keys = ("run_id", "attempt", "step", "is_eval", "group")
    return Sample.objects.filter(**{key: OuterRef(key) for key in keys})


def _variance_condition(variance: Variance) -> Q:
    differs = Exists(_same_group().filter(Q(reward__lt=OuterRef("reward")) | Q(reward__gt=OuterRef("reward"))))
    if variance == "some":
        return Q(differs)
    return Q(reward__isnull=False) & ~Q(differs) & Q(Exists(_same_group().exclude(index=OuterRef("index"))))


def _review_condition(run_id: str, review: Reviewed) -> Q:
    if review == "none":
        return ~Q(Exists(SampleReview.objects.filter(sample=OuterRef("pk"))))
    reviews = SampleReview.objects.filter(sample__run=run_id)
    if review in ("up", "down"):
        reviews = reviews.filter(verdict=review)
    if review == "note":
        reviews = reviews.exclude(note="")
    return Q(pk__in=reviews.values("sample"))


def _with_groups(rows: QuerySet[Sample]) -> QuerySet[Sample]:
    """Add what is known of the group of each sample, and how many people said what of it."""
    whole = _same_group().order_by().values("group")
    return rows.annotate(
        group_size=Subquery(whole.annotate(v=Count("pk")).values("v")),
        group_full=Subquery(whole.annotate(v=Count("pk", filter=Q(reward__gte=1))).values("v")),
        group_mean=Subquery(whole.annotate(v=Avg("reward")).values("v")),
        group_low=Subquery(whole.annotate(v=Min("reward")).values("v")),
        group_high=Subquery(whole.annotate(v=Max("reward")).values("v")),
        num_up=_num_reviews(Q(verdict="up")),
        num_down=_num_reviews(Q(verdict="down")),
        num_notes=_num_reviews(~Q(note="")),
    )


def _num_reviews(which: Q) -> Coalesce:
    own = SampleReview.objects.filter(which, sample=OuterRef("pk")).order_by().values("sample")
    return Coalesce(Subquery(own.annotate(v=Count("pk")).values("v")), 0)
