"""Dynamic sampling: what is kept, what is drawn again, and what is left when the budget ends."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from jobs.engine.reporting.run_report import ShownSample
from jobs.engine.rollouts.group_sampling import Sampled, ScoredRollout, sample_groups
from jobs.engine.rollouts.reward import Score
from jobs.engine.rollouts.rollout import Rollout


class Prompts:
    """Prompts whose groups of two earn these rewards, in order; each response has two tokens."""

    def __init__(self, rewards: Sequence[tuple[float, float]]) -> None:
        self.rewards = rewards
        self.calls: list[tuple[int, int]] = []

    def draw(self, count: int, first: int) -> ScoredRollout:
        self.calls.append((count, first))
        rewards = [reward for pair in self.rewards[first : first + count] for reward in pair]
        names: list[Any] = [SimpleNamespace(prompt=str(first + i // 2)) for i in range(2 * count)]
        responses: Any = [SimpleNamespace(tokens=(7, 8)) for _ in rewards]
        return ScoredRollout(
            rollout=Rollout(examples=names, responses=responses),
            scores=[Score(total=reward, parts={}, is_right=None) for reward in rewards],
            samples=[
                ShownSample(
                    group=i // 2,
                    index=i % 2,
                    prompt=names[i].prompt,
                    completion="",
                    expected="",
                    reward=reward,
                    rewards={},
                    tokens=2,
                )
                for i, reward in enumerate(rewards)
            ],
            rewards_B=torch.tensor(rewards),
            shaping={"reward/clipped_fraction": float(first > 0)},
        )


ROWS = [(1.0, 0.0), (1.0, 1.0), (0.0, 0.0), (0.0, 1.0), (0.0, 0.0), (1.0, 0.0), (0.5, 1.0)]


def sampled(prompts: Prompts, *, wanted: int = 4, most: int = 9) -> Sampled:
    return sample_groups(prompts.draw, wanted=wanted, group_size=2, max_generations=most)


def prompts_of(found: Sampled) -> list[str]:
    return [example.prompt for example in found.drawn.rollout.examples][::2]


def test_as_many_groups_are_drawn_again_as_had_no_variance() -> None:
    prompts = Prompts(ROWS)

    found = sampled(prompts)

    assert prompts.calls == [(4, 0), (2, 4), (1, 6)]
    assert prompts_of(found) == ["0", "3", "5", "6"]
    assert found.drawn.rewards_B.tolist() == [1.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.5, 1.0]
    assert [score.total for score in found.drawn.scores] == found.drawn.rewards_B.tolist()
    assert found.metrics == {"groups/sampled": 7.0, "groups/kept": 4.0, "groups/generations": 3.0}


def test_what_is_shown_is_what_is_learned_from_numbered_anew() -> None:
    found = sampled(Prompts(ROWS))

    assert [(s.prompt, s.group, s.index) for s in found.drawn.samples] == [
        (name, group, index) for group, name in enumerate(["0", "3", "5", "6"]) for index in (0, 1)
    ]


def test_tokens_and_changed_rewards_are_counted_over_all_generations() -> None:
    found = sampled(Prompts(ROWS))

    assert found.num_new_tokens == 7 * 2 * 2
    assert found.drawn.shaping == {"reward/clipped_fraction": pytest.approx(3 / 7)}


@pytest.mark.parametrize(("most", "names", "kept"), [(1, ["0", "1", "2", "3"], 2), (2, ["0", "3", "5", "1"], 3)])
def test_what_the_budget_leaves_open_is_filled_with_groups_that_teach_nothing(
    most: int, names: list[str], kept: int
) -> None:
    found = sampled(Prompts(ROWS), most=most)

    assert prompts_of(found) == names
    assert (found.num_kept, found.num_generations) == (kept, most)


def test_nothing_is_drawn_again_where_all_groups_have_variance() -> None:
    prompts = Prompts([(0.0, 1.0)] * 4)

    assert sampled(prompts).num_sampled == 4
    assert prompts.calls == [(4, 0)]
