"""A judge behind an address that speaks chat completions: what it is asked, and how its answer becomes a score."""

import pytest

from jobs.catalog.spec.runspec import RewardPart
from jobs.engine.rewards.judge import PLUGIN, JudgeReward, chat_address, filled, score_in
from jobs.engine.rollouts.reward import Completion, JudgeSettings, RewardFailed, Score, ScoringLimits, ServiceLimits
from tests.jobs.engine.rollouts.services import Asked, Reply, as_json, serving

JUDGE = JudgeSettings(model="judge-7b", prompt="Task {prompt} Right {answer} Rate {completion}", max_tokens=99)


def said(text: object) -> Reply:
    return as_json({"choices": [{"message": {"role": "assistant", "content": text}}]})


def opened(url: str, *, keeps: bool = False, source: str = "") -> JudgeReward:
    service = ServiceLimits(retries=0)
    limits = ScoringLimits(timeout_seconds=20.0, keeps_failures=keeps, service=service, judge=JUDGE)
    return PLUGIN.open(RewardPart(kind="judge", location=url, source=source), limits)


def completion(text: str) -> Completion:
    return Completion(prompt="1+1?", completion=text, answer="2")


def test_each_completion_is_judged_by_a_request_of_its_own() -> None:
    def answer(asked: Asked) -> Reply:
        return said("Good. 9/10" if "two" in asked.body["messages"][0]["content"] else "Bad.\n\n**Score: 1**")

    with serving(answer) as service:
        outcomes = opened(service.url.removesuffix("/score")).score([completion("two"), completion("three")])

    assert [each.total for each in outcomes if isinstance(each, Score)] == [0.9, 0.1]
    by_text = {asked.body["messages"][0]["content"]: asked for asked in service.asked}
    asked = by_text["Task 1+1? Right 2 Rate two"]
    assert asked.path == "/v1/chat/completions"
    assert (asked.body["model"], asked.body["temperature"], asked.body["max_tokens"]) == ("judge-7b", 0, 99)


def test_a_part_may_have_a_prompt_of_its_own() -> None:
    with serving(lambda _: said("5")) as service:
        opened(service.url, source="Is it polite? {completion}").score([completion("please")])

    assert service.asked[0].body["messages"] == [{"role": "user", "content": "Is it polite? please"}]


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        (said("I cannot rate this."), "no number from 0 to 10 in its answer 'I cannot rate this.'"),
        (said(""), "no number from 0 to 10"),
        (said(None), "no text at choices[0].message.content"),
        (as_json({"choices": []}), "no text at choices[0].message.content"),
        (as_json({"error": {"message": "no model"}}, status=404), "status 404"),
        (as_json("5"), "no text at choices[0].message.content"),
    ],
)
def test_an_answer_without_a_score_fails_that_completion_alone(reply: Reply, says: str) -> None:
    def answer(asked: Asked) -> Reply:
        return reply if "two" in asked.body["messages"][0]["content"] else said("7")

    with serving(answer) as service:
        failed, scored = opened(service.url, keeps=True).score([completion("two"), completion("three")])

    assert isinstance(failed, RewardFailed)
    assert says in str(failed)
    assert isinstance(scored, Score)
    assert scored.total == 0.7


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("8", 0.8),
        ("Step 1: fine. Step 2: wrong. 3", 0.3),
        ("7/10", 0.7),
        ("I give it 6 out of 10.", 0.6),
        ("6.5", 0.65),
        ("4. The year was 2024.", 0.4),  # what is out of the range is no score
        ("<think>10 or 2?</think> 2", 0.2),
        ("**10**", 1.0),
        ("Rating: 0", 0.0),
    ],
)
def test_the_last_number_in_the_range_is_the_score(text: str, score: float) -> None:
    assert score_in(text, lowest=0, highest=10) == pytest.approx(score)


def test_scores_are_scaled_from_any_range() -> None:
    assert score_in("-1", lowest=-1, highest=1) == 0.0
    assert score_in("3", lowest=1, highest=5) == 0.5


def test_a_completion_cannot_fill_places_of_the_prompt() -> None:
    text = filled("{completion}|{answer}|{0}", completion("{answer} {prompt} {completion}"))

    assert text == "{answer} {prompt} {completion}|2|{0}"


@pytest.mark.parametrize(
    ("location", "address"),
    [
        ("http://host:8000", "http://host:8000/v1/chat/completions"),
        ("http://host:8000/", "http://host:8000/v1/chat/completions"),
        ("https://host/api/v1/", "https://host/api/v1/chat/completions"),
        ("https://host/v1/chat/completions?x=1", "https://host/v1/chat/completions?x=1"),
    ],
)
def test_the_address_may_be_that_of_the_server_of_its_v1_or_whole(location: str, address: str) -> None:
    assert chat_address(location) == address


def test_a_range_without_width_is_refused() -> None:
    limits = ScoringLimits(judge=JudgeSettings(lowest=1.0, highest=1.0))

    with pytest.raises(RewardFailed, match="must be below"):
        PLUGIN.open(RewardPart(kind="judge", location="http://host"), limits)
