"""From sampled tokens to scored samples, with the bundled tokenizer and a reward that tells what it saw."""

import math
from collections.abc import Sequence

from jobs.engine.data.examples import Example
from jobs.engine.data.model_files import BUNDLED
from jobs.engine.data.text import TextModel
from jobs.engine.roles.generator import SampledResponse
from jobs.engine.rollouts.mixed_reward import MixedReward
from jobs.engine.rollouts.reward import Completion, RewardFailed, Score
from jobs.engine.rollouts.rollout import Rollout
from jobs.engine.rollouts.scoring import score_rollout


class CountsRightAnswers:
    """One point where the completion is the expected answer."""

    def score(self, completions: Sequence[Completion]) -> list[Score]:
        right = [c.completion == c.answer for c in completions]
        return [Score(total=float(r), parts={"right": float(r)}, is_right=r) for r in right]

    def close(self) -> None:
        """Nothing was started."""


def test_each_completion_is_scored_as_text_and_keeps_its_place_in_its_group() -> None:
    text = TextModel(BUNDLED / "tiny-word-problems")
    said = ["#### 2", "#### 3", "#### 4", "####"]
    rollout = Rollout(
        examples=[example(row=0, prompt="1+1?", answer="#### 2")] * 2
        + [example(row=1, prompt="2+2?", answer="#### 4")] * 2,
        responses=[SampledResponse(tokens=tuple(text.encode(s)), logprobs=(), is_truncated=False) for s in said],
    )

    scored = score_rollout(
        rollout, reward=MixedReward([("right", 1.0, CountsRightAnswers())]), text=text, samples_per_prompt=2
    )

    assert [s.total for s in scored.scores] == [1.0, 0.0, 1.0, 0.0]
    assert [(s.group, s.index) for s in scored.samples] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert [s.completion for s in scored.samples] == said
    assert [(s.prompt, s.expected, s.reward) for s in scored.samples][2] == ("2+2?", "#### 4", 1.0)
    assert [s.tokens for s in scored.samples] == [len(r.tokens) for r in rollout.responses]


def example(*, row: int, prompt: str, answer: str) -> Example:
    return Example(row=row, prompt=prompt, answer=answer, segments=(), tokens=(), is_trained=())


def test_a_sample_shows_each_part_and_whether_one_could_not_be_scored() -> None:
    class Fails:
        def score(self, completions: Sequence[Completion]) -> list[Score | RewardFailed]:
            return [RewardFailed("down", kind="unreachable"), Score(total=0.5, parts={"x": 0.5}, is_right=None)]

        def close(self) -> None:
            """Nothing was started."""

    text = TextModel(BUNDLED / "tiny-word-problems")
    said = ["#### 2", "#### 3"]
    rollout = Rollout(
        examples=[example(row=0, prompt="1+1?", answer="#### 2")] * 2,
        responses=[SampledResponse(tokens=tuple(text.encode(s)), logprobs=(), is_truncated=False) for s in said],
    )
    parts = [("right", 1.0, CountsRightAnswers()), ("judge", 2.0, Fails())]
    mixed = MixedReward(parts, on_failure="skip")

    first, second = score_rollout(rollout, reward=mixed, text=text, samples_per_prompt=2).samples

    assert math.isnan(first.reward)  # shown as a dash, not as a number
    assert dict(first.rewards) == {"right": 1.0, "failed": 1.0}
    assert (second.reward, dict(second.rewards)) == (1.0, {"right": 0.0, "judge": 0.5})
