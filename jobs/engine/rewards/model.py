"""A reward model: it says one number of each prompt and completion, at the completion's last token.

It is a role of the run (jobs/engine/roles/reward_scorer.py), on a device of its own or held by the policy's ranks; here
is only how it is asked.
"""

import math
from collections.abc import Sequence

from jobs.catalog.spec.runspec import RewardPart
from jobs.engine.rollouts.reward import AskModel, Completion, RewardFailed, Score, ScoringLimits


class ModelReward:
    """Ask the reward model, all completions at once."""

    def __init__(self, ask: AskModel, *, keeps_failures: bool) -> None:
        self._ask, self._keeps_failures = ask, keeps_failures

    def score(self, completions: Sequence[Completion]) -> list[Score | RewardFailed]:
        """Return the scores; the one part is `model`.

        Raises: RewardFailed of kind `wrong_type` for a score that is not finite, unless failures are kept.
        """
        scores = self._ask([completion.tokens for completion in completions])
        outcomes = [self._outcome(score, number, len(scores)) for number, score in enumerate(scores, 1)]
        failures = [outcome for outcome in outcomes if isinstance(outcome, RewardFailed)]
        if failures and not self._keeps_failures:
            raise failures[0]
        return outcomes

    @staticmethod
    def _outcome(score: float, number: int, count: int) -> Score | RewardFailed:
        if not math.isfinite(score):
            text = f"The reward model says {score} of completion {number} of {count}, not a finite number."
            return RewardFailed(text, kind="wrong_type", field="reward.location")
        return Score(total=score, parts={"model": score}, is_right=None)

    def close(self) -> None:
        """Nothing to end: the run ends its roles."""


class Plugin:
    """How the registry opens it."""

    def open(self, source: RewardPart, limits: ScoringLimits) -> ModelReward:
        """Return the scorer. Raises: RewardFailed outside of a run, where there is no such role."""
        if limits.ask_model is None:
            text = f"The reward model {source.location!r} scores within a run alone, where it is loaded."
            raise RewardFailed(text, kind="not_started", field="reward.location")
        return ModelReward(limits.ask_model, keeps_failures=limits.keeps_failures)


PLUGIN = Plugin()
