"""What every reward of the built-in trainer promises: one suite for each file of jobs/engine/rewards.

What single rewards promise is in tests/jobs/engine/test_rewards.py.
"""

import math
from collections.abc import Iterator, Sequence
from typing import get_args

import pytest

from jobs.catalog.spec.runspec import RewardPart, RewardSource
from jobs.catalog.trainer import trainers
from jobs.engine.rewards.code import CodeReward
from jobs.engine.rollouts.reward import Completion, Reward, Score, ScoringLimits, open_reward
from profiling import plugins
from tests.jobs.engine.rollouts.services import Asked, Reply, as_json, serving

NAMES = plugins.names("jobs.engine.rewards")
TEST = '[{"input": "", "output": "54"}]'
CUSTOM = "def reward(prompt, completion, answer):\n    return len(completion) / 10\n"
TEXTS = ("#### 54", "", "54", "no idea", "#### " + "9" * 400, "#### -1,234.50", "\0\ud7ff 数", "<answer>" * 50)


def answer(asked: Asked) -> Reply:
    """A service that scores by length, as a reward server and as a chat model."""
    if "completions" in asked.body:
        return as_json({"scores": [len(text) / 10 for text in asked.body["completions"]]})
    score = min(len(asked.body["messages"][0]["content"]), 10)
    return as_json({"choices": [{"message": {"content": f"I say {score}"}}]})


def by_length(sequences: Sequence[Sequence[int]]) -> list[float]:
    """A reward model that scores by length."""
    return [len(tokens) / 10 for tokens in sequences]


@pytest.fixture(scope="module")
def service_url() -> Iterator[str]:
    with serving(answer) as service:
        yield service.url


def part(name: str, url: str) -> RewardPart:
    sources = {"custom": CUSTOM, "judge": "{completion}"}
    location = url if name in ("url", "judge") else ""
    return RewardPart(kind=name, source=sources.get(name, ""), location=location)  # type: ignore[arg-type]


@pytest.fixture(scope="module", params=NAMES)
def reward(request: pytest.FixtureRequest, service_url: str) -> Iterator[Reward]:
    """Each reward of the folder, opened once."""
    opened = open_reward(part(request.param, service_url), ScoringLimits(ask_model=by_length))
    yield opened
    opened.close()


def scores_of(reward: Reward, texts: Sequence[str]) -> list[Score]:
    answer = TEST if isinstance(reward, CodeReward) else "54"
    scored = reward.score(
        [Completion(prompt="47 + 7?", completion=text, answer=answer, tokens=list(text.encode())) for text in texts]
    )
    return [each for each in scored if isinstance(each, Score)]


def test_a_spec_can_ask_for_each_and_the_built_in_trainer_scores_by_all_of_them() -> None:
    assert set(NAMES) <= set(get_args(RewardSource.model_fields["kind"].annotation))
    assert set(trainers()["native"].rewards) == set(NAMES)


def test_each_completion_gets_one_score_of_finite_numbers(reward: Reward) -> None:
    scores = scores_of(reward, TEXTS)

    assert len(scores) == len(TEXTS)
    assert all(math.isfinite(score.total) for score in scores)
    assert all(score.parts and all(map(math.isfinite, score.parts.values())) for score in scores)
    assert {tuple(score.parts) for score in scores} == {tuple(scores[0].parts)}


def test_a_completion_is_scored_by_itself(reward: Reward) -> None:
    together = scores_of(reward, TEXTS)

    assert [scores_of(reward, [text])[0] for text in TEXTS] == together
    assert scores_of(reward, TEXTS[::-1]) == together[::-1]


def test_an_answer_that_is_right_is_worth_more_than_none(reward: Reward) -> None:
    *right, empty = (score.total for score in scores_of(reward, ["#### 54", "54", "print(54)", ""]))

    assert max(right) > empty


def test_no_completions_are_no_scores(reward: Reward) -> None:
    assert scores_of(reward, []) == []


@pytest.mark.parametrize("name", NAMES)
def test_it_can_be_closed_twice(name: str) -> None:
    opened = open_reward(part(name, "http://127.0.0.1:1"), ScoringLimits(ask_model=by_length))

    opened.close()
    opened.close()
