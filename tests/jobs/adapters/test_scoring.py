"""The rewards that other trainers are given score as the built-in ones do."""

from collections.abc import Callable
from typing import Any

import pytest

from jobs.adapters.scoring import SOURCES, source_of
from jobs.catalog.spec.runspec import RewardSource
from jobs.engine.rollouts.reward import Completion, open_reward

COMPLETIONS = [
    ("1 + 2 = 3\n#### 3", "3"),
    ("#### 1,234.0", "1234"),
    ("#### $5", "so it is\n#### 5"),
    ("#### 4\n#### 5 ", "5"),
    ("the answer is 5", "5"),
    ("####", "5"),
    ("#### 5 and more", "5"),
    ("#### -0.5", "-.5"),
    ("  Paris ", "paris"),
    ("", ""),
    ("#### 7", "no number"),
]


def function_of(source: str) -> Callable[..., Any]:
    space: dict[str, Any] = {}
    exec(source, space)
    reward: Callable[..., Any] = space["reward"]
    return reward


@pytest.mark.parametrize("kind", SOURCES)
def test_a_reward_scores_as_the_built_in_trainer_does(kind: Any) -> None:
    built_in = open_reward(RewardSource(kind=kind))
    reward = function_of(source_of(RewardSource(kind=kind)))

    for completion, answer in COMPLETIONS:
        score = built_in.score([Completion(prompt="?", completion=completion, answer=answer)])[0]
        assert reward("?", completion, answer) == pytest.approx(score.total)


def test_a_custom_reward_is_its_own_source() -> None:
    assert source_of(RewardSource(kind="custom", source="def reward(p, c, a): return 1.0")).endswith("1.0")
