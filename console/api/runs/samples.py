"""Completions that a run kept: pages of them, how they are spread, one of them whole, and what people say of them."""

from datetime import datetime
from typing import Annotated, Literal

import orjson
from django.http import Http404, HttpRequest, StreamingHttpResponse
from django.utils import timezone
from ninja import Field, Query, Router, Schema
from pydantic import AfterValidator

from console.api.problem import EXPENSIVE, REFUSALS
from console.api.visible import caller, run_for
from console.budget import expensive
from console.downloads.csv_response import csv_answer
from console.downloads.kept import keep_download
from jobs.catalog.value import is_storable
from jobs.models import Run, SampleReview
from jobs.runs.sample_reviews import MAX_NOTE_CHARS, review_lines, review_sample
from jobs.telemetry.sample_distribution import SampleDistribution, read_distribution
from jobs.telemetry.samples import SampleFilter, SamplesPage, WholeSample, read_sample, read_samples

router = Router(tags=["runs"])

_MAX_INT32 = 2**31 - 1
_MAX_ID = 2**62
Page = Annotated[int, Query(1, ge=1, le=1_000_000)]


def _storable(note: str) -> str:
    if not is_storable(note):
        raise ValueError("A note is text without NUL and without halves of surrogate pairs.")
    return note


class SampleQuery(Schema):
    """Which samples; all that is given must hold."""

    step: int | None = Field(None, ge=-_MAX_INT32, le=_MAX_INT32)
    is_eval: bool | None = Field(None, description="held-out samples alone, or those of training alone")
    q: str = Field("", max_length=500, description="a part of prompt, completion or expected answer")
    reward_from: float | None = Field(None, allow_inf_nan=False)
    reward_below: float | None = Field(None, allow_inf_nan=False)
    variance: Literal["", "zero", "some"] = Field("", description="groups whose rewards are all equal, or are not")
    prompt: str = Field("", max_length=16, description="`prompt_key` of a sample: the same prompt at all steps")
    group_of: int | None = Field(None, ge=0, le=_MAX_ID, description="id of a sample: all of its group")
    review: Literal["", "none", "any", "up", "down", "note"] = Field("", description="what people said of it")


class SampleOut(Schema):
    """One completion; `group_…` covers all samples of its prompt in its step."""

    id: int
    attempt: int
    step: int
    group: int
    index: int
    is_eval: bool
    prompt: str
    prompt_key: str
    completion: str
    expected: str
    reward: float | None
    rewards: dict[str, float | str]
    tokens: int
    group_size: int
    group_full: int = Field(description="how many of the group have a reward of 1 or more")
    group_mean: float | None
    group_low: float | None
    group_high: float | None
    num_up: int = Field(description="how many people gave it thumbs up")
    num_down: int
    num_notes: int


class SamplesOut(Schema):
    """A page of samples, newest step first."""

    samples: list[SampleOut]
    total: int
    page: int
    num_pages: int
    page_size: int
    steps: list[int]


class ReviewOut(Schema):
    """What somebody said of a sample."""

    author: str
    verdict: Literal["up", "down", ""]
    note: str
    at: datetime
    is_mine: bool


class GroupMemberOut(Schema):
    """Another sample of the same prompt in the same step."""

    id: int
    index: int
    completion: str
    reward: float | None
    rewards: dict[str, float | str]


class WholeSampleOut(SampleOut):
    """One completion with all that is kept of it.

    `token_logprobs`: for each token from the first on, characters of the completion and log-probability, as far as the
    run told them. `group_members`: all of its group, itself too. `num_steps_of_prompt`: at how many steps its prompt
    was answered. `before`: what the same place of the group held when the prompt was answered before; "" if it was not.
    """

    token_logprobs: list[tuple[int, float | str]]
    reviews: list[ReviewOut]
    group_members: list[GroupMemberOut]
    num_steps_of_prompt: int
    step_before: int | None
    before: str


class DistributionOut(Schema):
    """`counts[i]` rewards from `edges[i]` to below `edges[i + 1]`, and [id, step, tokens, reward] of samples."""

    total: int
    num_unscored: int
    edges: list[float]
    counts: list[int]
    points: list[tuple[int, int, int, float]]


class ReviewIn(Schema):
    """A verdict, a note or both; neither takes back what was said."""

    model_config = {"extra": "forbid"}

    verdict: Literal["up", "down", ""] = ""
    note: Annotated[str, AfterValidator(_storable)] = Field("", max_length=MAX_NOTE_CHARS)


@router.get("/{run_id}/samples", response={200: SamplesOut, **REFUSALS}, summary="Completions")
def list_samples(request: HttpRequest, run_id: str, chosen: Query[SampleQuery], page: Page = 1) -> SamplesPage:
    """Read prompts and completions, newest step first."""
    run = run_for(request, run_id)
    return read_samples(run_id=run.pk, chosen=_filter(chosen), page=page)


@router.get(
    "/{run_id}/samples/distribution", response={200: DistributionOut, **EXPENSIVE}, summary="Rewards and lengths"
)
@expensive
def sample_distribution(request: HttpRequest, run_id: str, chosen: Query[SampleQuery]) -> SampleDistribution:
    """Return the histogram of rewards, and reward against length and step.

    Of the filter the range of rewards is left aside. Of many samples about 2,000 points are told, spread over all.
    """
    run = run_for(request, run_id)
    return read_distribution(run_id=run.pk, chosen=_filter(chosen))


@router.get(
    "/{run_id}/samples/reviews.jsonl",
    response={200: None, **EXPENSIVE},
    summary="Reviews as JSON lines",
    openapi_extra={
        "responses": {
            200: {"description": "JSON lines", "content": {"application/jsonl": {"schema": {"type": "string"}}}}
        }
    },
)
@expensive
def export_reviews(request: HttpRequest, run_id: str) -> StreamingHttpResponse:
    """Return every review of the run with its sample, one JSON object a line. That it was taken along is audited."""
    run = run_for(request, run_id)
    name = f"{run.pk}-reviews.jsonl"
    keep_download(request, "run", run.pk, name)
    return csv_answer(review_lines(run), name=name, content_type="application/jsonl")


@router.get("/{run_id}/samples/{int:sample_id}", response={200: WholeSampleOut, **REFUSALS}, summary="One completion")
def get_sample(request: HttpRequest, run_id: str, sample_id: int) -> WholeSampleOut:
    """Read one completion with its tokens, its group and what people say of it."""
    run = run_for(request, run_id)
    return _sample_out(request, run, sample_id)


@router.put(
    "/{run_id}/samples/{int:sample_id}/review",
    response={200: WholeSampleOut, **REFUSALS},
    summary="Review a sample",
)
def put_review(request: HttpRequest, run_id: str, sample_id: int, body: ReviewIn) -> WholeSampleOut:
    """Say thumbs up or down, or note something, in place of what you said before; return the completion."""
    run = run_for(request, run_id, "editor")
    sample = _sample_of(run, sample_id).sample
    review_sample(
        run=run, sample=sample, verdict=body.verdict, note=body.note, user=caller(request), now=timezone.now()
    )
    return _sample_out(request, run, sample_id)


def _filter(query: SampleQuery) -> SampleFilter:
    values = query.model_dump()
    return SampleFilter(query=values.pop("q"), **values)


def _sample_of(run: Run, sample_id: int) -> WholeSample:
    """Return a sample of the run. Raises: Http404."""
    sample = read_sample(run_id=run.pk, pk=sample_id) if sample_id < _MAX_ID else None
    if sample is None:
        raise Http404
    return sample


def _sample_out(request: HttpRequest, run: Run, sample_id: int) -> WholeSampleOut:
    """Return a sample of the run with all that is kept of it. Raises: Http404."""
    whole = _sample_of(run, sample_id)
    return WholeSampleOut.model_validate(
        {
            **SampleOut.from_orm(whole.sample).model_dump(),
            "token_logprobs": orjson.loads(whole.sample.token_logprobs or "[]"),
            "reviews": [_review(request, review) for review in whole.reviews],
            "group_members": [GroupMemberOut.from_orm(member) for member in whole.group],
            "num_steps_of_prompt": whole.num_steps_of_prompt,
            "step_before": whole.before.step if whole.before else None,
            "before": whole.before.completion if whole.before else "",
        }
    )


def _review(request: HttpRequest, review: SampleReview) -> ReviewOut:
    return ReviewOut.model_validate(
        {
            "author": review.author.get_username() if review.author else "",
            "verdict": review.verdict,
            "note": review.note,
            "at": review.at,
            "is_mine": review.author_id == caller(request).pk,
        }
    )
