"""pass@k against all choices of k samples, and majority votes by the reward's own equality."""

import itertools
from collections.abc import Sequence
from statistics import mean

import pytest

from jobs.catalog.spec.runspec import RewardSource
from jobs.engine.rewards.exact_match import ExactMatchReward
from jobs.engine.rewards.math import PLUGIN as MATH
from jobs.engine.rollouts.evaluation import pass_rates
from jobs.engine.rollouts.pass_at_k import majority_votes, pass_at_k, sizes
from jobs.engine.rollouts.reward import Completion, Reward, Score, ScoringLimits


@pytest.mark.parametrize("num_samples", [1, 2, 5, 8])
def test_pass_at_k_is_the_share_of_all_choices_of_k_that_hold_a_right_sample(num_samples: int) -> None:
    for num_right in range(num_samples + 1):
        is_right = [i < num_right for i in range(num_samples)]
        for k in range(1, num_samples + 1):
            wanted = mean(any(choice) for choice in itertools.combinations(is_right, k))

            assert pass_at_k(num_samples=num_samples, num_right=num_right, k=k) == pytest.approx(wanted, abs=1e-12)


def test_pass_at_k_of_many_samples_does_not_overflow() -> None:
    assert pass_at_k(num_samples=1024, num_right=1, k=512) == pytest.approx(0.5)
    with pytest.raises(ValueError, match="means nothing"):
        pass_at_k(num_samples=2, num_right=1, k=3)


def test_the_sizes_are_powers_of_two_and_all() -> None:
    assert [sizes(n) for n in (1, 2, 6, 8)] == [[1], [1, 2], [1, 2, 4, 6], [1, 2, 4, 8]]


def test_rates_are_means_over_prompts() -> None:
    rates = pass_rates([True, False, False, False, False, False], size=3)

    assert rates == {"eval/pass_at_2": pytest.approx((2 / 3 + 0) / 2), "eval/pass_at_3": pytest.approx(0.5)}


def votes(reward: Reward, answer: str, *said: str) -> float:
    completions = [Completion(prompt="?", completion=text, answer=answer) for text in said]
    right = [bool(score.is_right) for score in reward.score(completions)]
    (vote,) = majority_votes(completions, right, reward=reward, samples_per_prompt=len(said))
    return vote


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        (("4", "4", "5"), 1.0),
        (("4", "5", "5"), 0.0),
        (("4", "5"), 0.5),
        (("4", "5", "6"), 1 / 3),
        (("5", " 5 ", "4", "4", "6"), 0.5),
        (("5", "6"), 0.0),
    ],
)
def test_the_answer_with_most_votes_counts_and_ties_are_shared(said: Sequence[str], wanted: float) -> None:
    assert votes(ExactMatchReward(), "4", *said) == pytest.approx(wanted)


def test_equal_is_what_the_reward_takes_for_equal() -> None:
    reward = MATH.open(RewardSource(), ScoringLimits())
    try:
        assert votes(reward, "1/2", r"\boxed{0.5}", r"so \boxed{\frac{3}{4}}", r"it is \boxed{0.75}") == 0.0
        assert votes(reward, "7", "#### 7", "#### 8", "Let me see #### 8.0", "#### 7", "#### 7") == 1.0
        assert votes(reward, "7", "#### 7", "I do not know", "Nor do I") == 1.0  # who gives no answer does not vote
    finally:
        reward.close()


def test_votes_of_several_prompts_do_not_mix() -> None:
    said = [("1", "1"), ("1", "2"), ("1", "2"), ("2", "2"), ("2", "1"), ("2", "1")]
    completions = [Completion(prompt=answer, completion=text, answer=answer) for answer, text in said]
    reward = Counting()

    found = majority_votes(completions, [a == t for a, t in said], reward=reward, samples_per_prompt=3)

    assert found == [0.0, 0.0]
    assert reward.num_calls == 1  # one answer besides the right one, of either prompt


class Counting(ExactMatchReward):
    """Counts the batches that it scores."""

    num_calls = 0

    def score(self, completions: Sequence[Completion]) -> list[Score]:
        self.num_calls += 1
        return super().score(completions)
