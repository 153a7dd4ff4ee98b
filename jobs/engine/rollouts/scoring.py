"""From a rollout to its scores: completions as text, what the reward gave each, and what people see of it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from jobs.engine.data.text import TextModel
from jobs.engine.reporting.run_report import ShownSample
from jobs.engine.rollouts.mixed_reward import MixedReward
from jobs.engine.rollouts.reward import Completion, Score
from jobs.engine.rollouts.rollout import Rollout

FAILED = "failed"
"""What stands among the parts of a sample of which one could not be scored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutScores:
    """What a rollout earned: `scores[i]` and `samples[i]` belong to its `responses[i]`."""

    scores: Sequence[Score]
    samples: Sequence[ShownSample]


def completions_of(rollout: Rollout, text: TextModel) -> list[Completion]:
    """Return the responses of a rollout as a reward sees them, in order."""
    return [
        Completion(prompt=e.prompt, completion=text.decode(r.tokens), answer=e.answer, tokens=(*e.tokens, *r.tokens))
        for e, r in zip(rollout.examples, rollout.responses, strict=True)
    ]


def score_rollout(rollout: Rollout, *, reward: MixedReward, text: TextModel, samples_per_prompt: int) -> RolloutScores:
    """Score the completions of a rollout whose prompts were each continued `samples_per_prompt` times.

    Raises: RewardFailed, from the reward.
    """
    completions = completions_of(rollout, text)
    scores = reward.score(completions)
    samples = [
        ShownSample(
            group=i // samples_per_prompt,
            index=i % samples_per_prompt,
            prompt=c.prompt,
            completion=c.completion,
            expected=c.answer,
            reward=math.nan if s.is_skipped else s.total,
            rewards={**s.parts, FAILED: 1.0} if s.failure else s.parts,
            tokens=len(r.tokens),
            token_ids=r.tokens,
            logprobs=r.logprobs,
        )
        for i, (c, s, r) in enumerate(zip(completions, scores, rollout.responses, strict=True))
    ]
    return RolloutScores(scores=scores, samples=samples)
