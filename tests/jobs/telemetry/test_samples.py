"""Reading samples: by step, kind and text, in pages."""

import json
from typing import Any

import pytest
from django.db.models.functions import MD5, Left

from jobs.ingest.store import AttemptCache, store
from jobs.models import AuditEvent, Run, Sample, SampleReview
from jobs.runs.sample_reviews import review_lines, review_sample
from jobs.telemetry.sample_distribution import bin_edges, read_distribution
from jobs.telemetry.samples import SampleFilter, read_sample, read_samples
from profiling import events as make
from profiling.events import Event
from tests.batches import delivery
from tests.rows import NOW, make_run, make_user

pytestmark = pytest.mark.django_db


def sample(step: int, index: int, *, is_eval: bool = False) -> Event:
    return make.sample(
        attempt=1, step=step, group=index // 4, index=index % 4, prompt=f"What is {step} plus {index}?",
        completion=f"It is {step + index}.", expected=str(step + index), reward=1.0, rewards={"math": 1.0}, tokens=5,
        is_eval=is_eval,
    )  # fmt: skip


def total(run: Run, **chosen: Any) -> int:
    return read_samples(run_id=run.pk, chosen=SampleFilter(**chosen)).total


@pytest.fixture
def run() -> Run:
    run = make_run(state="running")
    kept = [sample(step, i) for step in (1, 2, 3) for i in range(40)] + [sample(3, i, is_eval=True) for i in range(5)]
    store([delivery(run.pk, 1, kept)], memory=AttemptCache(), now=NOW)
    return run


def test_pages_go_from_the_newest_step_to_the_first(run: Run) -> None:
    first, last, past = (read_samples(run_id=run.pk, page=page) for page in (1, 3, 99))

    assert (first.total, first.num_pages, len(first.samples), len(last.samples)) == (125, 3, 50, 25)
    assert {s.step for s in first.samples} == {3, 2}
    assert [s.pk for s in past.samples] == [s.pk for s in last.samples]
    assert first.steps == (3, 2, 1)


def test_step_kind_and_text_choose(run: Run) -> None:
    assert total(run, step=2) == 40
    assert total(run, is_eval=True) == 5
    assert read_samples(run_id=run.pk, chosen=SampleFilter(is_eval=True)).steps == (3,)
    assert total(run, query="WHAT IS 2 PLUS 17") == 1
    assert total(run, step=9) == 0


def test_a_sample_that_comes_again_is_kept_once(run: Run) -> None:
    store([delivery(run.pk, 2, [sample(1, 0)])], memory=AttemptCache(), now=NOW)

    assert total(run, step=1) == 40


def rewarded(run: Run, batch: int, *, step: int, rewards: list[list[float]], attempt: int = 1) -> None:
    """Store a step of groups with these rewards; group g asks the same question at every step."""
    events = [
        make.sample(
            attempt=attempt, step=step, group=group, index=index, prompt=f"Quéstion {group}", expected="",
            completion=f"{step}:{group}:{index}", reward=reward, rewards={}, tokens=10 * (index + 1),
        )
        for group, own in enumerate(rewards)
        for index, reward in enumerate(own)
    ]  # fmt: skip
    store([delivery(run.pk, batch, events, attempt=attempt)], memory=AttemptCache(), now=NOW)


@pytest.fixture
def scored() -> Run:
    """Return a run of two steps: a group without variance, one with, and one whose second sample has no reward."""
    run = make_run(state="running")
    rewarded(run, 1, step=1, rewards=[[1.0, 1.0], [0.0, 0.5], [0.25, float("nan")]])
    rewarded(run, 2, step=2, rewards=[[0.0, 1.0]])
    return run


def test_rewards_groups_and_prompts_choose(scored: Run) -> None:
    assert total(scored, reward_from=0.25, reward_below=1.0) == 2
    assert total(scored, variance="zero") == 2 + 1  # a reward alone among those without differs from none
    assert total(scored, variance="some") == 4
    first = read_samples(run_id=scored.pk, chosen=SampleFilter(step=1)).samples[0]
    assert total(scored, prompt=first.prompt_key) == 4
    computed = Sample.objects.annotate(key=Left(MD5("prompt"), 16)).get(pk=first.pk)
    assert computed.key == first.prompt_key  # as the migration computes it
    assert total(scored, group_of=first.pk) == 2
    assert total(scored, group_of=first.pk + 10**6) == 0
    assert (first.group_size, first.group_full, first.group_mean, first.group_low) == (2, 2, 1.0, 1.0)  # type: ignore[attr-defined]


def test_a_sample_is_read_with_its_group_and_what_its_prompt_had_before(scored: Run) -> None:
    newest = read_samples(run_id=scored.pk, chosen=SampleFilter(step=2)).samples[1]

    whole = read_sample(run_id=scored.pk, pk=newest.pk)

    assert whole is not None
    assert [one.completion for one in whole.group] == ["2:0:0", "2:0:1"]
    assert (whole.num_steps_of_prompt, whole.before and whole.before.completion) == (2, "1:0:1")
    assert read_sample(run_id=make_run().pk, pk=newest.pk) is None


def test_every_reward_lies_in_one_bin_and_the_range_of_the_filter_stays_aside(scored: Run) -> None:
    spread = read_distribution(run_id=scored.pk, chosen=SampleFilter(step=1, reward_from=0.5))

    assert (spread.total, spread.num_unscored, sum(spread.counts)) == (6, 1, 5)
    assert spread.edges[0] == 0.0
    assert spread.edges[-1] == 1.0
    for low, high, count in zip(spread.edges, [*spread.edges[1:-1], None], spread.counts, strict=False):
        assert total(scored, step=1, reward_from=low, reward_below=high) == count
    assert sorted((tokens, reward) for _pk, _step, tokens, reward in spread.points)[:2] == [(10, 0.0), (10, 0.25)]
    assert read_distribution(run_id=scored.pk, chosen=SampleFilter(step=9)).edges == ()


@pytest.mark.parametrize(
    ("low", "high", "first", "last", "most"),
    [(0, 1, 0.0, 1.0, 20), (-3.2, 7.9, -4.0, 8.0, 20), (0.5, 0.5, 0.5, 0.5, 1), (-1e308, 1e308, -1e308, 1e308, 20)],
)
def test_bins_begin_at_round_numbers(low: float, high: float, first: float, last: float, most: int) -> None:
    edges = bin_edges(low, high)

    assert (edges[0], edges[-1]) == (first, last)
    assert len(edges) - 1 <= most
    assert list(edges) == sorted(edges)


def test_each_person_has_one_word_on_a_sample_and_takes_it_back(scored: Run) -> None:
    ann, bob = make_user("ann"), make_user("bob")
    sample = Sample.objects.filter(run=scored, step=1).earliest("pk")

    def say(who: Any, verdict: Any, note: str = "") -> SampleReview | None:
        return review_sample(run=scored, sample=sample, verdict=verdict, note=note, user=who, now=NOW)

    say(ann, "up")
    say(ann, "down", " guessed ")
    say(ann, "down", "guessed")  # nothing new
    say(bob, "", "right")

    assert [total(scored, review=of) for of in ("none", "any", "up", "down", "note")] == [7, 1, 0, 1, 1]
    lines = [json.loads(line) for line in review_lines(scored)]
    assert [(one["author"], one["verdict"], one["note"], one["completion"]) for one in lines] == [
        ("ann", "down", "guessed", "1:0:0"),
        ("bob", "", "right", "1:0:0"),
    ]
    assert AuditEvent.objects.filter(verb="sample.review").count() == 3
    assert say(ann, "") is None
    assert [one["author"] for one in map(json.loads, review_lines(scored))] == ["bob"]
    sample.delete()
    assert not SampleReview.objects.exists()
